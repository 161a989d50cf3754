// Quantisation of a whole tensor to e4m3 with one scale: output = input / scale, rounded to nearest, saturated at 448.
//
// Static: `scale` is given. Dynamic: `scale` becomes the larger one of what it holds (0, most often) and
// max(|input|) / 448, NaN left out; then the tensor is quantised with it. A scale of 0 makes zeros.

#define KJIT_LIGHT_TYPES

#include <kjit/tensor.h>
#include <kjit/runtime.cuh>

#include <kjit/atomic.cuh>
#include <kjit/cta.cuh>
#include <kjit/math.cuh>

#include <cstdint>

#include "split.cuh"

namespace {

using namespace kjit;

constexpr int kBlock = 256;
constexpr int kAbsmaxBlocksPerSM = 4;

template <typename T>
__global__ void __launch_bounds__(kBlock, kAbsmaxBlocksPerSM)
    absmax_kernel(const T* input, float* scale, const Split split) {
  using namespace device;
  using Pair = packed_t<T>;
  constexpr int kPairs = 16 / sizeof(Pair);
  constexpr int kUnroll = 4;
  __shared__ float smem[kWarpThreads];
  const int64_t step = int64_t{gridDim.x} * kBlock;
  const int64_t items = split.items();
  int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;

  PDLBegin();
  Pair largest = cast<Pair>(fp32x2_t{0.0f, 0.0f});
#pragma unroll 1
  for (; i < split.vectors; i += kUnroll * step) {
    AlignedVector<Pair, kPairs> values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      // Past the end the first vector once more: it changes nothing.
      const int64_t at = i + u * step;
      values[u].load(input + split.head, at < split.vectors ? at : i);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) largest = math::max(largest, math::abs(values[u][j]));
    }
  }
  const fp32x2_t both = cast<fp32x2_t>(largest);
  float result = math::max(both.x, both.y);
  for (int64_t item = split.vectors + int64_t{blockIdx.x} * kBlock + threadIdx.x; item < items; item += step) {
    result = math::max(result, math::abs(cast<float>(input[split.element(item)])));
  }
  result = cta::reduce_max<kBlock>(result, smem);
  if (threadIdx.x == 0) atomic::max(scale, result / math::FP8_E4M3_MAX);
}

template <typename T>
KJIT_DEVICE fp8_e4m3_t quantised(T x, float factor) {
  return device::cast<fp8_e4m3_t>(device::cast<float>(x) * factor);
}

/// From the last block to the first: what the search for the maximum has read last is still in the cache.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    quant_kernel(const T* input, fp8_e4m3_t* output, const float* scale, const Split split, bool whole) {
  using namespace device;
  constexpr int kVec = 16 / sizeof(T);
  const int64_t i = int64_t{gridDim.x - 1 - blockIdx.x} * kBlock + threadIdx.x;

  PDLBegin();
  const float divisor = *scale;
  const float factor = divisor == 0.0f ? 0.0f : 1.0f / divisor;
  if (i < split.vectors) {
    AlignedVector<packed_t<T>, kVec / 2> values;
    AlignedVector<fp8x2_e4m3_t, kVec / 2> results;
    values.load(input + split.head, i);
#pragma unroll
    for (int j = 0; j < kVec / 2; ++j) {
      const fp32x2_t x = cast<fp32x2_t>(values[j]);
      results[j] = cast<fp8x2_e4m3_t>(fp32x2_t{x.x * factor, x.y * factor});
    }
    if (whole) {
      results.store(output + split.head, i);
    } else {
#pragma unroll
      for (int j = 0; j < kVec; ++j) output[split.head + i * kVec + j] = unpack(results[j / 2])[j % 2];
    }
  } else {
    const int64_t single = split.element(i);
    if (single < split.numel) output[single] = quantised(input[single], factor);
  }
}

template <bool kIsStatic, typename T>
void per_tensor_quant_fp8(TensorView input, TensorView output, TensorView scale) {
  using namespace host;
  constexpr int64_t kVec = 16 / sizeof(T);
  SymbolicShape shape{"shape"};
  SymbolicDevice gpu;
  TensorMatcher(shape).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(input, "input");
  TensorMatcher(shape).with_device(gpu).with_dtype<fp8_e4m3_t>().verify(output, "output");
  TensorMatcher({1}).with_device(gpu).with_dtype<float>().verify(scale, "scale");

  const T* from = static_cast<const T*>(input.data_ptr());
  auto* to = static_cast<fp8_e4m3_t*>(output.data_ptr());
  auto* factor = static_cast<float*>(scale.data_ptr());
  const Split split = Split::of(from, shape.numel(), sizeof(T), kVec);
  const int64_t blocks = div_ceil(split.items(), kBlock);
  if constexpr (!kIsStatic) {
    const int64_t at_a_time = int64_t{runtime::get_sm_count(gpu.unwrap().device_id)} * kAbsmaxBlocksPerSM;
    LaunchKernel(blocks < at_a_time ? blocks : at_a_time, kBlock, gpu.unwrap())
        .enable_pdl()(absmax_kernel<T>, from, factor, split);
  }
  const bool whole = reinterpret_cast<uintptr_t>(to + split.head) % kVec == 0;
  LaunchKernel(blocks, kBlock, gpu.unwrap()).enable_pdl()(quant_kernel<T>, from, to, factor, split, whole);
}

}  // namespace
