// Quantisation to 8 bits: of a tensor with one scale, or of groups of a row with one scale each.
//
//   scale = max(abs(x)) * (1 / max(Q))      unless it is given
//   out   = Q(x * (1 / scale))              rounded to nearest even, saturated; 0 if scale is 0

#pragma once

#include <kjit/launch.h>
#include <kjit/patterns/elementwise.h>
#include <kjit/patterns/rowwise.h>
#include <kjit/cta.cuh>

#include <cstdint>
#include <type_traits>

namespace {

using namespace kjit;

/// 1 / the largest quantised value of `Q`.
template <typename Q>
constexpr float kInverseLargest = 1.0f / (std::is_same_v<Q, int8_t> ? 127.0f : 448.0f);

/// With a given scale in GPU memory: one float32 for all elements.
template <typename T>
struct QuantiseTensor {
  const float* scale;

  KJIT_MATH void element(compute_t<T> x, float& out) const {
    const float divisor = *scale;
    out = divisor == 0 ? 0.0f : static_cast<float>(x) * (1.0f / divisor);
  }
};

constexpr int kBlock = 256;

/// `largest[i]` is max(abs(x)) over the elements of block i.
template <typename T, int kVec>
__global__ void __launch_bounds__(kBlock) find_largest_kernel(const T* x, int64_t vectors, float* largest) {
  using namespace device;
  __shared__ float smem[kWarpThreads];
  const int64_t thread = int64_t{blockIdx.x} * kBlock + threadIdx.x, step = int64_t{gridDim.x} * kBlock;
  PDLBegin();
  float mine = 0;
#pragma unroll 4
  for (int64_t i = thread; i < vectors; i += step) {
    AlignedVector<T, kVec> values;
    values.load(x, i);
#pragma unroll
    for (int j = 0; j < kVec; ++j) mine = fmaxf(mine, fabsf(static_cast<float>(values[j])));
  }
  mine = cta::reduce_max<kBlock>(mine, smem);
  if (threadIdx.x == 0) largest[blockIdx.x] = mine;
}

/// Reduces the maxima of `count` blocks to the scale, and quantises.
template <typename T, int kVec>
__global__ void __launch_bounds__(kBlock)
    quantise_kernel(const T* x, int64_t vectors, const float* largest, int count, float* scale, fp8_e4m3_t* out) {
  using namespace device;
  __shared__ float smem[kWarpThreads];
  const int64_t thread = int64_t{blockIdx.x} * kBlock + threadIdx.x, step = int64_t{gridDim.x} * kBlock;
  PDLBegin();
  float all = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) all = fmaxf(all, largest[i]);
  const float divisor = cta::reduce_max<kBlock>(all, smem) * kInverseLargest<fp8_e4m3_t>;
  const float factor = divisor > 0 ? 1.0f / divisor : 0.0f;
  if (thread == 0) *scale = divisor;
#pragma unroll 4
  for (int64_t i = thread; i < vectors; i += step) {
    AlignedVector<T, kVec> values;
    AlignedVector<fp8_e4m3_t, kVec> results;
    values.load(x, i);
#pragma unroll
    for (int j = 0; j < kVec; ++j) results[j] = static_cast<float>(values[j]) * factor;
    results.store(out, i);
  }
}

/// The maximum, at least 0; NaNs are ignored.
struct Largest {
  float value = 0;

  KJIT_MATH Largest combine(Largest other) const { return {fmaxf(value, other.value)}; }
  template <typename Lanes>
  KJIT_MATH Largest combine_lanes(const Lanes& lanes) const {
    return {lanes.max(value)};
  }
};

/// Rows with a computed scale each: groups of `D / groups` elements, or a whole tensor.
template <typename T, typename Q>
struct QuantiseRows {
  using Value = compute_t<Q>;

  KJIT_MATH Largest term(float x) const { return {fabsf(x)}; }
  KJIT_MATH float row(Largest total, float, float& scale) const {
    scale = total.value * kInverseLargest<Q>;
    return scale > 0 ? 1.0f / scale : 0.0f;
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
    rowwise(QuantiseRows{}, sizes, device, In<T>(x), OutPerRow<float>(scale), Out<Q>(out));
  }
};

/// The number of elements.
template <typename T>
int64_t verify(host::SymbolicDevice& gpu, TensorView x, TensorView scale, TensorView out) {
  using namespace host;
  SymbolicShape shape{"shape"};
  TensorMatcher(shape).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(x, "x");
  TensorMatcher(shape).with_device<kDLCUDA>(gpu).with_dtype<fp8_e4m3_t>().verify(out, "out");
  TensorMatcher({1}).with_device<kDLCUDA>(gpu).with_dtype<float>().verify(scale, "scale");
  return shape.numel();
}

template <typename T>
void quantise_tensor(TensorView x, TensorView scale, TensorView out) {
  using namespace host;
  SymbolicDevice gpu;
  const int64_t numel = verify<T>(gpu, x, scale, out);
  elementwise(QuantiseTensor<T>{data_of<const float>(scale)}, numel, gpu, In<T>(x), Out<fp8_e4m3_t>(out));
}

/// With a computed scale: a small tensor as a single row, a larger one in two passes, where `largest` has an element
/// for each block.
template <typename T>
void find_and_quantise_tensor(TensorView x, Optional<TensorView> largest, TensorView scale, TensorView out) {
  using namespace host;
  SymbolicDevice gpu;
  SymbolicSize most{"blocks"};
  const int64_t numel = verify<T>(gpu, x, scale, out);
  if (!largest.has_value()) {
    return rowwise(QuantiseRows<T, fp8_e4m3_t>{}, {.num_rows = 1, .row_size = numel}, gpu, In<T>(x),
                   OutPerRow<float>(scale), Out<fp8_e4m3_t>(out));
  }
  TensorMatcher({most}).with_device<kDLCUDA>(gpu).with_dtype<float>().verify(*largest, "largest");
  constexpr int kVec = device::kMaxVecBytes / sizeof(T);
  const auto* from = data_of<const T>(x);
  auto* to = data_of<fp8_e4m3_t>(out);
  const bool is_aligned = (reinterpret_cast<uintptr_t>(from) | numel * sizeof(T)) % (kVec * sizeof(T)) == 0 &&
                          reinterpret_cast<uintptr_t>(to) % kVec == 0;
  const int64_t vectors = is_aligned ? numel / kVec : numel, all = div_ceil(vectors, int64_t{kBlock});
  const int blocks = static_cast<int>(all < most.unwrap() ? all : most.unwrap());
  auto* of_block = static_cast<float*>(largest->data_ptr());
  LaunchKernel(blocks, kBlock, gpu.unwrap())
      .enable_pdl()(is_aligned ? find_largest_kernel<T, kVec> : find_largest_kernel<T, 1>, from, vectors, of_block);
  LaunchKernel(blocks, kBlock, gpu.unwrap())
      .enable_pdl()(is_aligned ? quantise_kernel<T, kVec> : quantise_kernel<T, 1>, from, vectors,
                    static_cast<const float*>(of_block), blocks, data_of<float>(scale), to);
}

}  // namespace
