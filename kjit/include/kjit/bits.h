// Powers of two and base-2 logarithms of unsigned integers, at compile time or at run time.
//
//   static_assert(host::is_pow2(kThreads) && host::log2_floor(kThreads) == 7);
//   const uint32_t padded = host::round_up_pow2(n);
//
// All of them are constexpr, so device code may use them in constant expressions.

#pragma once

#include <kjit/language.h>

#include <bit>
#include <concepts>
#include <cstdint>

namespace kjit::host {

/// Whether `x` is a power of two; false for 0.
template <std::unsigned_integral T>
constexpr bool is_pow2(T x) {
  return std::has_single_bit(x);
}

/// log2(x) rounded down; -1 for 0.
template <std::unsigned_integral T>
constexpr std::int32_t log2_floor(T x) {
  return static_cast<std::int32_t>(sizeof(T)) * 8 - std::countl_zero(x) - 1;
}

/// log2(x) rounded up; -1 for 0.
template <std::unsigned_integral T>
constexpr std::int32_t log2_ceil(T x) {
  if (x == 0) return -1;
  return static_cast<std::int32_t>(sizeof(T)) * 8 - std::countl_zero(static_cast<T>(x - 1));
}

/// The smallest power of two not below `x`; 1 for 0. On overflow of `T` the result is 0, at run time as at compile
/// time, where `std::bit_ceil` is undefined.
template <std::unsigned_integral T>
constexpr T round_up_pow2(T x) {
  if (x > static_cast<T>(~(static_cast<T>(~T{0}) >> 1))) return 0;
  return std::bit_ceil(x);
}

/// The largest power of two not above `x`; 0 for 0.
template <std::unsigned_integral T>
constexpr T round_down_pow2(T x) {
  return std::bit_floor(x);
}

}  // namespace kjit::host
