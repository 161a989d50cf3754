// Floating-point inline PTX: small formats, approximate functions, conversions.

#pragma once

#include <kjit_sim/intrinsics.h>
#include <kjit_sim/ptx_registers.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#define KJIT_SIM_INLINE __attribute__((always_inline)) inline

namespace kjit_sim::ptx {

/// A small floating-point type: the bits in its exponent and fraction, and the bits of its largest finite value.
template <int kExponentBits, int kFractionBits, std::uint32_t kLargest, std::uint32_t kNaN, bool kHasInfinity>
struct Format {
  static constexpr int kBits = 1 + kExponentBits + kFractionBits;
  static constexpr int kFraction = kFractionBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kFractionBits);
  static constexpr std::uint32_t kTop = kLargest;
  static constexpr std::uint32_t kNotANumber = kNaN;
  static constexpr bool kInfinite = kHasInfinity;
};
using F16 = Format<5, 10, 0x7bff, 0x7fff, true>;
using Bf16 = Format<8, 7, 0x7f7f, 0x7fff, true>;
using E4m3 = Format<4, 3, 0x7e, 0x7f, false>;
using E5m2 = Format<5, 2, 0x7b, 0x7f, true>;

/// Rounds to nearest, ties to even. Values out of range become infinity, or with `kFinite` the largest finite value.
template <typename F, bool kFinite>
KJIT_SIM_INLINE std::uint32_t narrow(double value) {
  if (std::isnan(value)) return F::kNotANumber;
  const std::uint32_t sign = std::signbit(value) ? F::kSign : 0;
  const double size = std::fabs(value);
  if (std::isinf(value)) return sign | (kFinite ? F::kTop : F::kTop + 1);
  const int exponent = size == 0 ? 1 - F::kBias : std::max(std::ilogb(size), 1 - F::kBias);
  // In units of the last place integers are exact, and a carry propagates into the exponent.
  const auto places = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, F::kFraction - exponent)));
  const std::int64_t bits = (std::int64_t{exponent + F::kBias - 1} << F::kFraction) + places;
  if (bits > F::kTop) return sign | (kFinite ? F::kTop : F::kTop + 1);
  return sign | static_cast<std::uint32_t>(bits);
}
template <typename F>
KJIT_SIM_INLINE float widen(std::uint32_t bits) {
  const std::uint32_t size = bits & (F::kSign - 1);
  const auto with_sign = [bits](float value) { return (bits & F::kSign) != 0 ? -value : value; };
  if (size > F::kTop) return F::kInfinite && size == F::kTop + 1 ? with_sign(INFINITY) : NAN;
  const auto exponent = static_cast<int>(size >> F::kFraction);
  const std::uint32_t fraction = size & ((1u << F::kFraction) - 1);
  const std::uint32_t places = exponent == 0 ? fraction : fraction | 1u << F::kFraction;
  const int scale = (exponent == 0 ? 1 : exponent) - F::kBias - F::kFraction;
  return with_sign(std::ldexp(static_cast<float>(places), scale));
}
template <typename F>
using BitsOf = std::conditional_t<F::kBits == 8, std::uint8_t, std::uint16_t>;
template <typename F>
using PairOf = std::conditional_t<F::kBits == 8, std::uint16_t, std::uint32_t>;

/// `cvt.rn.f16.f32` and its like.
template <typename F, typename Out>
KJIT_SIM_INLINE void narrow_one(Out& out, const auto& value) {
  put(out, static_cast<BitsOf<F>>(narrow<F, false>(get<float>(value))));
}
template <typename F, typename Out>
KJIT_SIM_INLINE void widen_one(Out& out, const auto& bits) {
  put(out, widen<F>(static_cast<std::uint16_t>(bits)));
}
/// `cvt.rn.f16x2.f32` and its like: the first value becomes the upper half.
template <typename F, bool kFinite, typename Out>
KJIT_SIM_INLINE void narrow_pair(Out& out, const auto& upper, const auto& lower) {
  const std::uint32_t high = narrow<F, kFinite>(get<float>(upper)), low = narrow<F, kFinite>(get<float>(lower));
  put(out, static_cast<PairOf<F>>(high << F::kBits | low));
}
template <typename F, typename Out>
KJIT_SIM_INLINE void narrow_halves(Out& out, std::uint32_t pair) {
  narrow_pair<F, true>(out, widen<F16>(pair >> 16), widen<F16>(pair & 0xffff));
}
template <typename F, typename Out>
KJIT_SIM_INLINE void widen_pair(Out& out, std::uint16_t pair) {
  narrow_pair<F16, false>(out, widen<F>(pair >> 8), widen<F>(pair & 0xff));
}
/// Rounds ties away from zero.
template <typename Out>
KJIT_SIM_INLINE void to_tf32(Out& out, const auto& value) {
  const auto bits = get<std::uint32_t>(get<float>(value));
  const bool is_finite = (bits & 0x7f800000) != 0x7f800000;
  put(out, is_finite ? (bits + 0x1000) & ~0x1fffu : bits);
}

// In double these are exact, or nearly so, for two small numbers: double rounding is harmless.
inline constexpr auto add_of = [](double a, double b) { return a + b; };
inline constexpr auto sub_of = [](double a, double b) { return a - b; };
inline constexpr auto mul_of = [](double a, double b) { return a * b; };
inline constexpr auto min_of = [](double a, double b) { return std::fmin(a, b); };
inline constexpr auto max_of = [](double a, double b) { return std::fmax(a, b); };
/// The product of two small numbers is exact; an inexact sum is rounded to odd (Knuth).
template <typename F>
inline constexpr auto fma_of = [](double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c, part = sum - product;
  const double rest = (product - (sum - part)) + (c - part);
  const auto bits = get<std::int64_t>(sum);
  if (rest == 0 || !std::isfinite(sum) || (bits & 1) != 0) return sum;
  return get<double>(bits + ((rest > 0) == (sum > 0) ? 1 : -1));
};
/// An operation on a number of a small format, or on each of a pair.
template <typename F, int kCount, typename Out>
KJIT_SIM_INLINE void halves(auto op, Out& out, const auto&... in) {
  std::uint32_t result = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto part = [i](const auto& each) {
      return static_cast<double>(widen<F>(static_cast<std::uint32_t>(each) >> (16 * i) & 0xffff));
    };
    result |= narrow<F, false>(op(part(in)...)) << (16 * i);
  }
  put(out, static_cast<std::conditional_t<kCount == 2, std::uint32_t, std::uint16_t>>(result));
}

template <typename T, typename Out>
KJIT_SIM_INLINE void fma(Out& out, const auto& a, const auto& b, const auto& c) {
  put(out, std::fma(get<T>(a), get<T>(b), get<T>(c)));
}
#define KJIT_SIM_UNARY(name, expression)               \
  template <typename T, typename Out>                  \
  KJIT_SIM_INLINE void name(Out& out, const auto& a) { \
    const T x = get<T>(a);                             \
    put(out, static_cast<T>(expression));              \
  }
KJIT_SIM_UNARY(rcp, 1 / x)
KJIT_SIM_UNARY(sqrt, std::sqrt(x))
KJIT_SIM_UNARY(rsqrt, 1 / std::sqrt(static_cast<double>(x)))
KJIT_SIM_UNARY(ex2, std::exp2(x))
KJIT_SIM_UNARY(lg2, std::log2(x))
KJIT_SIM_UNARY(sin, std::sin(x))
KJIT_SIM_UNARY(cos, std::cos(x))
KJIT_SIM_UNARY(tanh, std::tanh(x))
#undef KJIT_SIM_UNARY

template <typename To, typename From, typename Out>
KJIT_SIM_INLINE void convert(Out& out, const auto& a) {
  put(out, static_cast<To>(get<From>(a)));
}
/// `cvt.rni` and its like: to nearest (n), toward zero (z), down (m), up (p).
template <typename To, typename From, char kHow, typename Out>
KJIT_SIM_INLINE void round(Out& out, const auto& a) {
  const From x = get<From>(a);
  const From rounded = kHow == 'n'   ? std::nearbyint(x)
                       : kHow == 'z' ? std::trunc(x)
                       : kHow == 'm' ? std::floor(x)
                                     : std::ceil(x);
  if constexpr (std::is_integral_v<To>) {
    put(out, to_integer<To>(rounded));
  } else {
    put(out, static_cast<To>(rounded));
  }
}

}  // namespace kjit_sim::ptx

#undef KJIT_SIM_INLINE
