// Kernels that share every row of a tensor among a few threads: lanes of a warp where rows are short, else a block.
//
//   const row::Spread spread = row::spread(num_rows, vectors, 4);   // host: at most 4 vectors a thread
//   LaunchKernel(spread.grid, spread.block, device)(kernel, spread.threads, ...);
//   ...
//   const auto [row, lane] = device::row::place(threads);            // in the kernel: which row, and which part of it
//   const float total = device::row::reduce_sum(x, threads);         // the same in all threads of the row
//
// What a block's registers cannot hold of a long row, `put` keeps in shared memory; `host::row::keep` says how much.
// While a row is written, `fetch_ahead` lets the memory already be read that the next block will need.
//
// How many threads a row gets is known at run time only, so that one kernel serves rows of every length. Nearly free to
// compile.

#pragma once

#include <cuda_runtime_api.h>
#include <kjit/launch.h>
#include <kjit/utils.h>
#include <kjit/device.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit {

namespace host::row {

/// Threads of the largest block that `spread` asks for.
inline constexpr int kMaxBlock = 1024;

/// How rows are spread over a GPU.
struct Spread {
  int threads;        // that share a row: a power of two up to 32, or the block
  int block;          // threads of a block
  std::int64_t grid;  // blocks
};

/// Spreads `rows` rows of `vectors` vectors each, such that a thread has at most `parts` vectors of its row, and of a
/// row that is too long for a block of `max_block` threads, a multiple of 32, more. Of short rows it has at most two.
/// Of few rows it has fewer than `parts`: most of the GPU is idle then, and the more threads a row has, the sooner it
/// is done.
inline Spread spread(std::int64_t rows, std::int64_t vectors, int parts, int max_block = kMaxBlock) {
  constexpr int kSmallBlock = 128;
  constexpr std::int64_t kShort = 64, kMedium = 256, kFew = 65536;
  const bool few = rows * vectors <= kFew;
  const int most = few && kShort < vectors && vectors <= kMedium ? 1 : few || vectors <= kShort ? 2 : parts;
  const std::int64_t wanted = div_ceil(vectors, std::int64_t{most < parts ? most : parts});
  if (wanted <= 32) {
    int threads = 1;
    while (threads < wanted) threads *= 2;
    return {threads, kSmallBlock, div_ceil(rows, std::int64_t{kSmallBlock / threads})};
  }
  const int block = static_cast<int>(wanted < max_block ? div_ceil(wanted, std::int64_t{32}) * 32 : max_block);
  return {block, block, rows};
}

/// What of a row stays in a block's dynamic shared memory.
struct Kept {
  int chunks;         // vectors of all threads, `parts` of them each; the first ones of the row
  std::size_t bytes;  // of shared memory
};

/// How much of a row of `vectors` vectors fits into shared memory, when the `parts` vectors of each thread that come
/// last stay in registers. `inputs` tensors have such rows.
inline Kept keep(const Spread& spread, std::int64_t vectors, int parts, int inputs, DLDevice device) {
  constexpr int kReserved = 2048;  // for static arrays, such as those of `reduce_sum`, and the system
  const std::int64_t chunks = div_ceil(vectors, std::int64_t{spread.threads} * parts);
  if (chunks <= 1) return {0, 0};
  int most = 0;
  RuntimeDeviceCheck(::cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.device_id));
  const std::size_t chunk = std::size_t{16} * static_cast<std::size_t>(inputs * parts * spread.block);
  const auto fit = static_cast<std::int64_t>(static_cast<std::size_t>(most - kReserved) / chunk);
  const int kept = static_cast<int>(fit < chunks - 1 ? fit : chunks - 1);
  return {kept, chunk * static_cast<std::size_t>(kept)};
}

/// Bytes that `fetch_ahead` asks for, of the rows of all inputs together.
inline constexpr int kFetched = 65536;

namespace details {

/// How many blocks of `kernel` an SM runs at a time, without dynamic shared memory. Asked for once: the runtime takes
/// longer for the answer than for many other steps of a launch.
inline int blocks_per_sm(const void* kernel, int block, DLDevice device) {
  struct Answer {
    const void* kernel;
    int device;
    int blocks;
  };
  static thread_local Answer known[kMaxBlock / 32 + 1];
  Answer& answer = known[block / 32];
  if (answer.kernel != kernel || answer.device != device.device_id) {
    const DeviceGuard guard(device.device_id);
    int blocks = 0;
    RuntimeDeviceCheck(::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block, 0));
    answer = {kernel, device.device_id, blocks};
  }
  return answer.blocks;
}

}  // namespace details

/// How many rows further the row lies that is begun about when this one is done: as many as the GPU works on at a time,
/// when `kernel` is launched as `spread` and `kept` say, on rows of `vectors` vectors in each of `inputs` tensors. What
/// is returned is `rows`, behind all of them, where fetching ahead gains nothing: where there are so few rows or they
/// are short, and where many of them have an SM to themselves (the SMs get out of step then, and always some read).
template <typename... P>
std::int64_t ahead(void (*kernel)(P...), const Spread& spread, const Kept& kept, std::int64_t rows,
                   std::int64_t vectors, int inputs, DLDevice device) {
  using namespace details;
  constexpr int kFewestThreads = 128, kLongRun = 8;
  if (spread.threads < kFewestThreads) return rows;
  int sms = 0;
  RuntimeDeviceCheck(::cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  if (rows <= sms) return rows;
  const bool alone = vectors * 16 * inputs > kFetched;  // on its SM
  const void* const address = reinterpret_cast<const void*>(kernel);
  const std::int64_t at_a_time =
      kept.chunks > 0 ? sms : std::int64_t{sms} * blocks_per_sm(address, spread.block, device);
  return rows <= at_a_time || (alone && rows > kLongRun * at_a_time) ? rows : at_a_time;
}

}  // namespace host::row

namespace device::row {

/// A thread's row, and its number among the threads of that row. The row may lie behind the last one.
struct Place {
  std::int64_t row;
  int lane;
};

/// Where this thread works when `threads` threads share a row, in a grid that `host::row::spread` laid out.
KJIT_DEVICE Place place(int threads) {
  const int thread = static_cast<int>(threadIdx.x);
  if (threads > static_cast<int>(kWarpThreads)) return {std::int64_t{blockIdx.x}, thread};
  const int shift = __ffs(threads) - 1;  // a power of two
  return {std::int64_t{blockIdx.x} * (blockDim.x >> shift) + (thread >> shift), thread & (threads - 1)};
}

namespace details {

/// What a load or store of so many bytes moves.
template <std::size_t kBytes>
using Word = std::conditional_t<
    kBytes % 16 == 0, uint4,
    std::conditional_t<
        kBytes == 8, uint2,
        std::conditional_t<kBytes == 1, unsigned char, std::conditional_t<kBytes == 2, unsigned short, unsigned>>>>;

/// Reads what the SM's cache has no use for. `__ldcs` would still let it take the place of something else there.
template <typename Load>
KJIT_DEVICE Load load_past_cache(const Load* from) {
  return __ldcs(from);
}
#if !KJIT_SIM
KJIT_DEVICE uint4 load_past_cache(const uint4* from) {
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}
#endif

}  // namespace details

/// Reads the vector from `data[index]` on, aligned. Where `kStreaming`, it takes no place in the SM's cache: for what
/// is read once, beside something that is read again for every row.
template <bool kStreaming = false, typename T, std::size_t N>
KJIT_DEVICE void load(AlignedVector<T, N>& vector, const T* data, std::int64_t index) {
  if constexpr (kStreaming) {
    using namespace details;
    using Load = Word<sizeof(T) * N>;
    Load words[sizeof(T) * N / sizeof(Load)];
#pragma unroll
    for (std::size_t i = 0; i < sizeof(T) * N / sizeof(Load); ++i) {
      words[i] = load_past_cache(reinterpret_cast<const Load*>(data + index) + i);
    }
    std::memcpy(vector.data(), words, sizeof(words));
  } else {
    vector.load(data + index);
  }
}

/// The same, and zeros where `data` is null.
template <bool kStreaming = false, typename T, std::size_t N>
KJIT_DEVICE void load_or_zero(AlignedVector<T, N>& vector, const T* data, std::int64_t index) {
  if (data == nullptr) {
    vector.fill(T{});
  } else {
    load<kStreaming>(vector, data, index);
  }
}

namespace details {

/// Four words that lie `kFirst` words and `bits` bits further than the first.
template <int kFirst>
KJIT_DEVICE void shift(unsigned (&to)[4], const unsigned (&words)[8], unsigned bits) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __funnelshift_r(words[kFirst + i], words[kFirst + i + 1], bits);
}

}  // namespace details

/// Reads the elements from `data[index]` on, wherever they lie in an array of `size` elements; zeros where `data` is
/// null. Fast where all threads of a warp are equally far from an aligned address.
template <typename T, std::size_t N>
KJIT_DEVICE void load_unaligned(AlignedVector<T, N>& vector, const T* data, std::int64_t index, std::int64_t size) {
  if (data == nullptr) return vector.fill(T{});
  if constexpr (sizeof(T) * N == 16) {
    // Two aligned vectors have all of the elements between them.
    const unsigned bytes = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(data + index)) % 16;
    const std::int64_t before = bytes / sizeof(T);
    if (bytes == 0) return vector.load(data + index);
    if (index >= before && index - before + static_cast<std::int64_t>(2 * N) <= size) {
      AlignedVector<T, N> two[2];
      two[0].load(data + index - before);
      two[1].load(data + index - before, 1);
      using namespace details;
      unsigned words[8], wanted[4];
      std::memcpy(words, &two, sizeof(words));
      const unsigned bits = sizeof(T) % 4 == 0 ? 0 : bytes % 4 * 8;
      switch (bytes / 4) {  // the same in all threads of a row
        case 0:
          shift<0>(wanted, words, bits);
          break;
        case 1:
          shift<1>(wanted, words, bits);
          break;
        case 2:
          shift<2>(wanted, words, bits);
          break;
        default:
          shift<3>(wanted, words, bits);
      }
      std::memcpy(vector.data(), wanted, sizeof(vector));
      return;
    }
  }
#pragma unroll
  for (std::size_t i = 0; i < N; ++i) vector[i] = data[index + static_cast<std::int64_t>(i)];
}

/// Writes a vector to where `to` points, aligned, and lets it be the first to leave the caches (`st.global.cs`): for
/// what is not read again soon.
template <typename T, std::size_t N>
KJIT_DEVICE void store_streaming(const AlignedVector<T, N>& vector, T* to) {
  constexpr std::size_t kBytes = sizeof(T) * N;
  using namespace details;
  using Store = Word<kBytes>;
  Store words[kBytes / sizeof(Store)];
  std::memcpy(words, vector.data(), kBytes);
#pragma unroll
  for (std::size_t i = 0; i < kBytes / sizeof(Store); ++i) __stcs(reinterpret_cast<Store*>(to) + i, words[i]);
}

/// Lets the beginning of another row, `size` elements from `row[offset]` on, be read into the GPU's L2 cache while this
/// row is worked on: `host::row::kFetched` bytes at most, of the rows of `inputs` tensors. All threads of this row
/// call, after their last read, from which it would take the memory's time. Nothing where `row` is null.
template <typename T>
KJIT_DEVICE void fetch_ahead(const T* row, std::int64_t offset, std::int64_t size, int inputs, int lane, int threads) {
#if !KJIT_SIM
  if (row == nullptr) return;
  constexpr int kLine = 128;
  const std::int64_t most = host::row::kFetched / inputs;
  const std::int64_t bytes = size * static_cast<std::int64_t>(sizeof(T));
  const int end = static_cast<int>(bytes < most ? bytes : most);
  const char* const first = reinterpret_cast<const char*>(row + offset);
  for (int at = lane * kLine; at < end; at += threads * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(first + at));
  }
#endif
}

namespace details {

/// This thread's place number `slot` in dynamic shared memory; no other thread uses it.
KJIT_DEVICE unsigned char* slot_of(int slot) {
#if KJIT_SIM
  auto* const shared = static_cast<unsigned char*>(::kjit_sim::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char kjit_row_slots[];
  auto* const shared = &kjit_row_slots[0];
#endif
  return shared + std::size_t{16} * (static_cast<unsigned>(slot) * blockDim.x + threadIdx.x);
}

}  // namespace details

/// Keeps a vector in dynamic shared memory, where `take` gets it from, in the same thread. Slots count from 0, and
/// `host::row::keep` makes room for `chunks * parts * inputs` of them.
template <typename T, std::size_t N>
KJIT_DEVICE void put(const AlignedVector<T, N>& vector, int slot) {
  using namespace details;
  vector.store(slot_of(slot));
}
template <typename T, std::size_t N>
KJIT_DEVICE void take(AlignedVector<T, N>& vector, int slot) {
  using namespace details;
  vector.load(slot_of(slot));
}

namespace details {

template <typename S, typename Combine>
KJIT_DEVICE S reduce(S value, S neutral, int threads, Combine combine) {
  constexpr int kWarp = static_cast<int>(kWarpThreads);
  for (int offset = (threads < kWarp ? threads : kWarp) / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  if (threads <= kWarp) return value;

  __shared__ S of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __syncthreads();  // what an earlier call has put there is read
  if (lane == 0) of_warp[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  value = lane < threads / kWarp ? of_warp[lane] : neutral;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

}  // namespace details

/// The sum of `value` over the threads that share a row, in all of them, and the same bit by bit. `S` is float, double
/// or an integer of 32 or 64 bits. All threads of the block call, those whose row lies behind the last one too.
template <typename S>
KJIT_DEVICE S reduce_sum(S value, int threads) {
  return details::reduce(value, S{}, threads, [](S a, S b) { return a + b; });
}

/// The maximum of `value` in the same way; it is at least `smallest`, also where all values are NaN.
template <typename S>
KJIT_DEVICE S reduce_max(S value, S smallest, int threads) {
  return details::reduce(value, smallest, threads, [](S a, S b) { return a < b ? b : a; });
}

}  // namespace device::row

}  // namespace kjit
