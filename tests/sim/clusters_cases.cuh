// Kernels with clusters and one mistake each, and next to each a correct version. The tests look for lines with
// "MISTAKE: <name>".

#include <cooperative_groups.h>
#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/cluster.cuh>

#include <cstdint>

namespace {

using namespace kjit;
namespace cg = cooperative_groups;

constexpr unsigned kThreads = 64;

/// Two clusters of four blocks.
template <typename... P, typename... Args>
void launch(void (*kernel)(P...), DLDevice device, Args... args) {
  host::LaunchKernel(8, kThreads, device, kThreads * sizeof(float)).enable_cluster(dim3(4))(kernel, args...);
}

/// A case, by whether its kernel is right.
#define PAIR(name, kernel, ...)                                  \
  template <bool kIsRight>                                       \
  void name(DLDevice device) {                                   \
    launch(kernel<kIsRight>, device __VA_OPT__(, ) __VA_ARGS__); \
  }

// The thread of one block waits at another barrier.
template <bool kIsRight>
__global__ void wait_for_others() {
  if (!kIsRight && blockIdx.x == 6 && threadIdx.x == 40) {
    __syncthreads();
  } else {
    cg::this_cluster().sync();  // MISTAKE: in_vain
  }
}
PAIR(in_vain, wait_for_others)

// The same for a single block.
template <bool kIsRight>
__global__ void wait_alone() {
  if (kIsRight || threadIdx.x != 3) {
    device::ptx::cluster_arrive_relaxed();
    device::ptx::cluster_wait();  // MISTAKE: in_vain_alone
  } else {
    __syncthreads();
  }
}
template <bool kIsRight>
void in_vain_alone(DLDevice device) {
  host::LaunchKernel(2, kThreads, device)(wait_alone<kIsRight>);
}

template <bool kIsRight>
__global__ void arrive_again() {
  cg::this_cluster().barrier_arrive();
  if (!kIsRight) cg::this_cluster().barrier_arrive();
  cg::this_cluster().barrier_wait();
}
PAIR(arrives_twice, arrive_again)

template <bool kIsRight>
__global__ void wait_at_once() {
  if (kIsRight) cg::this_cluster().barrier_arrive();
  cg::this_cluster().barrier_wait();
}
PAIR(waits_without_arrival, wait_at_once)

template <bool kIsRight>
__global__ void ask_for_block() {
  __shared__ float x;
  float local = 0;
  cg::this_cluster().map_shared_rank(kIsRight ? &x : &local, 3);
}
PAIR(not_shared, ask_for_block)

template <bool kIsRight>
__global__ void ask_for_rank() {
  __shared__ float x;
  cg::this_cluster().map_shared_rank(&x, kIsRight ? 3 : 4);
}
PAIR(no_such_rank, ask_for_rank)

// Mistakes that only check mode finds.

template <bool kIsRight>
__global__ void read_early() {
  __shared__ float x[kThreads];
  x[threadIdx.x] = 1.0f;
  if (kIsRight) cg::this_cluster().sync();
  const float* const theirs = cg::this_cluster().map_shared_rank(x, 1);
  if (theirs[threadIdx.x] != 1.0f) __trap();  // MISTAKE: not_begun
  cg::this_cluster().sync();
}
PAIR(not_begun, read_early)

// Block 0 reads shared memory of block 1, which has exited; in the simulator a wait keeps it resident until then.
template <bool kIsRight>
__global__ void read_late(int32_t* ended) {
  __shared__ alignas(64) float x[kThreads];  // nothing is just ahead of it
  x[threadIdx.x] = 1.0f;
  cg::this_cluster().sync();
  const unsigned rank = cg::this_cluster().block_rank();
  if (rank == 0) {
    while (!kIsRight && atomicAdd(ended + blockIdx.x / 4, 0) < static_cast<int>(kThreads)) __nanosleep(100);
    for (int i = 0; i < 100 && !kIsRight; ++i) __nanosleep(100);
    if (cg::this_cluster().map_shared_rank(x, 1)[threadIdx.x] != 1.0f) __trap();  // MISTAKE: has_ended
  }
  if (kIsRight) cg::this_cluster().sync();
  if (rank == 1) atomicAdd(ended + blockIdx.x / 4, 1);
}
template <bool kIsRight>
void has_ended(DLDevice device) {
  int32_t* ended = nullptr;
  cudaMalloc(&ended, 2 * sizeof(int32_t));
  cudaMemset(ended, 0, 2 * sizeof(int32_t));
  launch(read_late<kIsRight>, device, ended);
}

template <bool kIsRight>
__global__ void write_past_static() {
  __shared__ float x[kThreads + 1];
  cg::this_cluster().sync();
  if (cg::this_cluster().block_rank() != 2) {
    cg::this_cluster().map_shared_rank(x, 2)[threadIdx.x + (kIsRight ? 1 : 2)] = 1.0f;  // MISTAKE: past_static
  }
  cg::this_cluster().sync();
}
PAIR(past_static, write_past_static)

template <bool kIsRight>
__global__ void write_past_dynamic() {
  extern __shared__ float y[];
  cg::this_cluster().sync();
  if (cg::this_cluster().block_rank() != 2) {
    cg::this_cluster().map_shared_rank(y, 2)[threadIdx.x + (kIsRight ? 0 : 1)] = 1.0f;  // MISTAKE: past_dynamic
  }
  cg::this_cluster().sync();
}
PAIR(past_dynamic, write_past_dynamic)

// A block reads values of which another block has written all, or all but one.
template <bool kIsRight>
__global__ void read_written() {
  __shared__ float z[kThreads];
  const unsigned next = (cg::this_cluster().block_rank() + 1) % 4;
  cg::this_cluster().sync();
  if (kIsRight || threadIdx.x != 7) cg::this_cluster().map_shared_rank(z, static_cast<int>(next))[threadIdx.x] = 2.0f;
  cg::this_cluster().sync();
  if (z[threadIdx.x] > 2.0f) __trap();  // MISTAKE: unwritten
}
PAIR(unwritten, read_written)

// The cluster barrier is a block barrier as well.
template <bool kIsRight>
__global__ void reverse_in_block() {
  __shared__ float tile[kThreads];
  tile[threadIdx.x] = 1.0f;
  cg::this_cluster().barrier_arrive();
  if (!kIsRight) tile[threadIdx.x] = 2.0f;  // EARLIER: race
  cg::this_cluster().barrier_wait();
  if (tile[kThreads - 1 - threadIdx.x] > 2.0f) __trap();  // MISTAKE: race
}
PAIR(race, reverse_in_block)

/// A launch of `grid` blocks in clusters, of a kernel that may or may not have large ones.
__global__ void nothing() {}
void sizes(DLDevice device, int64_t grid, int64_t cluster, bool large) {
  cudaFuncSetAttribute(nothing, cudaFuncAttributeNonPortableClusterSizeAllowed, large ? 1 : 0);
  host::LaunchKernel(grid, 32, device).enable_cluster(dim3(static_cast<unsigned>(cluster)))(nothing);
}

/// The number of clusters that the GPU reports as resident, and the largest cluster size.
int64_t clusters_at_a_time(int64_t cluster, int64_t threads) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  host::RuntimeDeviceCheck(cudaOccupancyMaxActiveClusters(&clusters, nothing, &config));
  return clusters;
}
int64_t largest_cluster(bool large) {
  cudaFuncSetAttribute(nothing, cudaFuncAttributeNonPortableClusterSizeAllowed, large ? 1 : 0);
  cudaLaunchConfig_t config{};
  int size = 0;
  host::RuntimeDeviceCheck(cudaOccupancyMaxPotentialClusterSize(&size, nothing, &config));
  return size;
}

/// One of many clusters fails while the others wait for each other.
__global__ void fail_in_one() {
  for (int round = 0; round < 3; ++round) {
    cg::this_cluster().sync();
    if (blockIdx.x == 30 && threadIdx.x == 1) __trap();
  }
}
void one_of_many(DLDevice device) {
  host::LaunchKernel(80, kThreads, device).enable_cluster(dim3(4))(fail_in_one);
}

/// All blocks of all clusters meet, cluster by cluster and as a grid.
__global__ void meet(int32_t* counts) {
  for (int round = 1; round <= 3; ++round) {
    if (threadIdx.x == 0) atomicAdd(counts, 1);
    cg::this_cluster().sync();
    cg::this_grid().sync();
    if (threadIdx.x == 0 && atomicAdd(counts, 0) != round * static_cast<int>(gridDim.x)) atomicAdd(counts + 1, 1);
    cg::this_grid().sync();
  }
}
void grid_of_clusters(TensorView counts) {
  host::LaunchKernel(12, kThreads, counts.device())
      .enable_cluster(dim3(4))
      .cooperative()(meet, static_cast<int32_t*>(counts.data_ptr()));
}

}  // namespace
