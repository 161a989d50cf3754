// Kernels that share every row of a tensor among a few threads: lanes of a warp where rows are short, else a block.
//
//   const row::Spread spread = row::spread(num_rows, vectors, 4);   // host: at most 4 vectors a thread
//   LaunchKernel(spread.grid, spread.block, device)(kernel, spread.threads, ...);
//   ...
//   const auto [row, lane] = device::row::place(threads);            // in the kernel: which row, and which part of it
//   const float total = device::row::reduce_sum(x, threads);         // the same in all threads of the row
//
// What a block's registers cannot hold of a long row, `put` keeps in shared memory; `host::row::keep` says how much.
// While a row is written, `fetch_ahead` lets the memory already be read that the next block will need;
// `host::row::ahead` says which.
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
  constexpr int kSmallBlock = 64;  // threads: the fewer rows a block has, the sooner the SM has room for others
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

/// Which row a block asks for while it writes its own, so that the memory is never without reads.
struct Ahead {
  std::int64_t rows;  // how many rows further it lies
  int bytes;          // of its beginning, in each of the inputs
};

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

/// What is fetched ahead when `kernel` is launched as `spread` and `kept` say, on `rows` rows of each of `inputs`
/// tensors: of the row that is begun about when this one is done, as many rows further as the GPU works on at a time,
/// 64 KiB, and twice that where many rows follow each other on an SM. No row has one ahead, as `rows` says then, where
/// that gains nothing: where there are so few rows or they are short, and where many of them are so long that `kept`
/// has a part (the SMs get out of step then, and always some read).
template <typename... P>
Ahead ahead(void (*kernel)(P...), const Spread& spread, const Kept& kept, std::int64_t rows, int inputs,
            DLDevice device) {
  using namespace details;
  constexpr int kFewestThreads = 128, kLongRun = 8, kBytes = 65536;
  const Ahead none = {rows, 0};
  if (spread.threads < kFewestThreads) return none;
  int sms = 0;
  RuntimeDeviceCheck(::cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  if (rows <= sms) return none;
  const bool long_rows = kept.chunks > 0;
  const void* const address = reinterpret_cast<const void*>(kernel);
  const std::int64_t at_a_time = long_rows ? sms : std::int64_t{sms} * blocks_per_sm(address, spread.block, device);
  const bool long_run = rows > kLongRun * at_a_time;
  if (rows <= at_a_time || (long_rows && long_run)) return none;
  return {at_a_time, (long_run ? 2 * kBytes : kBytes) / inputs};
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

/// A tensor of one row, read beside rows whose vectors of `N` elements start `head` elements behind the first. Where
/// not `kAligned`, its own elements may lie anywhere: a vector is cut out of the two aligned ones that it lies in, so
/// that up to `N - 1` elements behind it have to be there too (those ahead of it are: memory is allocated in aligned
/// pieces). Zeros where `data` is null, if `kOptional`.
template <typename T, int N, bool kAligned, bool kOptional = false>
class Column {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * N, kWords = kBytes / 4;
  static constexpr bool kCut = !kAligned && N > 1 && kWords > 0 && kBytes <= 16;

 public:
  explicit __device__ Column(const T* data, int head) : data_(data) {
    if constexpr (kCut) {
      const unsigned bytes = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(data + head)) % kBytes;
      if (!kOptional || data != nullptr) data_ -= bytes / sizeof(T);
      second_ = bytes == 0 ? 0 : 1;
      by_two_words_ = (bytes & 8) != 0;
      by_a_word_ = (bytes & 4) != 0;
      by_bits_ = bytes % 4 * 8;
    }
  }

  /// The vector from element `index` on, which lies a multiple of `N` elements behind `head`.
  template <typename Index>
  __device__ void load(AlignedVector<T, N>& vector, Index index) const {
    if (kOptional && data_ == nullptr) return vector.fill(T{});
    if constexpr (kAligned) {
      vector.load(data_ + index);
    } else if constexpr (kCut) {
      AlignedVector<T, N> two[2];
      two[0].load(data_ + index);
      two[1].load(data_ + index, second_);
      // No branch, and no index that is known at run time only: both would cost more than all the words here.
      unsigned words[2 * kWords];
      std::memcpy(words, &two, sizeof(words));
      if constexpr (kWords == 4) {
#pragma unroll
        for (int i = 0; i < kWords + 2; ++i) words[i] = by_two_words_ ? words[i + 2] : words[i];
      }
      if constexpr (kWords >= 2) {
#pragma unroll
        for (int i = 0; i < kWords + 1; ++i) words[i] = by_a_word_ ? words[i + 1] : words[i];
      }
      if constexpr (sizeof(T) < 4) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], by_bits_);
      }
      std::memcpy(vector.data(), words, sizeof(vector));
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) vector[i] = data_[index + i];
    }
  }

 private:
  const T* data_;   // where vectors are cut, moved to where the aligned ones lie that they start in
  int second_ = 0;  // which aligned vector has the elements behind those of the first one
  bool by_two_words_ = false, by_a_word_ = false;
  unsigned by_bits_ = 0;
};

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
/// row is worked on: at most `most` bytes. All threads of this row call, after their last read, from which it would
/// take the memory's time. Nothing where `row` is null.
template <typename T>
KJIT_DEVICE void fetch_ahead(const T* row, std::int64_t offset, std::int64_t size, int most, int lane, int threads) {
#if !KJIT_SIM
  if (row == nullptr) return;
  const std::int64_t bytes = size * static_cast<std::int64_t>(sizeof(T));
  const int end = static_cast<int>(bytes < most ? bytes : most);
  const char* const first = reinterpret_cast<const char*>(row + offset);
#if KJIT_ARCH_HOPPER_OR_GREATER
  constexpr int kVec = 16, kWarp = static_cast<int>(kWarpThreads);
  // A warp asks once, for its share in one piece, which has to be of whole vectors.
  const int each = end / (threads / kWarp) / kVec * kVec;
  const char* const from = first - reinterpret_cast<std::uintptr_t>(first) % kVec + lane / kWarp * each;
  if (lane % kWarp == 0 && each > 0) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(each) : "memory");
  }
#else
  constexpr int kLine = 128;
  for (int at = lane * kLine; at < end; at += threads * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(first + at));
  }
#endif
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
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    if (offset < threads) value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
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
