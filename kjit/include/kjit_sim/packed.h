// CUDA's intrinsics for the two 16-bit or four 8-bit integers of a word, and those that combine minimum, maximum and
// addition.
//
//   const unsigned sums = __vadd4(a, b);            // four sums of bytes
//   best = __viaddmax_s32(score, gain, best);       // max(score + gain, best)

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace kjit_sim {

/// Applies `f` to each of the integers of type `T` in the words; `f` computes in 64 bits.
template <typename T, typename F, typename... Words>
constexpr unsigned packed(F&& f, Words... words) {
  unsigned result = 0;
  for (unsigned shift = 0; shift < 32; shift += sizeof(T) * 8) {
    const std::int64_t lane = f(std::int64_t{static_cast<T>(static_cast<unsigned>(words) >> shift)}...);
    result |= static_cast<unsigned>(static_cast<std::make_unsigned_t<T>>(lane)) << shift;
  }
  return result;
}

template <typename T>
constexpr std::int64_t saturated(std::int64_t x) {
  return std::clamp<std::int64_t>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
}

/// The sum of the absolute differences of the integers in two words.
template <typename T>
constexpr unsigned sum_of_differences(unsigned x, unsigned y) {
  unsigned sum = 0;
  packed<T>([&](auto a, auto b) { return sum += static_cast<unsigned>(a > b ? a - b : b - a); }, x, y);
  return sum;
}

/// The integers of a word, and 0 for the negative ones.
template <typename T, typename Word>
constexpr Word relu(Word x) {
  return static_cast<Word>(packed<T>([](auto a) { return a < 0 ? 0 : a; }, x));
}

}  // namespace kjit_sim

#define KJIT_SIM_UNARY(name, type, expression)                                        \
  inline unsigned name(unsigned x) {                                                  \
    using T [[maybe_unused]] = type;                                                  \
    return kjit_sim::packed<T>([](auto a) -> std::int64_t { return expression; }, x); \
  }
#define KJIT_SIM_BINARY(name, type, expression)                                                  \
  inline unsigned name(unsigned x, unsigned y) {                                                 \
    using T [[maybe_unused]] = type;                                                             \
    return kjit_sim::packed<T>([](auto a, auto b) -> std::int64_t { return expression; }, x, y); \
  }
#define KJIT_SIM_SIGNED(kind, name, expression) \
  KJIT_SIM_##kind(name##2, std::int16_t, expression) KJIT_SIM_##kind(name##4, std::int8_t, expression)
#define KJIT_SIM_UNSIGNED(kind, name, expression) \
  KJIT_SIM_##kind(name##2, std::uint16_t, expression) KJIT_SIM_##kind(name##4, std::uint8_t, expression)
#define KJIT_SIM_BOTH(name, expression)        \
  KJIT_SIM_SIGNED(BINARY, name##s, expression) \
  KJIT_SIM_UNSIGNED(BINARY, name##u, expression)
#define KJIT_SIM_COMPARISON(name, comparison)          \
  KJIT_SIM_BOTH(__vcmp##name, a comparison b ? -1 : 0) \
  KJIT_SIM_BOTH(__vset##name, a comparison b)

KJIT_SIM_UNSIGNED(BINARY, __vadd, a + b)
KJIT_SIM_UNSIGNED(BINARY, __vsub, a - b)
KJIT_SIM_SIGNED(BINARY, __vaddss, kjit_sim::saturated<T>(a + b))
KJIT_SIM_SIGNED(BINARY, __vsubss, kjit_sim::saturated<T>(a - b))
KJIT_SIM_UNSIGNED(BINARY, __vaddus, kjit_sim::saturated<T>(a + b))
KJIT_SIM_UNSIGNED(BINARY, __vsubus, kjit_sim::saturated<T>(a - b))
KJIT_SIM_SIGNED(UNARY, __vneg, -a)
KJIT_SIM_SIGNED(UNARY, __vnegss, kjit_sim::saturated<T>(-a))
KJIT_SIM_SIGNED(UNARY, __vabs, a < 0 ? -a : a)
KJIT_SIM_SIGNED(UNARY, __vabsss, kjit_sim::saturated<T>(a < 0 ? -a : a))
KJIT_SIM_BOTH(__vabsdiff, a > b ? a - b : b - a)
KJIT_SIM_BOTH(__vmin, a < b ? a : b)
KJIT_SIM_BOTH(__vmax, a > b ? a : b)
// The average, rounded away from zero; `__vhaddu` rounds down.
KJIT_SIM_BOTH(__vavg, (a + b + (a + b >= 0)) >> 1)
KJIT_SIM_UNSIGNED(BINARY, __vhaddu, (a + b) >> 1)
KJIT_SIM_UNSIGNED(BINARY, __vcmpeq, a == b ? -1 : 0)
KJIT_SIM_UNSIGNED(BINARY, __vcmpne, a != b ? -1 : 0)
KJIT_SIM_UNSIGNED(BINARY, __vseteq, a == b)
KJIT_SIM_UNSIGNED(BINARY, __vsetne, a != b)
KJIT_SIM_COMPARISON(ge, >=)
KJIT_SIM_COMPARISON(gt, >)
KJIT_SIM_COMPARISON(le, <=)
KJIT_SIM_COMPARISON(lt, <)
#undef KJIT_SIM_COMPARISON
#undef KJIT_SIM_BOTH
#undef KJIT_SIM_UNSIGNED
#undef KJIT_SIM_SIGNED
#undef KJIT_SIM_BINARY
#undef KJIT_SIM_UNARY

#define KJIT_SIM_DIFFERENCES(name, type)             \
  inline unsigned name(unsigned x, unsigned y) {     \
    return kjit_sim::sum_of_differences<type>(x, y); \
  }
KJIT_SIM_DIFFERENCES(__vsads2, std::int16_t)
KJIT_SIM_DIFFERENCES(__vsads4, std::int8_t)
KJIT_SIM_DIFFERENCES(__vsadu2, std::uint16_t)
KJIT_SIM_DIFFERENCES(__vsadu4, std::uint8_t)
#undef KJIT_SIM_DIFFERENCES

// Minimum and maximum of two or three. A sum wraps around; `_relu` is at least 0; the predicates say whether the first
// operand is the result.

#define KJIT_SIM_WORDS(of, suffix, word, T)                                                                            \
  inline word __vi##of##3_##suffix(word x, word y, word z) {                                                           \
    return static_cast<word>(kjit_sim::packed<T>([](auto a, auto b, auto c) { return std::of({a, b, c}); }, x, y, z)); \
  }                                                                                                                    \
  inline word __viadd##of##_##suffix(word x, word y, word z) {                                                         \
    const auto larger = [](auto a, auto b, auto c) { return std::of<std::int64_t>(static_cast<T>(a + b), c); };        \
    return static_cast<word>(kjit_sim::packed<T>(larger, x, y, z));                                                    \
  }
#define KJIT_SIM_RELU(of, suffix, word, T)                            \
  inline word __vi##of##_##suffix##_relu(word x, word y) {            \
    return kjit_sim::relu<T>(__vi##of##3_##suffix(x, x, y));          \
  }                                                                   \
  inline word __vi##of##3_##suffix##_relu(word x, word y, word z) {   \
    return kjit_sim::relu<T>(__vi##of##3_##suffix(x, y, z));          \
  }                                                                   \
  inline word __viadd##of##_##suffix##_relu(word x, word y, word z) { \
    return kjit_sim::relu<T>(__viadd##of##_##suffix(x, y, z));        \
  }
#define KJIT_SIM_PREDICATE(of, better, suffix, word)                 \
  inline word __vib##of##_##suffix(word x, word y, bool* is_first) { \
    *is_first = x better y;                                          \
    return *is_first ? x : y;                                        \
  }
#define KJIT_SIM_PREDICATES(of, better, suffix, T)                                                        \
  inline unsigned __vib##of##_##suffix(unsigned x, unsigned y, bool* is_high_first, bool* is_low_first) { \
    *is_high_first = static_cast<T>(x >> 16) better static_cast<T>(y >> 16);                              \
    *is_low_first = static_cast<T>(x) better static_cast<T>(y);                                           \
    return __vi##of##3_##suffix(x, x, y);                                                                 \
  }
#define KJIT_SIM_EXTREMUM(of, better)                  \
  KJIT_SIM_WORDS(of, s32, int, std::int32_t)           \
  KJIT_SIM_WORDS(of, u32, unsigned, std::uint32_t)     \
  KJIT_SIM_WORDS(of, s16x2, unsigned, std::int16_t)    \
  KJIT_SIM_WORDS(of, u16x2, unsigned, std::uint16_t)   \
  KJIT_SIM_RELU(of, s32, int, std::int32_t)            \
  KJIT_SIM_RELU(of, s16x2, unsigned, std::int16_t)     \
  KJIT_SIM_PREDICATE(of, better, s32, int)             \
  KJIT_SIM_PREDICATE(of, better, u32, unsigned)        \
  KJIT_SIM_PREDICATES(of, better, s16x2, std::int16_t) \
  KJIT_SIM_PREDICATES(of, better, u16x2, std::uint16_t)
KJIT_SIM_EXTREMUM(max, >=)
KJIT_SIM_EXTREMUM(min, <=)
#undef KJIT_SIM_EXTREMUM
#undef KJIT_SIM_PREDICATES
#undef KJIT_SIM_PREDICATE
#undef KJIT_SIM_RELU
#undef KJIT_SIM_WORDS
