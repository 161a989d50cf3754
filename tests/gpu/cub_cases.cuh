// CUB's block and warp operations, as kernels use them.

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <cub/cub.cuh>
#include <cuda/functional>

#include <cstdint>

namespace {

using namespace kjit;

constexpr int kThreads = 96;

template <typename First, typename... Others, typename... Tensors>
void launch(void (*kernel)(First, Others...), int threads, TensorView first, Tensors... others) {
  host::LaunchKernel(1, threads, first.device())(kernel, static_cast<First>(first.data_ptr()),
                                                 static_cast<Others>(others.data_ptr())...);
}

/// The sum of `x`, the maximum of its first 71, index and value of its maximum, the sum of two each.
__global__ void reduce(const float* x, float* out) {
  using Reduce = cub::BlockReduce<float, 32, cub::BLOCK_REDUCE_WARP_REDUCTIONS, 3>;
  using Pair = cub::KeyValuePair<int, float>;
  using Largest = cub::BlockReduce<Pair, 32, cub::BLOCK_REDUCE_WARP_REDUCTIONS, 3>;
  using Raking = cub::BlockReduce<int, 32, cub::BLOCK_REDUCE_RAKING, 3>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ union {
    typename Largest::TempStorage largest;
    typename Raking::TempStorage raking;
  } other;
  const auto thread = static_cast<int>(threadIdx.x + 32 * threadIdx.y);
  const float sum = Reduce(storage).Sum(x[thread]);
  __syncthreads();
  const float most = Reduce(storage).Reduce(x[thread], ::cuda::maximum<>{}, 71);
  const Pair top = Largest(other.largest).Reduce(Pair(thread, x[thread]), cub::ArgMax());
  __syncthreads();
  int two[2] = {thread, 1};
  const int total = Raking(other.raking).Sum(two);
  if (thread == 0) {
    out[0] = sum, out[1] = most, out[2] = static_cast<float>(top.key), out[3] = top.value;
    out[4] = static_cast<float>(total);
  }
}
void run_reduce(TensorView x, TensorView out) {
  host::LaunchKernel(1, dim3{32, 3}, x.device())(reduce, host::data_of<const float>(x), host::data_of<float>(out));
}

/// Sums in tiles of a block, with a running prefix.
struct Running {
  int total;
  __device__ int operator()(int of_tile) {
    const int before = total;
    total += of_tile;
    return before;
  }
};

/// Exclusive sums of four items a thread, the running maximum, sums that continue from the previous tile, the last
/// total.
__global__ void scan(const int* x, int* sums, int* largest, int* running, int* total) {
  using Load = cub::BlockLoad<int, kThreads, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, kThreads, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, kThreads>;
  __shared__ typename Load::TempStorage load;
  __shared__ typename Store::TempStorage store;
  __shared__ typename Scan::TempStorage storage;
  int items[4], before[4], of_all;
  Load(load).Load(x, items);
  Scan(storage).ExclusiveSum(items, before, of_all);
  Store(store).Store(sums, before, kThreads * 4 - 3);
  __syncthreads();
  int most;
  Scan(storage).InclusiveScan(x[threadIdx.x], most, ::cuda::maximum<>());
  largest[threadIdx.x] = most;
  Running prefix{1000};
  for (int tile = 0; tile < 4; ++tile) {
    __syncthreads();
    int sum;
    Scan(storage).InclusiveSum(x[tile * kThreads + threadIdx.x], sum, prefix);
    running[tile * kThreads + threadIdx.x] = sum;
  }
  __syncthreads();
  int after_five;
  Scan(storage).ExclusiveScan(static_cast<int>(threadIdx.x), after_five, 5, ::cuda::maximum<>(), of_all);
  if (threadIdx.x == kThreads - 1) total[0] = of_all, total[1] = after_five;
}
void run_scan(TensorView x, TensorView sums, TensorView largest, TensorView running, TensorView total) {
  launch(scan, kThreads, x, sums, largest, running, total);
}

/// A tile through every load and store algorithm; after 371 items the tile has -1.
template <cub::BlockLoadAlgorithm kLoad, cub::BlockStoreAlgorithm kStore>
__global__ void copy(const int* x, int* out) {
  using Load = cub::BlockLoad<int, kThreads, 4, kLoad>;
  using Store = cub::BlockStore<int, kThreads, 4, kStore>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
  } storage;
  int items[4];
  Load(storage.load).Load(x, items, 371, -1);
  __syncthreads();
  Store(storage.store).Store(out, items);
}
void run_copy(TensorView x, TensorView out, int how) {
  if (how == 0) launch(copy<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_TRANSPOSE>, kThreads, x, out);
  if (how == 1) launch(copy<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_DIRECT>, kThreads, x, out);
  if (how == 2) launch(copy<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>, kThreads, x, out);
  if (how == 3) launch(copy<cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_WARP_TRANSPOSE>, kThreads, x, out);
}

/// Pairs by their keys, ascending and descending; unsigned keys by some of their bits.
__global__ void sort(const float* keys, int* up, int* down, int* by_bits) {
  using Sort = cub::BlockRadixSort<float, kThreads, 2, int>;
  using Bits = cub::BlockRadixSort<std::uint32_t, kThreads, 2>;
  __shared__ typename Sort::TempStorage storage;
  __shared__ typename Bits::TempStorage bits;
  float own[2];
  int places[2];
  std::uint32_t numbers[2];
  const auto fill = [&] {
    for (int i = 0; i < 2; ++i) {
      places[i] = static_cast<int>(threadIdx.x) * 2 + i;
      own[i] = keys[places[i]];
      numbers[i] = static_cast<std::uint32_t>(places[i]) * 37 % 256;
    }
  };
  fill();
  Sort(storage).Sort(own, places);
  for (int i = 0; i < 2; ++i) up[threadIdx.x * 2 + i] = places[i];
  __syncthreads();
  fill();
  Sort(storage).SortDescendingBlockedToStriped(own, places);
  for (int i = 0; i < 2; ++i) down[i * kThreads + threadIdx.x] = places[i];
  fill();
  Bits(bits).Sort(numbers, 4, 8);
  for (int i = 0; i < 2; ++i) by_bits[threadIdx.x * 2 + i] = static_cast<int>(numbers[i]);
}
void run_sort(TensorView keys, TensorView up, TensorView down, TensorView by_bits) {
  launch(sort, kThreads, keys, up, down, by_bits);
}

/// Sums of 16 lanes, of segments that begin where x is a multiple of 5, exclusive lane sums, and the sum of the warp.
__global__ void warps(const int* x, int* out) {
  using Reduce = cub::WarpReduce<int, 16>;
  using Segments = cub::WarpReduce<int>;
  using Scan = cub::WarpScan<int>;
  __shared__ typename Reduce::TempStorage reduce[4];
  __shared__ typename Segments::TempStorage segments[2];
  __shared__ typename Scan::TempStorage scan[2];
  const int value = x[threadIdx.x], warp = static_cast<int>(threadIdx.x) / 32;
  int before, all;
  out[threadIdx.x * 4] = Reduce(reduce[threadIdx.x / 16]).Sum(value);
  out[threadIdx.x * 4 + 1] = Segments(segments[warp]).HeadSegmentedSum(value, value % 5 == 0);
  Scan(scan[warp]).ExclusiveSum(value, before, all);
  out[threadIdx.x * 4 + 2] = before;
  out[threadIdx.x * 4 + 3] = all;
}
void run_warps(TensorView x, TensorView out) {
  launch(warps, 64, x, out);
}

}  // namespace
