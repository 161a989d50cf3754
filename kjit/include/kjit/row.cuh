// Kernels that share every row of a tensor among a few threads: lanes of a warp where rows are short, else a block, or
// a cluster of blocks where one cannot hold the row (from sm_90 on).
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
#include <kjit/mbarrier.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit {

namespace host::row {

/// Threads of the largest block that `spread` asks for.
inline constexpr int kMaxBlock = 1024;

/// Blocks of the largest cluster that shares a row: what every GPU with clusters can run, or one, where the unit is
/// compiled for others.
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
inline constexpr int kMaxCluster = 8;
#else
inline constexpr int kMaxCluster = 1;
#endif

namespace details {

/// Whether the GPU's L2 cache can be told what to keep until it is read.
inline constexpr bool kCanStay = kMaxCluster > 1;

}  // namespace details

/// Whether `put_columns` puts columns into shared memory while other things are done: from sm_80 on.
inline constexpr bool kAsyncColumns = KJIT_CUDA_ARCH >= 800;

/// How rows are spread over a GPU.
struct Spread {
  int threads;        // that share a row: a power of two up to 32, or those of a cluster
  int block;          // threads of a block
  std::int64_t grid;  // blocks, side by side in x
  int cluster;        // blocks that share a row, side by side in y
};

namespace details {

inline constexpr std::int64_t kFewBlocks = 64;  // half of a large GPU, so that all clusters find a place

}  // namespace details

/// Whether a cluster should share each of `rows` rows of `vectors` vectors, though a block could hold one: where they
/// are so few that most of the GPU is idle, and so long that it takes less time to exchange sums than to read them.
constexpr bool worth_sharing(std::int64_t rows, std::int64_t vectors) {
  using namespace details;
  constexpr std::int64_t kLong = 1024;
  return kMaxCluster > 1 && vectors >= kLong && rows <= kFewBlocks / 2;
}

/// Spreads `rows` rows of `vectors` vectors each, such that a thread has at most `parts` vectors of its row. Where a
/// block of `max_block` threads, a multiple of 32, cannot hold the row so, a cluster of up to `max_cluster` shares it,
/// a power of two; where that cannot either, a block has it, and a thread more. Of short rows a thread has at most two
/// vectors, and of few rows fewer than `parts`: most of the GPU is idle then, and the more threads a row has, the
/// sooner it is done. A cluster shares those that are `worth_sharing`, too.
inline Spread spread(std::int64_t rows, std::int64_t vectors, int parts, int max_block = kMaxBlock,
                     int max_cluster = 1) {
  using namespace details;
  constexpr int kSmallBlock = 64;  // threads: the fewer rows a block has, the sooner the SM has room for others
  constexpr std::int64_t kShort = 64, kMedium = 256, kFew = 65536;
  const std::int64_t held = std::int64_t{parts} * max_block;  // by a block
  int cluster = 1;
  if (vectors <= max_cluster * held && (vectors > held || worth_sharing(rows, vectors))) {
    const auto gains = [&](int blocks) { return blocks * rows <= kFewBlocks && vectors >= blocks * kMedium; };
    while (vectors > cluster * held || (cluster < max_cluster && gains(2 * cluster))) cluster *= 2;
  }
  const bool few = rows * vectors <= kFew || (cluster > 1 && cluster * rows <= kFewBlocks);
  const int most = few && kShort < vectors && vectors <= kMedium ? 1 : few || vectors <= kShort ? 2 : parts;
  const std::int64_t wanted = div_ceil(vectors, std::int64_t{most < parts ? most : parts});
  if (wanted <= 32) {
    int threads = 1;
    while (threads < wanted) threads *= 2;
    return {threads, kSmallBlock, div_ceil(rows, std::int64_t{kSmallBlock / threads}), 1};
  }
  const std::int64_t share = div_ceil(wanted, std::int64_t{cluster});
  const int block = static_cast<int>(share < max_block ? div_ceil(share, std::int64_t{32}) * 32 : max_block);
  return {cluster * block, block, rows, cluster};
}

namespace details {

/// What the blocks of a cluster tell each other while they reduce a row, at the end of each block's dynamic shared
/// memory. Two reductions in turn have places of their own: a block may be ahead of another by one.
struct Exchange {
  std::uint64_t complete[2];  // barriers: the values of all warps of the cluster have come
  std::uint64_t values[2][kMaxCluster * kMaxBlock / 32];
  unsigned turns[kMaxBlock / 32];  // how many reductions each warp has done
};

}  // namespace details

/// How the launch of a kernel is configured whose rows are spread so: blocks that share a row are a cluster.
inline LaunchKernel::Config config(const Spread& spread) {
  if (spread.cluster == 1) return {};
  return {.cluster_dim = dim3(1, static_cast<unsigned>(spread.cluster))};
}

/// What of a row stays in a block's dynamic shared memory.
struct Kept {
  int chunks;         // vectors of all threads, `parts` of them each; the first ones of the row
  std::size_t bytes;  // of shared memory, with what the blocks of a cluster need to reduce a row
};

/// How much of a row of `vectors` vectors fits into shared memory, when the `parts` vectors of each thread that come
/// last stay in registers. `inputs` tensors have such rows. Where all of a row stays in registers, there is room for
/// `columns` vectors of each thread that `put_columns` puts there, of columns beside the second half of its vectors.
inline Kept keep(const Spread& spread, std::int64_t vectors, int parts, int inputs, DLDevice device, int columns = 0) {
  constexpr int kReserved = 2048;  // for static arrays, such as those of `reduce_sum`, and the system
  using namespace details;
  const std::size_t exchange = spread.cluster > 1 ? sizeof(Exchange) : 0;
  const std::int64_t chunks = div_ceil(vectors, std::int64_t{spread.threads} * parts);
  const std::size_t slot = std::size_t{16} * static_cast<std::size_t>(spread.block);
  if (chunks <= 1) {
    const bool has_half = 2 * vectors > std::int64_t{spread.threads} * parts;
    return {0, (has_half ? slot * static_cast<std::size_t>(columns) : 0) + exchange};
  }
  int most = 0;
  RuntimeDeviceCheck(::cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.device_id));
  const std::size_t chunk = slot * static_cast<std::size_t>(inputs * parts);
  const auto fit = static_cast<std::int64_t>((static_cast<std::size_t>(most - kReserved) - exchange) / chunk);
  const int kept = static_cast<int>(fit < chunks - 1 ? fit : chunks - 1);
  return {kept, chunk * static_cast<std::size_t>(kept) + exchange};
}

/// Which row a block asks for while it writes its own, so that the memory is never without reads.
struct Ahead {
  std::int64_t rows;  // how many rows further it lies
  int bytes;          // of its beginning, that each warp asks for in each of the inputs
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

/// What is fetched ahead when `kernel` is launched as `spread` and `kept` say, on `rows` rows of `vectors` vectors of
/// each of `inputs` tensors: of the row that is begun about when this one is done, as many rows further as the GPU
/// works on at a time, 64 KiB for each block. Twice that where many rows follow each other on an SM, unless it `stays`:
/// the kernel fetches whole vectors, which stay in the cache until they are read. No row has one ahead, as `rows` says
/// then, where that gains nothing: where there are so few rows or they are short, and where many of them are so long
/// that `kept` has a part (the SMs get out of step then, and always some read).
template <typename... P>
Ahead ahead(void (*kernel)(P...), const Spread& spread, const Kept& kept, std::int64_t rows, std::int64_t vectors,
            int inputs, bool stays, DLDevice device) {
  using namespace details;
  constexpr int kFewestThreads = 128, kLongRun = 8, kBytes = 65536, kVec = 16;
  const Ahead none = {rows, 0};
  if (spread.threads < kFewestThreads) return none;
  int sms = 0;
  RuntimeDeviceCheck(::cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  if (spread.grid * spread.cluster <= sms) return none;
  const bool long_rows = kept.chunks > 0;
  const void* const address = reinterpret_cast<const void*>(kernel);
  const std::int64_t blocks = long_rows ? sms : std::int64_t{sms} * blocks_per_sm(address, spread.block, device);
  const std::int64_t at_a_time = blocks / spread.cluster;
  const bool long_run = rows > kLongRun * at_a_time;
  if (rows <= at_a_time || (long_rows && long_run)) return none;
  const bool twice = long_run && !(stays && kCanStay);
  const std::int64_t most = (twice ? 2 * kBytes : kBytes) / inputs * spread.cluster;
  const std::int64_t bytes = most < vectors * kVec ? most : vectors * kVec;
  constexpr int kOfWarp = 32 * kVec;  // what a warp reads at a time
  return {at_a_time, static_cast<int>(div_ceil(bytes, std::int64_t{spread.threads / 32 * kOfWarp})) * kOfWarp};
}

}  // namespace host::row

namespace device::row {

namespace details {

/// `value`, combined over the lanes of a warp.
template <typename S, typename Combine>
KJIT_DEVICE S reduce_in_warp(S value, Combine combine) {
#pragma unroll
  for (unsigned offset = kWarpThreads / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM  // which has no clusters

using namespace host::row::details;

/// Where block `block` of the cluster has what this one has at `here` in shared memory.
KJIT_DEVICE std::uint32_t of_block(unsigned block, void* here) {
  using namespace ptx;
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to_shared(here)), "r"(block));
  return there;
}

/// Writes `value` to where block `block` has `here`, and its bytes are counted by the barrier `complete` there.
template <typename S>
KJIT_DEVICE void store_in_block(unsigned block, S* here, S value, std::uint64_t* complete) {
  static_assert(sizeof(S) == 4 || sizeof(S) == 8);
  const std::uint32_t to = of_block(block, here), counter = of_block(block, complete);
  if constexpr (sizeof(S) == 4) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(bits),
                 "r"(counter)
                 : "memory");
  } else {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to), "l"(bits),
                 "r"(counter)
                 : "memory");
  }
}

/// Where this block learns the values of the others of its cluster.
KJIT_DEVICE Exchange& exchange() {
  extern __shared__ __align__(16) unsigned char kjit_row_slots[];
  unsigned bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return *reinterpret_cast<Exchange*>(&kjit_row_slots[bytes - sizeof(Exchange)]);
}

/// Lets the other blocks of the cluster know that this one is there; `await_cluster` waits until they are.
KJIT_DEVICE void enter_cluster() {
  using namespace ptx;
  Exchange& here = exchange();
  if (threadIdx.x % kWarpThreads == 0) here.turns[threadIdx.x / kWarpThreads] = 0;
  if (threadIdx.x == 0) {
    for (std::uint64_t& complete : here.complete) mbar_init(&complete, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  // Relaxed: an arrival that releases would let each warp wait for its reads, and empty the SM's cache.
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// `value`, combined over all threads of the cluster: the same in each of them, bit by bit. Every warp tells every
/// block what it has, and nobody waits for more than that: a barrier of the cluster would wait for all memory.
template <typename S, typename Combine>
KJIT_DEVICE S reduce_in_cluster(S value, S neutral, Combine combine) {
  using namespace ptx;
  constexpr unsigned kWarp = kWarpThreads;
  const unsigned warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const unsigned blocks = gridDim.y;
  Exchange& here = exchange();
  const unsigned turn = here.turns[warp];
  __syncwarp();
  if (lane == 0) here.turns[warp] = turn + 1;
  S* const values = reinterpret_cast<S*>(here.values[turn % 2]);
  std::uint64_t* const complete = &here.complete[turn % 2];
  if (threadIdx.x == 0) mbar_arrive_expect_tx(complete, blocks * warps * static_cast<unsigned>(sizeof(S)));

  value = reduce_in_warp(value, combine);
  if (lane < blocks) store_in_block(lane, &values[blockIdx.y * kWarp + warp], value, complete);
  mbar_wait_parity(complete, turn / 2 % 2);
  value = neutral;
#pragma unroll 1
  for (unsigned i = lane; lane < warps && i < blocks * kWarp; i += 2 * kWarp) {  // the number of blocks is even
    value = combine(value, combine(values[i], values[i + kWarp]));
  }
  return reduce_in_warp(value, combine);
}

#endif

}  // namespace details

/// A thread's row, and its number among the threads of that row. The row may lie behind the last one.
struct Place {
  std::int64_t row;
  int lane;
};

/// Where this thread works when `threads` threads share a row, in a grid that `host::row::spread` laid out. Every
/// thread calls, once. A kernel whose rows are never shared by a cluster is smaller without `kClusters`.
template <bool kClusters = true>
KJIT_DEVICE Place place(int threads) {
  const int thread = static_cast<int>(threadIdx.x);
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM  // which has no clusters
  if (kClusters && threads > static_cast<int>(blockDim.x)) {
    using namespace details;
    enter_cluster();
    return {std::int64_t{blockIdx.x}, static_cast<int>(blockIdx.y * blockDim.x) + thread};
  }
#endif
  if (threads > static_cast<int>(kWarpThreads)) return {std::int64_t{blockIdx.x}, thread};
  const int shift = __ffs(threads) - 1;  // a power of two
  return {std::int64_t{blockIdx.x} * (blockDim.x >> shift) + (thread >> shift), thread & (threads - 1)};
}

/// Waits until the other blocks that share this one's row have come, so that sums can be exchanged. In a kernel whose
/// rows clusters may share, every thread calls it, once, between `place` and its first read: it empties the SM's cache,
/// and takes time from reads that are under way.
template <bool kClusters = true>
KJIT_DEVICE void await_cluster(int threads) {
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM  // which has no clusters
  if (kClusters && threads > static_cast<int>(blockDim.x)) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

namespace details {

/// What a load or store of so many bytes moves.
template <std::size_t kBytes>
using Word = std::conditional_t<
    kBytes % 16 == 0, uint4,
    std::conditional_t<
        kBytes == 8, uint2,
        std::conditional_t<kBytes == 1, unsigned char, std::conditional_t<kBytes == 2, unsigned short, unsigned>>>>;

/// Whether what `fetch_ahead` asks for of vectors of `N` elements stays in the L2 cache until it is read.
template <typename T, std::size_t N>
inline constexpr bool kStays = host::row::details::kCanStay && sizeof(T) * N % 16 == 0;

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
/// The same with a policy of the L2 cache.
KJIT_DEVICE uint4 load_past_cache(const uint4* from, std::uint64_t policy) {
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from), "l"(policy));
  return words;
}
#endif

}  // namespace details

/// How much of each row was asked for by `fetch_ahead<N>`: the first `bytes` for each warp of the `threads` threads.
template <int N = 1>
class Fetched {
 public:
  Fetched() = default;
  explicit __device__ Fetched(int bytes, int threads) : bytes_(threads / static_cast<int>(kWarpThreads) * bytes) {
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
    if (N > 1) asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy_));
#endif
  }

  /// Whether that includes byte `at` of a row.
  template <std::integral Index>
  __device__ bool has(Index at) const {
    return at < bytes_;
  }
  /// The L2 cache's policy to read it with, which lets it go.
  [[nodiscard]] __device__ std::uint64_t policy() const { return policy_; }

 private:
  int bytes_ = 0;
  std::uint64_t policy_ = 0;
};

/// Reads the vector from `data[index]` on, aligned. Where `kStreaming`, it takes no place in the SM's cache: for what
/// is read once, beside something that is read again for every row. `fetched` says what of `data` was asked for by
/// `fetch_ahead<N>`, which is read in that way only.
template <bool kStreaming = false, typename T, std::size_t N, std::integral Index, int kFetched = 1>
KJIT_DEVICE void load(AlignedVector<T, N>& vector, const T* data, Index index, Fetched<kFetched> fetched = {}) {
  static_assert(kStreaming || kFetched == 1);
  if constexpr (kStreaming) {
    using namespace details;
    using Load = Word<sizeof(T) * N>;
    const Load* const from = reinterpret_cast<const Load*>(data + index);
    Load words[sizeof(T) * N / sizeof(Load)];
#pragma unroll
    for (std::size_t i = 0; i < sizeof(T) * N / sizeof(Load); ++i) {
      if constexpr (kStays<T, N> && kFetched == N) {
        const bool has_come = fetched.has(index * static_cast<Index>(sizeof(T)) + static_cast<Index>(i * sizeof(Load)));
        words[i] = has_come ? load_past_cache(from + i, fetched.policy()) : load_past_cache(from + i);
      } else {
        words[i] = load_past_cache(from + i);
      }
    }
    std::memcpy(vector.data(), words, sizeof(words));
  } else {
    vector.load(data + index);
  }
}

/// The same, and zeros where `data` is null.
template <bool kStreaming = false, typename T, std::size_t N, std::integral Index, int kFetched = 1>
KJIT_DEVICE void load_or_zero(AlignedVector<T, N>& vector, const T* data, Index index, Fetched<kFetched> fetched = {}) {
  if (data == nullptr) {
    vector.fill(T{});
  } else {
    load<kStreaming>(vector, data, index, fetched);
  }
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

/// A tensor of one row, read beside rows whose vectors of `N` elements start `head` elements behind the first. Where
/// not `kAligned`, its own elements may lie anywhere: a vector is cut out of the two aligned ones that it lies in, so
/// that up to `N - 1` elements behind it have to be there too (those ahead of it are: memory is allocated in aligned
/// pieces). Zeros where `data` is null, if `kOptional`. Where `kEven`, no vector behind the last one is asked for.
template <typename T, int N, bool kAligned, bool kOptional = false, bool kEven = false>
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

  /// Puts the vector from element `index` on into this thread's slot `slot` of shared memory; `await_columns` waits.
  template <typename Index>
  __device__ void put(int slot, Index index) const {
    static_assert(kAligned);
    using namespace details;
#if !KJIT_SIM
    if constexpr (host::row::kAsyncColumns && kBytes == 16) {
      if (!kOptional || data_ != nullptr) {
        const std::uint32_t to = ptx::to_shared(slot_of(slot));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(data_ + index) : "memory");
        return;
      }
    }
#endif
    AlignedVector<T, N> vector;
    load(vector, index);
    vector.store(slot_of(slot));
  }

  /// The vectors from the elements `first`, `first + step`, ... on, those that lie before `end`.
  template <std::size_t kCount, typename Index>
  __device__ void load(AlignedVector<T, N> (&vectors)[kCount], Index first, Index step, Index end) const {
#pragma unroll
    for (std::size_t i = 0; i < kCount; ++i) {
      const Index at = first + static_cast<Index>(i) * step;
      if (!kEven && at >= end) break;
      load(vectors[i], at);
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

/// Lets the beginning of a row, `size` elements from `row[offset]` on, be read into the GPU's L2 cache: `bytes` for
/// each warp of the `threads` threads, as far as the row has so many. All threads of a row call: for another row after
/// their last read, from which it would take the memory's time; for their own before `PDLBegin`, where nothing may be
/// read, but asked for. Nothing where `row` is null or `bytes` is 0. With `N`, it stays in the cache until it is read
/// there, which has to be by `load` of vectors of `N` elements that is told how much was fetched.
template <int N = 1, typename T>
KJIT_DEVICE void fetch_ahead(const T* row, std::int64_t offset, std::int64_t size, int bytes, int lane, int threads) {
#if !KJIT_SIM
  if (row == nullptr || bytes == 0) return;
  const char* const first = reinterpret_cast<const char*>(row + offset);
  const std::int64_t end = size * static_cast<std::int64_t>(sizeof(T));
  constexpr int kWarp = static_cast<int>(kWarpThreads);
#if KJIT_ARCH_HOPPER_OR_GREATER
  using namespace details;
  constexpr std::uintptr_t kVec = 16;
  const int at = static_cast<int>(static_cast<unsigned>(lane) / kWarpThreads) * bytes;  // of whole vectors
  if (lane % kWarp != 0 || at + bytes > end) return;
  const std::uintptr_t from = (reinterpret_cast<std::uintptr_t>(first) & ~(kVec - 1)) + static_cast<unsigned>(at);
  if constexpr (kStays<T, N> && N > 1) {
    std::uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(from), "r"(bytes), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
  }
#else
  constexpr int kLine = 128;
  for (int at = lane * kLine; at < threads / kWarp * bytes && at < end; at += threads * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(first + at));
  }
#endif
#endif
}

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

/// Puts `kCount` vectors of a column, from element `first` on, each `step` elements further, as far as they lie before
/// `end`, into the slots from `slot` on, where `take` finds them after `await_columns`: meanwhile other things are
/// done.
template <int kCount, typename T, int N, bool kOptional, bool kEven, typename Index>
KJIT_DEVICE void put_columns(const Column<T, N, true, kOptional, kEven>& column, int slot, Index first, Index step,
                             Index end) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const Index at = first + static_cast<Index>(i) * step;
    if (!kEven && at >= end) break;
    column.put(slot + i, at);
  }
}

/// Waits until the columns that this thread has put into its slots are there.
KJIT_DEVICE void await_columns() {
#if !KJIT_SIM
  if constexpr (host::row::kAsyncColumns) asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

namespace details {

template <bool kClusters, typename S, typename Combine>
KJIT_DEVICE S reduce(S value, S neutral, int threads, Combine combine) {
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM  // which has no clusters
  if (kClusters && threads > static_cast<int>(blockDim.x)) return reduce_in_cluster(value, neutral, combine);
#endif
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
  return reduce_in_warp(lane < threads / kWarp ? of_warp[lane] : neutral, combine);
}

}  // namespace details

/// The sum of `value` over the threads that share a row, in all of them, and the same bit by bit. `S` is float, double
/// or an integer of 32 or 64 bits. All threads of the block call, those whose row lies behind the last one too.
template <bool kClusters = true, typename S>
KJIT_DEVICE S reduce_sum(S value, int threads) {
  return details::reduce<kClusters>(value, S{}, threads, [](S a, S b) { return a + b; });
}

/// The maximum of `value` in the same way; it is at least `smallest`, also where all values are NaN.
template <bool kClusters = true, typename S>
KJIT_DEVICE S reduce_max(S value, S smallest, int threads) {
  return details::reduce<kClusters>(value, smallest, threads, [](S a, S b) { return a < b ? b : a; });
}

}  // namespace device::row

}  // namespace kjit
