// Quantisation to 8 bits: of a whole tensor with one scale, of groups of a row with a scale each.
//
//   scale = max(abs(x)) / max(Q)      unless it is given
//   out   = Q(x * (1 / scale))        rounded to nearest even, saturated; 0 where scale is 0

#pragma once

#include <kjit/patterns/elementwise.h>
#include <kjit/patterns/rowwise.h>
#include <kjit/atomic.cuh>
#include <kjit/cta.cuh>
#include <kjit/runtime.cuh>

#include <cstdint>
#include <type_traits>

namespace {

using namespace kjit;

template <typename Q>
constexpr float kLargest = std::is_same_v<Q, int8_t> ? 127.0f : 448.0f;

/// With the scale in GPU memory: one float32 for all elements.
template <typename T>
struct QuantiseTensor {
  const float* scale;

  KJIT_MATH void element(compute_t<T> x, float& out) const {
    const float divisor = *scale;
    out = divisor == 0 ? 0.0f : static_cast<float>(x) * (1.0f / divisor);
  }
};

constexpr int kBlock = 256;

/// `*scale` becomes the larger one of what it is and max(abs(x)) / 448.
template <typename T, int kVec>
__global__ void __launch_bounds__(kBlock) find_scale_kernel(const T* x, int64_t numel, float* scale) {
  using namespace device;
  __shared__ float smem[kWarpThreads];
  const int64_t thread = int64_t{blockIdx.x} * kBlock + threadIdx.x, step = int64_t{gridDim.x} * kBlock;
  PDLBegin();
  float largest = 0;
#pragma unroll 4
  for (int64_t i = thread; i < numel / kVec; i += step) {
    AlignedVector<T, kVec> values;
    values.load(x, i);
#pragma unroll
    for (int j = 0; j < kVec; ++j) largest = fmaxf(largest, fabsf(static_cast<float>(values[j])));
  }
  for (int64_t i = numel / kVec * kVec + thread; i < numel; i += step) {
    largest = fmaxf(largest, fabsf(static_cast<float>(x[i])));
  }
  largest = cta::reduce_max<kBlock>(largest, smem);
  if (threadIdx.x == 0) atomic::max(scale, largest / kLargest<fp8_e4m3_t>);
}

template <typename T, bool kFindsScale>
void quantise_tensor(TensorView x, TensorView scale, TensorView out) {
  using namespace host;
  SymbolicDevice gpu;
  SymbolicShape shape{"shape"};
  TensorMatcher(shape).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(x, "x");
  TensorMatcher(shape).with_device<kDLCUDA>(gpu).with_dtype<fp8_e4m3_t>().verify(out, "out");
  TensorMatcher({1}).with_device<kDLCUDA>(gpu).with_dtype<float>().verify(scale, "scale");
  const int64_t numel = shape.numel();
  auto* factor = static_cast<float*>(scale.data_ptr());
  if constexpr (kFindsScale) {
    constexpr int kVec = device::kMaxVecBytes / sizeof(T);
    const DLDevice device = gpu.unwrap();
    RuntimeDeviceCheck(cudaMemsetAsync(factor, 0, sizeof(float), LaunchKernel::resolve_device(device)));
    const bool is_aligned = reinterpret_cast<uintptr_t>(x.data_ptr()) % (kVec * sizeof(T)) == 0;
    const int64_t most = int64_t{8} * runtime::get_sm_count(device.device_id);
    const int64_t blocks = div_ceil(numel, int64_t{kBlock} * kVec);
    if (numel > 0) {
      LaunchKernel(blocks < most ? blocks : most, kBlock, device)
          .enable_pdl()(is_aligned ? find_scale_kernel<T, kVec> : find_scale_kernel<T, 1>,
                        static_cast<const T*>(x.data_ptr()), numel, factor);
    }
  }
  elementwise(QuantiseTensor<T>{factor}, numel, gpu, In<T>(x), Out<fp8_e4m3_t>(out));
}

/// Groups of `D / groups` elements of a row.
template <typename T, typename Q>
struct QuantiseGroups {
  using Value = compute_t<Q>;

  KJIT_MATH Max<float> term(float x) const { return {abs(x)}; }
  KJIT_MATH float row(Max<float> total, float, float& scale) const {
    scale = total.value > 0 ? total.value / kLargest<Q> : 0.0f;
    return total.value > 0 ? kLargest<Q> / total.value : 0.0f;
  }
  KJIT_MATH void element(float inverse_scale, float x, Value& out) const {
    if constexpr (std::is_same_v<Q, int8_t>) {
      out = static_cast<Value>(rintf(x * inverse_scale));
    } else {
      out = x * inverse_scale;
    }
  }

  static void run(TensorView x, TensorView scale, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"}, groups{"groups"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<Q>().verify(out, "out");
    TensorMatcher({B, groups}).with_device<kDevice>(device).with_dtype<float>().verify(scale, "scale");
    const int64_t columns = D.unwrap(), count = groups.unwrap();
    RuntimeCheck(count > 0 && columns % count == 0, "Size mismatch: ", columns, " columns are not ", count, " groups");
    const RowSizes sizes{.num_rows = B.unwrap() * count, .row_size = columns / count};
    rowwise(QuantiseGroups{}, sizes, device, In<T>(x), OutPerRow<float>(scale), Out<Q>(out));
  }
};

}  // namespace
