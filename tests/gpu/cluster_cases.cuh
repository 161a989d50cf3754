// Cluster cases: CUDA's cooperative groups, and kjit/cluster.cuh. Kernels are empty before sm_90.

#include <cooperative_groups.h>
#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/cluster.cuh>

#include <cstdint>

namespace {

using namespace kjit;
namespace cg = cooperative_groups;

constexpr unsigned kThreads = 64;

template <typename... P, typename... Args>
void launch(void (*kernel)(P...), TensorView out, dim3 grid, dim3 cluster, std::size_t smem, Args... args) {
  host::LaunchKernel({grid.x, grid.y, grid.z}, kThreads, out.device(), smem)
      .enable_cluster(cluster)(kernel, host::data_of<int32_t>(out), args...);
}

/// For each block: its rank and index in the cluster, the cluster's blocks and threads, and the first thread's rank.
__global__ void places_kernel([[maybe_unused]] int32_t* out) {
#if KJIT_ARCH_HOPPER_OR_GREATER
  const auto cluster = cg::this_cluster();
  if (threadIdx.x != 0) return;
  out += 7 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  const dim3 place = cluster.block_index();
  const unsigned values[] = {
      cluster.block_rank(), place.x, place.y, place.z, cluster.num_blocks(), cluster.num_threads(),
      cluster.thread_rank()};
  for (const unsigned value : values) *out++ = static_cast<int32_t>(value);
#endif
}
void places(TensorView out, int64_t x, int64_t y, int64_t z) {
  launch(places_kernel, out, dim3(4, 2, 2),
         dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)), 0);
}
void places_alone(TensorView out) {
  host::LaunchKernel({4, 2, 2}, kThreads, out.device())(places_kernel, host::data_of<int32_t>(out));
}

/// Moves the values of each block to the previous one in the cluster, through static and dynamic shared memory.
__global__ void rotate_kernel([[maybe_unused]] int32_t* out) {
#if KJIT_ARCH_HOPPER_OR_GREATER
  const auto cluster = cg::this_cluster();
  __shared__ int32_t first[kThreads];
  extern __shared__ int32_t second[];
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  first[threadIdx.x] = out[at];
  const int next = static_cast<int>((cluster.block_rank() + 1) % cluster.num_blocks());
  for (int turn = 0; turn < 2; ++turn) {
    cluster.sync();
    second[threadIdx.x] = *cluster.map_shared_rank(&first[threadIdx.x], next);
    cluster.sync();
    first[threadIdx.x] = cluster.map_shared_rank(second, next)[threadIdx.x];
  }
  out[at] = cluster.query_shared_rank(&first[0]) == cluster.block_rank() ? first[threadIdx.x] : -1;
  cluster.sync();  // others may still read here
#endif
}
void rotate(TensorView out, int64_t blocks) {
  launch(rotate_kernel, out, dim3(static_cast<unsigned>(out.numel() / kThreads)), dim3(static_cast<unsigned>(blocks)),
         kThreads * sizeof(int32_t));
}

/// Each thread increments a counter of its cluster, arrives, and waits: the counter is complete after the wait.
__global__ void arrivals_kernel([[maybe_unused]] int32_t* out, [[maybe_unused]] int rounds) {
#if KJIT_ARCH_HOPPER_OR_GREATER
  const auto cluster = cg::this_cluster();
  int32_t* const count = out + blockIdx.x / cluster.num_blocks();
  // The last warp of odd blocks exits early, and is not waited for.
  if (cluster.block_rank() % 2 == 1 && threadIdx.x >= 32) return;
  const unsigned blocks = cluster.num_blocks();
  const auto threads = static_cast<int32_t>((blocks + 1) / 2 * kThreads + blocks / 2 * 32);
  for (int round = 1; round <= rounds; ++round) {
    atomicAdd(count, 1);
    cluster.barrier_arrive();
    cluster.barrier_wait();
    if (atomicAdd(count, 0) != round * threads) atomicAdd(count, 1 << 20);
    cluster.sync();
  }
#endif
}
void arrivals(TensorView out, int64_t blocks, int64_t rounds) {
  launch(arrivals_kernel, out, dim3(static_cast<unsigned>(out.numel() * blocks)), dim3(static_cast<unsigned>(blocks)),
         0, static_cast<int>(rounds));
}

/// A histogram of the values below 64 * blocks: every block of a cluster counts a part of them for all.
__global__ void histogram_kernel([[maybe_unused]] int32_t* out, [[maybe_unused]] const int32_t* values,
                                 [[maybe_unused]] int count) {
#if KJIT_ARCH_HOPPER_OR_GREATER
  const auto cluster = cg::this_cluster();
  __shared__ int counts[kThreads];
  counts[threadIdx.x] = 0;
  cluster.sync();
  for (unsigned i = cluster.thread_rank(); i < static_cast<unsigned>(count); i += cluster.num_threads()) {
    const auto value = static_cast<unsigned>(values[i]);
    atomicAdd(&cluster.map_shared_rank(counts, static_cast<int>(value / kThreads))[value % kThreads], 1);
  }
  cluster.sync();
  out[cluster.thread_rank()] = counts[threadIdx.x];
#endif
}
void histogram(TensorView out, TensorView values) {
  const dim3 blocks(static_cast<unsigned>(out.numel() / kThreads));
  launch(histogram_kernel, out, blocks, blocks, 0, host::data_of<const int32_t>(values),
         static_cast<int>(values.numel()));
}

/// Every block sends every other one a 4-byte and an 8-byte value, in several rounds; the sum of all.
__global__ void tell_kernel([[maybe_unused]] int32_t* out, [[maybe_unused]] int turns) {
#if KJIT_ARCH_HOPPER_OR_GREATER
  using namespace device::ptx;
  constexpr unsigned kBlocks = 8;
  __shared__ std::uint64_t complete[2];
  __shared__ int32_t narrow[2][kBlocks];
  __shared__ int64_t wide[2][kBlocks];
  const unsigned blocks = gridDim.x, rank = blockIdx.x;
  if (threadIdx.x == 0) {
    for (auto& each : complete) mbar_init(&each, 1);
    mbar_init_fence();
  }
  __syncwarp();
  cluster_arrive_relaxed();
  cluster_wait();
  int32_t sum = 0;
  for (int turn = 0; turn < turns; ++turn) {
    const int slot = turn % 2;
    if (threadIdx.x == 0) mbar_arrive_expect_tx(&complete[slot], blocks * 12);
    if (threadIdx.x < blocks) {
      store_async(threadIdx.x, &narrow[slot][rank], static_cast<int32_t>(rank) + turn, &complete[slot]);
      store_async(threadIdx.x, &wide[slot][rank], int64_t{1} << 40 | (rank * 100), &complete[slot]);
    }
    mbar_wait_parity(&complete[slot], static_cast<std::uint32_t>(turn / 2 % 2));
    for (unsigned i = 0; i < blocks; ++i) {
      sum += narrow[slot][i] + static_cast<int32_t>(wide[slot][i] & 0xffff);
      if (wide[slot][i] >> 40 != 1) sum = -1 << 20;
    }
    __syncthreads();  // before a block that is two rounds ahead could write here again
  }
  out[rank * kThreads + threadIdx.x] = sum;
  cluster_arrive_relaxed();
  cluster_wait();
#endif
}
void tell(TensorView out, int64_t turns) {
  const dim3 blocks(static_cast<unsigned>(out.numel() / kThreads));
  launch(tell_kernel, out, blocks, blocks, 0, static_cast<int>(turns));
}

}  // namespace
