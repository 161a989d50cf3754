// Kernels that share every row of a tensor among a few threads: lanes of a warp, a block, or a cluster of blocks.
//
//   const host::row::Spread spread = host::row::spread(rows, vectors, 4);   // 4 vectors a thread
//   host::row::launch(spread, device, kernel, {.threads = spread.threads, ...});
//   ...
//   const auto [row, lane] = device::row::place(threads);          // in the kernel: whose part of which row
//   const float total = device::row::reduce_sum(x, threads);       // the same in all threads of the row
//
// How many threads a row gets is known at run time only, so that one kernel serves rows of every length. Nearly free to
// compile.

#pragma once

#include <kjit/device.cuh>
#include <kjit/launch.h>
#include <kjit/utils.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit {

namespace host::row {

/// Threads of the largest block, and blocks of the largest cluster that `spread` asks for.
inline constexpr int kMaxBlock = 1024;
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
inline constexpr int kMaxCluster = 8;
#else
inline constexpr int kMaxCluster = 1;
#endif

/// How rows are spread over a GPU.
struct Spread {
  int threads;        // that share a row: a power of two up to 32, or those of `cluster` blocks
  int block;          // threads of a block
  dim3 cluster;       // blocks that share a row; none where a block is enough
  std::int64_t grid;  // blocks
};

/// Spreads `rows` rows of `vectors` vectors each, such that a thread has at most `parts` vectors of its row. Of rows
/// that are too long for that, each thread has more. Blocks are so small that an SM holds two or more of them: while
/// one waits for its row, others write theirs.
///
/// Rows that are too long for half of the largest block are for a cluster (sm_90 and later; before, and in the
/// simulator, for the largest block).
inline Spread spread(std::int64_t rows, std::int64_t vectors, int parts) {
  constexpr int kSmallBlock = 128;
  constexpr std::int64_t kBlock = kMaxCluster > 1 ? kMaxBlock / 2 : kMaxBlock;
  const std::int64_t wanted = div_ceil(vectors, static_cast<std::int64_t>(parts));
  int threads = 1;
  if (wanted <= 32) {
    while (threads < wanted) threads *= 2;
    return {threads, kSmallBlock, dim3(0, 0, 0), div_ceil(rows, std::int64_t{kSmallBlock / threads})};
  }
  int cluster = 1;
  while (cluster < kMaxCluster && wanted > cluster * kBlock) cluster *= 2;
  const std::int64_t warps = div_ceil(div_ceil(wanted, std::int64_t{cluster}), std::int64_t{32});
  const int block = static_cast<int>(warps * 32 < kBlock ? warps * 32 : kBlock);
  return {block * cluster, block, cluster > 1 ? dim3(cluster, 1, 1) : dim3(0, 0, 0), rows * cluster};
}

/// Launches `kernel(params)` on as many threads, on PyTorch's current stream of `device`. An empty grid is no launch.
template <typename Params>
void launch(const Spread& spread, DLDevice device, void (*kernel)(Params), const Params& params, DebugInfo where = {}) {
  LaunchKernel launch(spread.grid, spread.block, device, 0, where);
#if !KJIT_SIM  // which has no clusters, and is asked for none
  launch.enable_cluster(spread.cluster);
#endif
  launch(kernel, params);
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
  const auto share = static_cast<std::uint32_t>(threads);
  if (share < blockDim.x) {
    return {std::int64_t{blockIdx.x} * (blockDim.x / share) + threadIdx.x / share,
            static_cast<int>(threadIdx.x % share)};
  }
  const std::uint32_t cluster = share / blockDim.x;
  return {blockIdx.x / cluster, static_cast<int>(blockIdx.x % cluster * blockDim.x + threadIdx.x)};
}

/// Reads the `N` elements from `data[first]` on: by one load where `aligned` says that they start at a multiple of the
/// vector's size, else one by one. Zeros where `data` is null.
template <typename T, std::size_t N>
KJIT_DEVICE void load(AlignedVector<T, N>& vector, const T* data, std::int64_t first, bool aligned = true) {
  if (data == nullptr) {
    vector.fill(T{});
  } else if (aligned) {
    vector.load(data + first);
  } else {
#pragma unroll
    for (std::size_t i = 0; i < N; ++i) vector[i] = data[first + static_cast<std::int64_t>(i)];
  }
}

/// Writes a vector to where `to` points, aligned, and lets it be the first to leave the caches (`st.global.cs`): for what
/// is not read again soon.
template <typename T, std::size_t N>
KJIT_DEVICE void store_streaming(const AlignedVector<T, N>& vector, T* to) {
  using Word = std::conditional_t<
      sizeof(vector) % 16 == 0, uint4,
      std::conditional_t<sizeof(vector) == 8, uint2,
                         std::conditional_t<sizeof(vector) == 4, unsigned,
                                            std::conditional_t<sizeof(vector) == 2, unsigned short, unsigned char>>>>;
  Word words[sizeof(vector) / sizeof(Word)];
  std::memcpy(words, vector.data(), sizeof(vector));
#pragma unroll
  for (std::size_t i = 0; i < sizeof(vector) / sizeof(Word); ++i) __stcs(reinterpret_cast<Word*>(to) + i, words[i]);
}

namespace details {

#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
KJIT_DEVICE void synchronise_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/// The same variable in the shared memory of another block of the cluster.
template <typename S>
KJIT_DEVICE const volatile S* of_block(const S* mine, std::uint32_t block) {
  std::uint64_t theirs;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(block));
  return reinterpret_cast<const volatile S*>(theirs);
}
#endif

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
  value = lane < static_cast<int>(blockDim.x) / kWarp ? of_warp[lane] : neutral;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
#if KJIT_ARCH_HOPPER_OR_GREATER && !KJIT_SIM
  const std::uint32_t cluster = static_cast<std::uint32_t>(threads) / blockDim.x;
  if (cluster > 1) {
    __shared__ S mine;
    if (threadIdx.x == 0) mine = value;
    synchronise_cluster();
    value = *of_block(&mine, 0);  // all blocks in the same order, so that all have the same result
    for (std::uint32_t block = 1; block < cluster; ++block) value = combine(value, S{*of_block(&mine, block)});
    synchronise_cluster();  // a block that ends takes its shared memory along
  }
#endif
  return value;
}

}  // namespace details

/// The sum of `value` over the threads that share a row, in all of them, and the same bit by bit. `S` is float, double
/// or an integer of 32 or 64 bits. All threads of the block call, those whose row lies behind the last one too.
template <typename S>
KJIT_DEVICE S reduce_sum(S value, int threads) {
  return details::reduce(value, S{}, threads, [](S a, S b) { return a + b; });
}

/// The maximum of `value`, in the same way. `smallest` is what it is compared with besides: it is at least that.
template <typename S>
KJIT_DEVICE S reduce_max(S value, S smallest, int threads) {
  return details::reduce(value, smallest, threads, [](S a, S b) { return a < b ? b : a; });
}

}  // namespace device::row

}  // namespace kjit
