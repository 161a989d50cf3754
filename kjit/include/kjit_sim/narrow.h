// CUDA's device-only functions of half and bfloat16: arithmetic, shuffles, atomic additions. One definition serves
// both: computed in float (fused operations in double), and rounded once.

#pragma once

#include <kjit_sim/atomics.h>
#include <kjit_sim/intrinsics.h>
#include <kjit_sim/math.h>
#include <kjit_sim/threads.h>

#include <cstdint>

namespace kjit_sim {

/// Traits of a narrow type: its packed pair, and rounding from float and double.
template <typename T>
struct NarrowTraits;

template <typename T>
concept Narrow = requires { typename NarrowTraits<T>::pair; };
template <typename T>
concept NarrowPair = requires { typename NarrowTraits<T>::single; };

template <typename T>
T narrow(float value) {
  return NarrowTraits<T>::from(value);
}

template <Narrow T, typename F>
T apply(T a, F&& f) {
  return narrow<T>(f(static_cast<float>(a)));
}
template <NarrowPair T, typename F>
T apply(T a, F&& f) {
  a.x = apply(a.x, f);
  a.y = apply(a.y, f);
  return a;
}

/// a * b + c with one rounding: the sum in double is rounded to odd, so that a second rounding is correct.
template <Narrow T>
T fused(T a, T b, T c) {
  const double product = static_cast<double>(static_cast<float>(a)) * static_cast<double>(static_cast<float>(b));
  const double addend = static_cast<double>(static_cast<float>(c));
  double sum = product + addend;
  const double rest = sum - product;
  const double error = (product - (sum - rest)) + (addend - rest);
  auto bits = to_bits(sum);
  if (error != 0 && error == error && bits % 2 == 0) {
    bits += (error > 0) == (sum > 0) ? 1 : ~std::uint64_t{0};
    sum = from_bits<double>(bits);
  }
  return NarrowTraits<T>::from(sum);
}
template <NarrowPair T>
T fused(T a, T b, T c) {
  a.x = fused(a.x, b.x, c.x);
  a.y = fused(a.y, b.y, c.y);
  return a;
}

inline float saturate(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline float relu(float x) {
  return x < 0.0f ? 0.0f : x;
}

}  // namespace kjit_sim

#define KJIT_SIM_ELEMENTWISE(single_name, pair_name, expression)            \
  template <kjit_sim::Narrow T>                                             \
  T single_name(T a) {                                                      \
    return kjit_sim::apply(a, [](float x) -> float { return expression; }); \
  }                                                                         \
  template <kjit_sim::NarrowPair T>                                         \
  T pair_name(T a) {                                                        \
    return kjit_sim::apply(a, [](float x) -> float { return expression; }); \
  }
KJIT_SIM_ELEMENTWISE(hsqrt, h2sqrt, ::sqrtf(x))
KJIT_SIM_ELEMENTWISE(hrsqrt, h2rsqrt, ::rsqrtf(x))
KJIT_SIM_ELEMENTWISE(hrcp, h2rcp, 1.0f / x)
KJIT_SIM_ELEMENTWISE(hlog, h2log, ::logf(x))
KJIT_SIM_ELEMENTWISE(hlog2, h2log2, ::log2f(x))
KJIT_SIM_ELEMENTWISE(hlog10, h2log10, ::log10f(x))
KJIT_SIM_ELEMENTWISE(hexp, h2exp, ::expf(x))
KJIT_SIM_ELEMENTWISE(hexp2, h2exp2, ::exp2f(x))
KJIT_SIM_ELEMENTWISE(hexp10, h2exp10, ::exp10f(x))
KJIT_SIM_ELEMENTWISE(hsin, h2sin, ::sinf(x))
KJIT_SIM_ELEMENTWISE(hcos, h2cos, ::cosf(x))
KJIT_SIM_ELEMENTWISE(htanh, h2tanh, ::tanhf(x))
KJIT_SIM_ELEMENTWISE(htanh_approx, h2tanh_approx, ::tanhf(x))
KJIT_SIM_ELEMENTWISE(htrunc, h2trunc, ::truncf(x))
KJIT_SIM_ELEMENTWISE(hceil, h2ceil, ::ceilf(x))
KJIT_SIM_ELEMENTWISE(hfloor, h2floor, ::floorf(x))
KJIT_SIM_ELEMENTWISE(hrint, h2rint, ::rintf(x))
#undef KJIT_SIM_ELEMENTWISE

#define KJIT_SIM_FUSED(concept_name, name, expression) \
  template <kjit_sim::concept_name T>                  \
  T name(T a, T b, T c) {                              \
    const T fused = kjit_sim::fused(a, b, c);          \
    return expression;                                 \
  }
KJIT_SIM_FUSED(Narrow, __hfma, fused)
KJIT_SIM_FUSED(Narrow, __hfma_sat, kjit_sim::apply(fused, kjit_sim::saturate))
KJIT_SIM_FUSED(Narrow, __hfma_relu, kjit_sim::apply(fused, kjit_sim::relu))
KJIT_SIM_FUSED(NarrowPair, __hfma2, fused)
KJIT_SIM_FUSED(NarrowPair, __hfma2_sat, kjit_sim::apply(fused, kjit_sim::saturate))
KJIT_SIM_FUSED(NarrowPair, __hfma2_relu, kjit_sim::apply(fused, kjit_sim::relu))
#undef KJIT_SIM_FUSED

/// Complex a * b + c; x holds the real part.
template <kjit_sim::NarrowPair T>
T __hcmadd(T a, T b, T c) {
  using Single = decltype(a.x);
  T result = c;
  result.x = kjit_sim::fused(a.x, b.x, result.x);
  result.x = kjit_sim::fused(kjit_sim::narrow<Single>(-static_cast<float>(a.y)), b.y, result.x);
  result.y = kjit_sim::fused(a.x, b.y, result.y);
  result.y = kjit_sim::fused(a.y, b.x, result.y);
  return result;
}

template <kjit_sim::Narrow T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return kjit_sim::update(
      address, [value](T old) { return kjit_sim::narrow<T>(static_cast<float>(old) + static_cast<float>(value)); });
}
template <kjit_sim::NarrowPair T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  T old = value;
  old.x = atomicAdd(&address->x, value.x);
  old.y = atomicAdd(&address->y, value.y);
  return old;
}
