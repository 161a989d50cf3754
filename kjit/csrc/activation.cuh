// out = activation(gate) * up, where gate and up are the halves of a row of x: the activation of a feed-forward layer.

#pragma once

#define KJIT_LIGHT_TYPES

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/device.cuh>
#include <kjit/math.cuh>

#include <cstdint>

namespace {

using namespace kjit;

struct Silu {
  KJIT_DEVICE static float of(float x) { return x / (1 + expf(-x)); }
};

/// With the error function, as torch.nn.functional.gelu has it.
struct Gelu {
  KJIT_DEVICE static float of(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
};

/// With the hyperbolic tangent: `approximate="tanh"`.
struct GeluTanh {
  KJIT_DEVICE static float of(float x) { return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }
};

constexpr int kBlock = 256;

template <typename T, typename Activation, int kVec>
__global__ void __launch_bounds__(kBlock)
    act_and_mul_kernel(const T* x, T* out, int64_t vectors, device::math::fast_mod_div_u32_t row_vectors) {
  using namespace device;
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  PDLBegin();
  if (i >= vectors) return;
  const int64_t row = vectors <= UINT32_MAX ? static_cast<uint32_t>(i) / row_vectors : i / uint32_t{row_vectors};
  const int64_t at = i + row * row_vectors;  // of the gate: 2 * row_vectors to a row
  AlignedVector<T, kVec> gate, up;
  gate.load(x, at);
  up.load(x, at + row_vectors);
#pragma unroll
  for (int j = 0; j < kVec; ++j) gate[j] = Activation::of(gate[j]) * static_cast<float>(up[j]);
  gate.store(out, i);
}

template <typename T, typename Activation>
void act_and_mul(TensorView x, TensorView out) {
  using namespace host;
  constexpr int kVec = device::kMaxVecBytes / sizeof(T);
  SymbolicDevice gpu;
  SymbolicSize N{"N"}, D{"D"}, both{"2 * D"};
  TensorMatcher({N, D}).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(out, "out");
  TensorMatcher({N, both}).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(x, "x");
  const int64_t size = D.unwrap(), numel = N.unwrap() * size;
  RuntimeCheck(both.unwrap() == 2 * size, "Size mismatch: a row of x has ", both.unwrap(), " elements, not 2 * ", size);
  if (numel == 0) return;
  const auto* from = static_cast<const T*>(x.data_ptr());
  auto* to = static_cast<T*>(out.data_ptr());
  const auto places = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | (size * sizeof(T));
  const int vec = places % (kVec * sizeof(T)) == 0 ? kVec : 1;
  const device::math::fast_mod_div_u32_t row_vectors(static_cast<uint32_t>(size / vec));
  LaunchKernel(div_ceil(numel / vec, int64_t{kBlock}), kBlock, gpu.unwrap())
      .enable_pdl()(vec == 1 ? act_and_mul_kernel<T, Activation, 1> : act_and_mul_kernel<T, Activation, kVec>, from, to,
                    numel / vec, row_vectors);
}

}  // namespace
