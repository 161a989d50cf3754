// out = activation(gate) * up, where gate and up are the halves of a row of x: the activation of a feed-forward layer;
// also quantised to fp8 with a scale.

#pragma once

#define KJIT_LIGHT_TYPES

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>

#include <cstdint>

namespace {

using namespace kjit;

/// Accurate to a few ulps of a float: for few rows, the exact functions would take longer than memory does.
struct Silu {
  KJIT_DEVICE static float of(float x) { return __fdividef(x, 1 + __expf(-x)); }
};

/// With the error function: torch.nn.functional.gelu.
struct Gelu {
  KJIT_DEVICE static float of(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
};

/// With the hyperbolic tangent: `approximate="tanh"`.
struct GeluTanh {
  KJIT_DEVICE static float of(float x) { return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }
};

constexpr int kBlock = 256;

/// Results are divided by `*scale`, unless it is null.
template <typename T, typename Out, typename Activation, int kVec>
__global__ void __launch_bounds__(kBlock) act_and_mul_kernel(const T* x, const float* scale, Out* out, int64_t vectors,
                                                             device::math::fast_mod_div_u32_t row_vectors) {
  using namespace device;
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  PDLBegin();
  if (i >= vectors) return;
  const int64_t row = vectors <= UINT32_MAX ? static_cast<uint32_t>(i) / row_vectors : i / uint32_t{row_vectors};
  const int64_t at = i + row * row_vectors;  // of the gate; a row of x has 2 * row_vectors
  AlignedVector<T, kVec> gate, up;
  AlignedVector<Out, kVec> results;
  gate.load(x, at);
  up.load(x, at + row_vectors);
  const float divisor = scale == nullptr ? 1.0f : *scale, factor = divisor == 0 ? 0.0f : 1.0f / divisor;
#pragma unroll
  for (int j = 0; j < kVec; ++j) results[j] = Activation::of(gate[j]) * static_cast<float>(up[j]) * factor;
  results.store(out, i);
}

template <typename T, typename Out, typename Activation>
void launch(host::SymbolicDevice& gpu, TensorView x, const float* scale, TensorView out) {
  using namespace host;
  constexpr int kVec = device::kMaxVecBytes / sizeof(T);
  SymbolicSize N{"N"}, D{"D"};
  TensorMatcher({N, D}).with_device<kDLCUDA>(gpu).with_dtype<Out>().verify(out, "out");
  TensorMatcher({N, 2 * D}).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(x, "x");
  const int64_t size = D.unwrap(), numel = N.unwrap() * size;
  if (numel == 0) return;
  const auto* from = data_of<const T>(x);
  auto* to = data_of<Out>(out);
  const bool is_aligned = reinterpret_cast<uintptr_t>(from) % (kVec * sizeof(T)) == 0 &&
                          reinterpret_cast<uintptr_t>(to) % (kVec * sizeof(Out)) == 0 && size % kVec == 0;
  const int vec = is_aligned ? kVec : 1;
  const device::math::fast_mod_div_u32_t row_vectors(static_cast<uint32_t>(size / vec));
  LaunchKernel(div_ceil(numel / vec, int64_t{kBlock}), kBlock, gpu.unwrap())
      .enable_pdl()(
          is_aligned ? act_and_mul_kernel<T, Out, Activation, kVec> : act_and_mul_kernel<T, Out, Activation, 1>, from,
          scale, to, numel / vec, row_vectors);
}

template <typename T, typename Activation>
void act_and_mul(TensorView x, TensorView out) {
  host::SymbolicDevice gpu;
  launch<T, T, Activation>(gpu, x, nullptr, out);
}

/// Quantised with a given scale.
template <typename T, typename Activation>
void act_and_mul_fp8(TensorView x, TensorView scale, TensorView out) {
  host::SymbolicDevice gpu;
  host::TensorMatcher({1}).with_device<kDLCUDA>(gpu).with_dtype<float>().verify(scale, "scale");
  launch<T, fp8_e4m3_t, Activation>(gpu, x, data_of<const float>(scale), out);
}

}  // namespace
