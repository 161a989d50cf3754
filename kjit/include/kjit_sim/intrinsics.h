// CUDA's intrinsics for integers, floating-point numbers and memory, in C++.
//
//   const int high = __mulhi(a, b);
//   const float y = __fdividef(x, 1.0f + __expf(-x));   // accurate to the last bits; a GPU approximates
//   const float4 v = __ldg(reinterpret_cast<const float4*>(p));

#pragma once

#include <fenv.h>
#include <kjit_sim/threads.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

// nvcc's optimiser hints, whose arguments are not evaluated.
#define __builtin_assume(...) static_cast<void>(sizeof(static_cast<bool>(__VA_ARGS__)))
#define __assume(...) __builtin_assume(__VA_ARGS__)

namespace kjit_sim {

/// Converts an integral-valued number to an integer as the hardware does: saturating. NaN becomes 0; for 64-bit
/// integers and doubles, only the highest bit is set (PTX ISA, "cvt").
template <typename To, typename From>
To to_integer(From x) {
  constexpr auto kLowest = static_cast<From>(std::numeric_limits<To>::min());
  // The largest integer plus one, a power of two and exact.
  constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
  if (x != x) {
    return sizeof(To) == 8 || sizeof(From) == 8 ? static_cast<To>(std::uint64_t{1} << (sizeof(To) * 8 - 1)) : To{0};
  }
  if (x < kLowest) return std::numeric_limits<To>::min();
  if (x >= kEnd) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

/// Hides a value from the optimiser; it is not moved across function calls.
template <typename T>
T opaque(T value) {
  __asm__ volatile("" : "+m"(value) : : "memory");
  return value;
}

/// Evaluates an expression in another rounding mode.
template <int kMode, typename T, typename F, typename... Args>
T rounded(F&& f, Args... args) {
  const int before = fegetround();
  fesetround(kMode);
  const T result = opaque(f(opaque(args)...));
  fesetround(before);
  return result;
}

template <typename A, typename B>
concept MinMax = std::is_arithmetic_v<A> && std::is_arithmetic_v<B>;

}  // namespace kjit_sim

// Integers.

KJIT_SIM_FUNCTION(int, __clz, (int x), x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)))
KJIT_SIM_FUNCTION(int, __clzll, (long long x), x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)))
KJIT_SIM_FUNCTION(int, __ffs, (int x), __builtin_ffs(x))
KJIT_SIM_FUNCTION(int, __ffsll, (long long x), __builtin_ffsll(x))
KJIT_SIM_FUNCTION(int, __popc, (unsigned x), __builtin_popcount(x))
KJIT_SIM_FUNCTION(int, __popcll, (unsigned long long x), __builtin_popcountll(x))
inline unsigned long long __brevll(unsigned long long x) {
  x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
  x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
  return __builtin_bswap64(x);
}
KJIT_SIM_FUNCTION(unsigned, __brev, (unsigned x), __brevll(x) >> 32)
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned code = selector >> (4 * i);
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (code & 7))) & 0xff;
    if ((code & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // replicates the sign bit
    result |= byte << (8 * i);
  }
  return result;
}
KJIT_SIM_FUNCTION(int, __mulhi, (int a, int b), (static_cast<long long>(a) * b) >> 32)
KJIT_SIM_FUNCTION(unsigned, __umulhi, (unsigned a, unsigned b), (static_cast<unsigned long long>(a) * b) >> 32)
KJIT_SIM_FUNCTION(long long, __mul64hi, (long long a, long long b), (static_cast<__int128>(a) * b) >> 64)
KJIT_SIM_FUNCTION(unsigned long long, __umul64hi, (unsigned long long a, unsigned long long b),
                  (static_cast<unsigned __int128>(a) * b) >> 64)
KJIT_SIM_FUNCTION(int, __mul24, (int a, int b),
                  static_cast<unsigned>(static_cast<long long>(a << 8 >> 8) * (b << 8 >> 8)))
KJIT_SIM_FUNCTION(unsigned, __umul24, (unsigned a, unsigned b), (a & 0xffffff) * (b & 0xffffff))
KJIT_SIM_FUNCTION(int, __sad, (int a, int b, unsigned sum),
                  sum + static_cast<unsigned>(a > b ? static_cast<long long>(a) - b : static_cast<long long>(b) - a))
KJIT_SIM_FUNCTION(unsigned, __usad, (unsigned a, unsigned b, unsigned sum), sum + (a > b ? a - b : b - a))
KJIT_SIM_FUNCTION(int, __hadd, (int a, int b), (static_cast<long long>(a) + b) >> 1)
KJIT_SIM_FUNCTION(int, __rhadd, (int a, int b), (static_cast<long long>(a) + b + 1) >> 1)
KJIT_SIM_FUNCTION(unsigned, __uhadd, (unsigned a, unsigned b), (static_cast<unsigned long long>(a) + b) >> 1)
KJIT_SIM_FUNCTION(unsigned, __urhadd, (unsigned a, unsigned b), (static_cast<unsigned long long>(a) + b + 1) >> 1)
KJIT_SIM_FUNCTION(unsigned, __funnelshift_l, (unsigned low, unsigned high, unsigned shift),
                  (static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32)
KJIT_SIM_FUNCTION(unsigned, __funnelshift_lc, (unsigned low, unsigned high, unsigned shift),
                  shift >= 32 ? low : __funnelshift_l(low, high, shift))
KJIT_SIM_FUNCTION(unsigned, __funnelshift_r, (unsigned low, unsigned high, unsigned shift),
                  (static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31))
KJIT_SIM_FUNCTION(unsigned, __funnelshift_rc, (unsigned low, unsigned high, unsigned shift),
                  shift >= 32 ? high : __funnelshift_r(low, high, shift))
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  const int step = offset < 0 ? -1 : 1;
  int left = offset < 0 ? -offset : offset;
  for (int bit = static_cast<int>(base); bit >= 0 && bit < 32; bit += step) {
    if ((mask >> bit & 1) == 0) {
      if (offset == 0) break;
      continue;
    }
    if (left == 0 || --left == 0) return static_cast<unsigned>(bit);
  }
  return 0xffffffff;
}
inline int __dp4a(int a, int b, int sum) {
  auto result = static_cast<unsigned>(sum);
  for (int i = 0; i < 32; i += 8)
    result += static_cast<unsigned>(static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i));
  return static_cast<int>(result);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xff) * (b >> i & 0xff);
  return sum;
}
KJIT_SIM_FUNCTION(int, __dp4a, (char4 a, char4 b, int sum), sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w)
KJIT_SIM_FUNCTION(unsigned, __dp4a, (uchar4 a, uchar4 b, unsigned sum),
                  sum + static_cast<unsigned>(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w))
KJIT_SIM_FUNCTION(int, __dp2a_lo, (int a, int b, int sum),
                  sum + static_cast<short>(a) * static_cast<signed char>(b) +
                      (a >> 16) * static_cast<signed char>(b >> 8))
KJIT_SIM_FUNCTION(int, __dp2a_hi, (int a, int b, int sum), __dp2a_lo(a, b >> 16, sum))

template <typename A, typename B>
  requires kjit_sim::MinMax<A, B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x != x || x < y ? y : x;  // NaN only if both are
}
template <typename A, typename B>
  requires kjit_sim::MinMax<A, B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x != x || y < x ? y : x;
}
KJIT_SIM_FUNCTION(unsigned, umin, (unsigned a, unsigned b), a < b ? a : b)
KJIT_SIM_FUNCTION(unsigned, umax, (unsigned a, unsigned b), a > b ? a : b)
KJIT_SIM_FUNCTION(long long, llmin, (long long a, long long b), a < b ? a : b)
KJIT_SIM_FUNCTION(long long, llmax, (long long a, long long b), a > b ? a : b)
KJIT_SIM_FUNCTION(unsigned long long, ullmin, (unsigned long long a, unsigned long long b), a < b ? a : b)
KJIT_SIM_FUNCTION(unsigned long long, ullmax, (unsigned long long a, unsigned long long b), a > b ? a : b)

// Bits.

KJIT_SIM_FUNCTION(int, __float_as_int, (float x), kjit_sim::to_bits(x))
KJIT_SIM_FUNCTION(unsigned, __float_as_uint, (float x), kjit_sim::to_bits(x))
KJIT_SIM_FUNCTION(float, __int_as_float, (int x), kjit_sim::from_bits<float>(static_cast<unsigned>(x)))
KJIT_SIM_FUNCTION(float, __uint_as_float, (unsigned x), kjit_sim::from_bits<float>(x))
KJIT_SIM_FUNCTION(long long, __double_as_longlong, (double x), kjit_sim::to_bits(x))
KJIT_SIM_FUNCTION(double, __longlong_as_double, (long long x),
                  kjit_sim::from_bits<double>(static_cast<std::uint64_t>(x)))
KJIT_SIM_FUNCTION(int, __double2hiint, (double x), kjit_sim::to_bits(x) >> 32)
KJIT_SIM_FUNCTION(int, __double2loint, (double x), kjit_sim::to_bits(x))
KJIT_SIM_FUNCTION(double, __hiloint2double, (int high, int low),
                  kjit_sim::from_bits<double>(static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32 |
                                              static_cast<unsigned>(low)))

// Conversions with a rounding mode: to nearest, towards zero, up, down.

#define KJIT_SIM_TO_INTEGER(prefix, from, suffix, to) \
  inline to prefix##2##suffix##_rn(from x) {          \
    return kjit_sim::to_integer<to>(::nearbyint(x));  \
  }                                                   \
  inline to prefix##2##suffix##_rz(from x) {          \
    return kjit_sim::to_integer<to>(::trunc(x));      \
  }                                                   \
  inline to prefix##2##suffix##_ru(from x) {          \
    return kjit_sim::to_integer<to>(::ceil(x));       \
  }                                                   \
  inline to prefix##2##suffix##_rd(from x) {          \
    return kjit_sim::to_integer<to>(::floor(x));      \
  }
KJIT_SIM_TO_INTEGER(__float, float, int, int)
KJIT_SIM_TO_INTEGER(__float, float, uint, unsigned)
KJIT_SIM_TO_INTEGER(__float, float, ll, long long)
KJIT_SIM_TO_INTEGER(__float, float, ull, unsigned long long)
KJIT_SIM_TO_INTEGER(__double, double, int, int)
KJIT_SIM_TO_INTEGER(__double, double, uint, unsigned)
KJIT_SIM_TO_INTEGER(__double, double, ll, long long)
KJIT_SIM_TO_INTEGER(__double, double, ull, unsigned long long)
#undef KJIT_SIM_TO_INTEGER

#define KJIT_SIM_ROUNDED(name, suffix, mode, to, expression, ...)                                                   \
  inline to name##_##suffix(__VA_ARGS__) {                                                                          \
    return kjit_sim::rounded<mode, to>(                                                                             \
        [](auto a, [[maybe_unused]] auto b, [[maybe_unused]] auto c) -> to { return static_cast<to>(expression); }, \
        KJIT_SIM_OPERANDS);                                                                                         \
  }
#define KJIT_SIM_ALL_MODES(name, to, expression, ...)                    \
  KJIT_SIM_ROUNDED(name, rn, FE_TONEAREST, to, expression, __VA_ARGS__)  \
  KJIT_SIM_ROUNDED(name, rz, FE_TOWARDZERO, to, expression, __VA_ARGS__) \
  KJIT_SIM_ROUNDED(name, ru, FE_UPWARD, to, expression, __VA_ARGS__)     \
  KJIT_SIM_ROUNDED(name, rd, FE_DOWNWARD, to, expression, __VA_ARGS__)
#define KJIT_SIM_OPERANDS x, 0, 0
KJIT_SIM_ALL_MODES(__int2float, float, a, int x)
KJIT_SIM_ALL_MODES(__uint2float, float, a, unsigned x)
KJIT_SIM_ALL_MODES(__ll2float, float, a, long long x)
KJIT_SIM_ALL_MODES(__ull2float, float, a, unsigned long long x)
KJIT_SIM_ALL_MODES(__ll2double, double, a, long long x)
KJIT_SIM_ALL_MODES(__ull2double, double, a, unsigned long long x)
KJIT_SIM_ALL_MODES(__double2float, float, a, double x)
KJIT_SIM_ALL_MODES(__frcp, float, 1.0f / a, float x)
KJIT_SIM_ALL_MODES(__fsqrt, float, ::sqrtf(a), float x)
KJIT_SIM_ALL_MODES(__drcp, double, 1.0 / a, double x)
KJIT_SIM_ALL_MODES(__dsqrt, double, ::sqrt(a), double x)
#undef KJIT_SIM_OPERANDS
#define KJIT_SIM_OPERANDS x, y, 0
KJIT_SIM_ALL_MODES(__fadd, float, a + b, float x, float y)
KJIT_SIM_ALL_MODES(__fsub, float, a - b, float x, float y)
KJIT_SIM_ALL_MODES(__fmul, float, a* b, float x, float y)
KJIT_SIM_ALL_MODES(__fdiv, float, a / b, float x, float y)
KJIT_SIM_ALL_MODES(__dadd, double, a + b, double x, double y)
KJIT_SIM_ALL_MODES(__dsub, double, a - b, double x, double y)
KJIT_SIM_ALL_MODES(__dmul, double, a* b, double x, double y)
KJIT_SIM_ALL_MODES(__ddiv, double, a / b, double x, double y)
#undef KJIT_SIM_OPERANDS
#define KJIT_SIM_OPERANDS x, y, z
KJIT_SIM_ALL_MODES(__fmaf, float, ::fmaf(a, b, c), float x, float y, float z)
KJIT_SIM_ALL_MODES(__fmaf_ieee, float, ::fmaf(a, b, c), float x, float y, float z)
KJIT_SIM_ALL_MODES(__fma, double, ::fma(a, b, c), double x, double y, double z)
#undef KJIT_SIM_OPERANDS
#undef KJIT_SIM_ALL_MODES
#undef KJIT_SIM_ROUNDED

KJIT_SIM_FUNCTION(double, __int2double_rn, (int x), x)
KJIT_SIM_FUNCTION(double, __uint2double_rn, (unsigned x), x)

// Memory. Cache hints have no effect.

#define KJIT_SIM_LOAD(name)  \
  template <typename T>      \
  T name(const T* address) { \
    return *address;         \
  }
KJIT_SIM_LOAD(__ldg)
KJIT_SIM_LOAD(__ldca)
KJIT_SIM_LOAD(__ldcg)
KJIT_SIM_LOAD(__ldcs)
KJIT_SIM_LOAD(__ldlu)
#undef KJIT_SIM_LOAD
template <typename T>
T __ldcv(const T* address) {
  kjit_sim::looked();
  return *static_cast<const volatile T*>(address);
}
#define KJIT_SIM_STORE(name)                             \
  template <typename T>                                  \
  void name(T* address, std::type_identity_t<T> value) { \
    *address = value;                                    \
  }
KJIT_SIM_STORE(__stwb)
KJIT_SIM_STORE(__stcg)
KJIT_SIM_STORE(__stcs)
KJIT_SIM_STORE(__stwt)
#undef KJIT_SIM_STORE

// Clocks, in nanoseconds.

inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  kjit_sim::looked();
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
KJIT_SIM_FUNCTION(unsigned long long, globaltimer, (), clock64())
