// Kernels that share every row of a tensor among a few threads: lanes of a warp where rows are short, else a block, or
// a cluster of blocks where one cannot hold the row (from sm_90 on).
//
//   const row::Spread spread = row::spread(num_rows, vectors, 4);   // host: at most 4 vectors a thread
//   LaunchKernel(spread.grid, spread.block, device)(kernel, spread.threads, ...);
//   ...
//   const auto [row, lane] = device::row::place(threads);            // in the kernel: which row, and which part of it
//   const float total = device::row::reduce_sum(x, threads);         // the same in all threads of the row
//
// How rows are read and written is in kjit/row_memory.cuh; how much of a long row a block's shared memory keeps, and
// what is read ahead of its turn, `host::row::keep` and `host::row::ahead` say here.
//
// How many threads a row gets is known at run time only, so that one kernel serves rows of every length. Nearly free to
// compile.

#pragma once

#include <cuda_runtime_api.h>
#include <kjit/launch.h>
#include <kjit/utils.h>
#include <kjit/cluster.cuh>
#include <kjit/device.cuh>
#include <kjit/mbarrier.cuh>
#include <kjit/row_memory.cuh>

#include <cstddef>
#include <cstdint>

namespace kjit {

namespace host::row {

/// Threads of the largest block that `spread` asks for.
inline constexpr int kMaxBlock = 1024;

/// Blocks of the largest cluster that shares a row: what every GPU with clusters can run, or one, where the unit is
/// compiled for others.
inline constexpr int kMaxCluster = KJIT_ARCH_HOPPER_OR_GREATER ? 8 : 1;

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

/// Threads that share a row of `vectors` vectors where each holds up to `parts`: a power of two up to 32 lanes of a
/// warp, else whole warps.
constexpr std::int64_t threads_to_hold(std::int64_t vectors, int parts) {
  const std::int64_t least = div_ceil(vectors, std::int64_t{parts});
  if (least > 32) return div_ceil(least, std::int64_t{32}) * 32;
  std::int64_t lanes = 1;
  while (lanes < least) lanes *= 2;
  return lanes;
}

/// Whether a row of `vectors` vectors should have `more` of them for each thread instead of `parts`: where fewer
/// threads hold it so, and less than three quarters of what the others could hold would be taken.
constexpr bool fewer_threads(std::int64_t vectors, int parts, int more) {
  const std::int64_t threads = threads_to_hold(vectors, parts);
  return threads_to_hold(vectors, more) < threads && 4 * vectors < 3 * parts * threads;
}

/// Threads of the largest block that `spread` should ask for, where rows are so long that a thread has as many vectors
/// as its registers hold, and an SM room for `kMaxBlock` threads. Clusters of smaller blocks are faster for rows that
/// are not `aligned` (quarters where two of them hold a row, else halves), and for others where a block would have
/// three quarters of those threads or fewer, but more than half, and be alone on its SM. Of these, up to 640 threads
/// that have `parts` vectors each are fast as they are.
constexpr int largest_block(std::int64_t vectors, int parts, bool aligned) {
  constexpr int kHalf = kMaxBlock / 2, kQuarter = kMaxBlock / 4, kFastBlock = 640;
  if (!aligned) {
    if (vectors > std::int64_t{kMaxCluster} * kHalf * parts || kMaxCluster == 1) return kMaxBlock;
    return vectors <= std::int64_t{2} * kQuarter * parts ? kQuarter : kHalf;
  }
  std::int64_t blocks = 1;
  while (vectors > blocks * kMaxBlock * parts) blocks *= 2;
  const std::int64_t threads = threads_to_hold(div_ceil(vectors, blocks), parts);
  const bool is_fast = threads <= kFastBlock && vectors == blocks * threads * parts;
  const bool wastes = kHalf < threads && threads <= kHalf + kQuarter && !is_fast;
  return wastes && 2 * blocks <= kMaxCluster ? kHalf : kMaxBlock;
}

/// Spreads `rows` rows of `vectors` vectors each, such that a thread has at most `parts` vectors of its row. Where a
/// block of `max_block` threads, a multiple of 32, cannot hold the row so, a cluster of up to `max_cluster` shares it,
/// a power of two; where that cannot either, a block has it, and a thread more. A thread has at most three vectors
/// where fewer than `line_threads` could share a row, as more of a line of the cache is read in one go then, and of
/// few rows at most two: most of the GPU is idle, and the more threads a row has, the sooner it is done. A cluster
/// shares those that are `worth_sharing`, too.
inline Spread spread(std::int64_t rows, std::int64_t vectors, int parts, int max_block = kMaxBlock, int max_cluster = 1,
                     int line_threads = 8) {
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
  const int most = few && kShort < vectors && vectors <= kMedium ? 1 : few ? 2 : parts;
  const int each = most < parts ? most : parts;
  if (const std::int64_t lanes = threads_to_hold(vectors, each); lanes <= 32) {
    int threads = static_cast<int>(lanes);
    while (threads < line_threads && 3 * threads < vectors) threads *= 2;
    return {threads, kSmallBlock, div_ceil(rows, std::int64_t{kSmallBlock / threads}), 1};
  }
  const std::int64_t share = div_ceil(div_ceil(vectors, std::int64_t{each}), std::int64_t{cluster});
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

inline constexpr int kFetchedBytes = 65536;  // of a row, in all inputs, for each block that works on it
inline constexpr int kWholeBytes = 81920;    // what a block has of a row, at most, where all of that is fetched

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

/// Whether rows are long enough that `ahead` lets them be fetched, where there are enough of them.
inline bool worth_fetching(const Spread& spread) {
  return spread.threads >= 128;
}

/// How many of the `parts` vectors of each of its threads `ahead` lets a full block ask for, in each of `inputs`
/// tensors.
constexpr int fetched_parts(int parts, int inputs) {
  using namespace details;
  const int most = div_ceil(kFetchedBytes, inputs * kMaxBlock * 16);
  return most < parts ? most : parts;
}

/// What is fetched ahead when `kernel` is launched as `spread` and `kept` say, on `rows` rows of `vectors` vectors of
/// each of `inputs` tensors: of the row that is begun about when this one is done, as many rows further as the GPU
/// works on at a time, 64 KiB for each block, or 80 where it has no more. Twice 64 where many rows follow each other on
/// an SM, unless it `stays`: the kernel fetches whole vectors, which stay in the cache until they are read. No row has
/// one ahead, as `rows` says then, where that gains nothing: where there are so few rows or they are short, and where
/// many of them are so long that `kept` has a part (the SMs get out of step then, and always some read).
template <typename... P>
Ahead ahead(void (*kernel)(P...), const Spread& spread, const Kept& kept, std::int64_t rows, std::int64_t vectors,
            int inputs, bool stays, DLDevice device) {
  using namespace details;
  constexpr int kLongRun = 8, kVec = 16;
  const Ahead none = {rows, 0};
  if (!worth_fetching(spread)) return none;
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
  const std::int64_t most = (twice ? 2 * kFetchedBytes : kFetchedBytes) / inputs * spread.cluster;
  const std::int64_t all = vectors * kVec;
  const std::int64_t bytes = most < all && inputs * all > spread.cluster * std::int64_t{kWholeBytes} ? most : all;
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

using namespace host::row::details;

/// Where this block learns the values of the others of its cluster.
KJIT_DEVICE Exchange& exchange() {
  unsigned bytes;
#if KJIT_SIM
  bytes = static_cast<unsigned>(::kjit_sim::dynamic_shared_size());
#else
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
#endif
  return *reinterpret_cast<Exchange*>(dynamic_shared() + bytes - sizeof(Exchange));
}

/// Lets the other blocks of the cluster know that this one is there; `await_cluster` waits until they are.
KJIT_DEVICE void enter_cluster() {
  using namespace ptx;
  Exchange& here = exchange();
  if (threadIdx.x % kWarpThreads == 0) here.turns[threadIdx.x / kWarpThreads] = 0;
  if (threadIdx.x == 0) {
    for (std::uint64_t& complete : here.complete) mbar_init(&complete, 1);
    mbar_init_fence();
  }
  __syncwarp();
  cluster_arrive_relaxed();
}

/// Sends `value`, combined over the warp, to every block of the cluster. Says how many reductions were begun before.
template <typename S, typename Combine>
KJIT_DEVICE unsigned begin_in_cluster(S value, Combine combine) {
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
  if (lane < blocks) store_async(lane, &values[blockIdx.y * kWarp + warp], value, complete);
  return turn;
}

/// What all warps of the cluster have sent in that turn, combined: the same in each thread, bit by bit. Nobody waits
/// for more than that: a barrier of the cluster would wait for all memory.
template <typename S, typename Combine>
KJIT_DEVICE S finish_in_cluster(unsigned turn, S neutral, Combine combine) {
  constexpr unsigned kWarp = kWarpThreads;
  const unsigned warps = blockDim.x / kWarp, lane = threadIdx.x % kWarp, blocks = gridDim.y;
  Exchange& here = exchange();
  const S* const values = reinterpret_cast<const S*>(here.values[turn % 2]);
  ptx::mbar_wait_parity(&here.complete[turn % 2], turn / 2 % 2);
  S value = neutral;
#pragma unroll 1
  for (unsigned i = lane; lane < warps && i < blocks * kWarp; i += 2 * kWarp) {  // the number of blocks is even
    value = combine(value, combine(values[i], values[i + kWarp]));
  }
  return reduce_in_warp(value, combine);
}

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
  if constexpr (kClusters && host::row::kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) {
      using namespace details;
      enter_cluster();
      return {std::int64_t{blockIdx.x}, static_cast<int>(blockIdx.y * blockDim.x) + thread};
    }
  }
  if (threads > static_cast<int>(kWarpThreads)) return {std::int64_t{blockIdx.x}, thread};
  const int shift = __ffs(threads) - 1;  // a power of two
  return {std::int64_t{blockIdx.x} * (blockDim.x >> shift) + (thread >> shift), thread & (threads - 1)};
}

/// Waits until the other blocks that share this one's row have come, so that sums can be exchanged. In a kernel whose
/// rows clusters may share, every thread calls it, once, between `place` and its first read: it empties the SM's cache,
/// and takes time from reads that are under way.
template <bool kClusters = true>
KJIT_DEVICE void await_cluster(int threads) {
  if constexpr (kClusters && host::row::kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) ptx::cluster_wait();
  }
}

/// A reduction that is under way: what a thread has to remember of it.
template <typename S>
struct Pending {
  S value;
  unsigned turn;
};

namespace details {

template <bool kClusters, typename S, typename Combine>
KJIT_DEVICE Pending<S> begin(S value, int threads, Combine combine) {
  if constexpr (kClusters && host::row::kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) return {value, begin_in_cluster(value, combine)};
  }
  return {value, 0};
}

template <bool kClusters, typename S, typename Combine>
KJIT_DEVICE S finish(Pending<S> pending, S neutral, int threads, Combine combine) {
  if constexpr (kClusters && host::row::kMaxCluster > 1) {
    if (threads > static_cast<int>(blockDim.x)) return finish_in_cluster(pending.turn, neutral, combine);
  }
  constexpr int kWarp = static_cast<int>(kWarpThreads);
  S value = pending.value;
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

template <bool kClusters, typename S, typename Combine>
KJIT_DEVICE S reduce(S value, S neutral, int threads, Combine combine) {
  return finish<kClusters>(begin<kClusters>(value, threads, combine), neutral, threads, combine);
}

}  // namespace details

/// The first half of `reduce_sum`: tells the others that share the row of `value`. What a kernel does ahead of
/// `finish_sum`, which waits for theirs, costs no time; other reductions are not begun in between.
template <bool kClusters = true, typename S>
KJIT_DEVICE Pending<S> begin_sum(S value, int threads) {
  return details::begin<kClusters>(value, threads, [](S a, S b) { return a + b; });
}
template <bool kClusters = true, typename S>
KJIT_DEVICE S finish_sum(Pending<S> pending, int threads) {
  return details::finish<kClusters>(pending, S{}, threads, [](S a, S b) { return a + b; });
}

/// The sum of `value` over the threads that share a row, in all of them, and the same bit by bit. `S` is float, double
/// or an integer of 32 or 64 bits. All threads of the block call, those whose row lies behind the last one too.
template <bool kClusters = true, typename S>
KJIT_DEVICE S reduce_sum(S value, int threads) {
  return finish_sum<kClusters>(begin_sum<kClusters>(value, threads), threads);
}

/// The maximum of `value` in the same way; it is at least `smallest`, also where all values are NaN.
template <bool kClusters = true, typename S>
KJIT_DEVICE S reduce_max(S value, S smallest, int threads) {
  return details::reduce<kClusters>(value, smallest, threads, [](S a, S b) { return a < b ? b : a; });
}

}  // namespace device::row

}  // namespace kjit
