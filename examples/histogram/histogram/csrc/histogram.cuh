// histogram: each block counts in shared memory, then adds its counts to those of all blocks.

#include <kjit/tensor.h>
#include <kjit/utils.cuh>

#include <cstdint>

namespace {

using namespace kjit;

constexpr int kBlock = 256;

template <int kBins>
__global__ void histogram_kernel(int32_t* counts, const int32_t* values, int64_t n) {
  __shared__ int32_t own[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += kBlock) own[bin] = 0;
  __syncthreads();
  const int64_t stride = int64_t{gridDim.x} * kBlock;
  for (int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x; i < n; i += stride) {
    const int32_t value = values[i];
    if (value >= 0 && value < kBins) atomicAdd(&own[value], 1);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += kBlock) {
    if (own[bin] != 0) atomicAdd(&counts[bin], own[bin]);
  }
}

template <int kBins>
struct Histogram {
  static_assert(kBins >= 1 && kBins * sizeof(int32_t) <= 48 * 1024,
                "the counts of a block have to fit in shared memory");

  /// `counts` is added to.
  static void run(TensorView values, TensorView counts) {
    using namespace host;
    SymbolicSize n{"n"};
    SymbolicDevice device;
    TensorMatcher({n}).with_device<kDLCUDA>(device).with_dtype<int32_t>().verify(values, "values");
    TensorMatcher({kBins}).with_device<kDLCUDA>(device).with_dtype<int32_t>().verify(counts, "counts");

    constexpr int64_t kMaxBlocks = 1024;
    const int64_t blocks = div_ceil(n.unwrap(), int64_t{kBlock});
    LaunchKernel launch(blocks < kMaxBlocks ? blocks : kMaxBlocks, kBlock, device.unwrap());
    launch(histogram_kernel<kBins>, static_cast<int32_t*>(counts.data_ptr()),
           static_cast<const int32_t*>(values.data_ptr()), n.unwrap());
  }
};

}  // namespace
