// What the build makes of inline PTX (kjit/build/rewrite.py has the list): each instruction is a call of one of these.
//
//   asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(out) : "r"(a), "r"(b));   // PTX
//   ::kjit_sim::ptx::prmt((out), (a), (b), 0x7632);                      // becomes
//
// Results come first, as in PTX. Values are those of the PTX ISA, "Instruction Set".

#pragma once

#include <kjit_sim/intrinsics.h>
#include <kjit_sim/mbarrier.h>
#include <kjit_sim/threads.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit_sim {

/// Where the byte at this place of shared memory is, as PTX counts it (`shared_offset`).
void* shared_at(std::uint32_t offset);

namespace ptx {

#define KJIT_SIM_INLINE __attribute__((always_inline)) inline

/// A register gets a value: its bits where both are as large, else the integer.
template <typename Out, typename T>
KJIT_SIM_INLINE void put(Out& out, T value) {
  if constexpr (sizeof(Out) == sizeof(T)) {
    __builtin_memcpy(static_cast<void*>(&out), &value, sizeof(T));
  } else {
    static_assert(std::is_integral_v<Out> && std::is_integral_v<T>, "a register is as large as the instruction's type");
    out = static_cast<Out>(value);
  }
}
/// A register's value as that of an instruction's type.
template <typename T, typename In>
KJIT_SIM_INLINE T get(const In& in) {
  if constexpr (sizeof(T) == sizeof(In)) {
    T value;
    __builtin_memcpy(static_cast<void*>(&value), &in, sizeof(T));
    return value;
  } else {
    return static_cast<T>(in);
  }
}

template <typename A>
KJIT_SIM_INLINE char* global(A address, std::ptrdiff_t offset) {
  return reinterpret_cast<char*>(get<std::uintptr_t>(address)) + offset;
}

template <typename T, std::size_t kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];
};

/// `ld.global` of one value or of a vector.
template <typename T, typename A, typename... Out>
KJIT_SIM_INLINE void load(A address, std::ptrdiff_t offset, Out&... out) {
  const auto from = *reinterpret_cast<const Vector<T, sizeof...(Out)>*>(global(address, offset));
  std::size_t i = 0;
  (put(out, from.values[i++]), ...);
}
/// `st.global` of one value or of a vector.
template <typename T, typename A, typename... In>
KJIT_SIM_INLINE void store(A address, std::ptrdiff_t offset, const In&... in) {
  *reinterpret_cast<Vector<T, sizeof...(In)>*>(global(address, offset)) = {{get<T>(in)...}};
}

/// `cp.async`: copies at once. Of `size` bytes only the first `source_size` are read, and the others become zero.
template <typename A>
KJIT_SIM_INLINE void copy_async(std::uint32_t to, std::ptrdiff_t to_offset, A from, std::ptrdiff_t from_offset,
                                std::size_t size, std::size_t source_size) {
  char* const target = static_cast<char*>(shared_at(to)) + to_offset;
  memcpy(target, global(from, from_offset), source_size);
  if (source_size < size) memset(target + source_size, 0, size - source_size);
}
template <typename A>
KJIT_SIM_INLINE void copy_async(std::uint32_t to, std::ptrdiff_t to_offset, A from, std::ptrdiff_t from_offset,
                                std::size_t size) {
  copy_async(to, to_offset, from, from_offset, size, size);
}

/// Bytes of `a` and `b` by a selector of four digits.
template <typename Out>
KJIT_SIM_INLINE void prmt(Out& out, std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  put(out, static_cast<std::uint32_t>(__byte_perm(a, b, selector)));
}

/// Any function of three bits: `table` has its value for a = 0xf0, b = 0xcc, c = 0xaa.
template <typename Out>
KJIT_SIM_INLINE void lop3(Out& out, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if ((table >> i & 1) != 0) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  put(out, result);
}

/// `redux.sync`: what the lanes of a mask reduce to.
template <WarpOp kOp, typename Out>
KJIT_SIM_INLINE void redux(Out& out, std::uint32_t value, std::uint32_t mask) {
  put(out, static_cast<std::uint32_t>(warp_op(kOp, mask, value)));
}

/// Rounded to the nearest, ties to even; every NaN is 0x7fff.
KJIT_SIM_INLINE std::uint16_t to_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto bits = get<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
KJIT_SIM_INLINE float from_bf16(std::uint32_t bits) {
  return get<float>(bits << 16);
}

/// `cvt.rn.bf16x2.f32`: the first value goes to the upper half.
template <typename Out>
KJIT_SIM_INLINE void to_bf16x2(Out& out, float upper, float lower) {
  put(out, std::uint32_t{to_bf16(upper)} << 16 | to_bf16(lower));
}

/// A small floating-point type: bits of its exponent and of its fraction, the bits of its largest finite value.
template <int kExponentBits, int kFractionBits, std::uint32_t kLargest, std::uint32_t kNaN, bool kHasInfinity>
struct Format {
  static constexpr int kFraction = kFractionBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kFractionBits);
  static constexpr std::uint32_t kTop = kLargest;
  static constexpr std::uint32_t kNotANumber = kNaN;
  static constexpr bool kInfinite = kHasInfinity;
};
using F16 = Format<5, 10, 0x7bff, 0x7fff, true>;
using E4m3 = Format<4, 3, 0x7e, 0x7f, false>;
using E5m2 = Format<5, 2, 0x7b, 0x7f, true>;

/// Rounded to the nearest, ties to even. What is too large becomes infinity, or with `kFinite` the largest value.
template <typename F, bool kFinite>
KJIT_SIM_INLINE std::uint32_t narrow(float value) {
  if (std::isnan(value)) return F::kNotANumber;
  const std::uint32_t sign = std::signbit(value) ? F::kSign : 0;
  const double size = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return sign | (kFinite ? F::kTop : F::kTop + 1);
  const int exponent = size == 0 ? 1 - F::kBias : std::max(std::ilogb(size), 1 - F::kBias);
  // In units of the last place, whole ones are exact, and a carry goes over into the exponent.
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

/// `cvt.rn.f16x2.f32`: the first value goes to the upper half.
template <typename Out>
KJIT_SIM_INLINE void to_f16x2(Out& out, float upper, float lower) {
  put(out, narrow<F16, false>(upper) << 16 | narrow<F16, false>(lower));
}
/// `cvt.rn.satfinite.e4m3x2.f32` and its like: the first value goes to the upper byte.
template <typename F, typename Out>
KJIT_SIM_INLINE void to_fp8x2(Out& out, float upper, float lower) {
  put(out, static_cast<std::uint16_t>(narrow<F, true>(upper) << 8 | narrow<F, true>(lower)));
}
template <typename F, typename Out>
KJIT_SIM_INLINE void f16x2_to_fp8x2(Out& out, std::uint32_t pair) {
  to_fp8x2<F>(out, widen<F16>(pair >> 16), widen<F16>(pair & 0xffff));
}
template <typename F, typename Out>
KJIT_SIM_INLINE void fp8x2_to_f16x2(Out& out, std::uint16_t pair) {
  to_f16x2(out, widen<F>(pair >> 8), widen<F>(pair & 0xff));
}

/// What stands for `_`: a result that nobody wants.
struct Nowhere {};
KJIT_SIM_INLINE void put_state(Nowhere, std::uint64_t) {}
template <typename Out>
KJIT_SIM_INLINE void put_state(Out& out, std::uint64_t state) {
  put(out, state);
}

template <typename Out, typename In>
KJIT_SIM_INLINE void mov(Out& out, In value) {
  if constexpr (sizeof(Out) == sizeof(In)) {
    put(out, value);
  } else {
    out = static_cast<Out>(value);
  }
}

KJIT_SIM_INLINE std::uint64_t* mbarrier_at(std::uint32_t place, std::ptrdiff_t offset) {
  return reinterpret_cast<std::uint64_t*>(static_cast<char*>(shared_at(place)) + offset);
}
KJIT_SIM_INLINE void mbarrier_start(std::uint32_t place, std::ptrdiff_t offset, std::uint32_t count) {
  mbarrier_init(mbarrier_at(place, offset), count);
}
template <typename Out>
KJIT_SIM_INLINE void mbarrier_arrived(Out&& state, std::uint32_t place, std::ptrdiff_t offset) {
  put_state(state, mbarrier_arrive(mbarrier_at(place, offset)));
}
template <typename Out>
KJIT_SIM_INLINE void mbarrier_expects(Out&& state, std::uint32_t place, std::ptrdiff_t offset, std::uint32_t bytes) {
  put_state(state, mbarrier_arrive(mbarrier_at(place, offset), bytes));
}
/// A loop that waits for the phase of a parity.
KJIT_SIM_INLINE void mbarrier_waits(std::uint32_t place, std::ptrdiff_t offset, std::uint32_t parity) {
  while (!mbarrier_test(mbarrier_at(place, offset), parity)) yield();
}

/// a * b + c of one half, rounded once: the product of two bf16 is exact in a double, and so small a sum is rounded to
/// odd before it becomes a bf16.
KJIT_SIM_INLINE std::uint16_t fma_bf16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const double product = static_cast<double>(from_bf16(a)) * static_cast<double>(from_bf16(b));
  const auto addend = static_cast<double>(from_bf16(c));
  double sum = product + addend;
  // The exact rest of the sum (Knuth); a sum that is not exact gets an odd last bit on the side of the rest.
  const double part = sum - product;
  const double rest = (product - (sum - part)) + (addend - part);
  auto bits = get<std::int64_t>(sum);
  if (rest != 0 && std::isfinite(sum) && (bits & 1) == 0) {
    bits += (rest > 0) == (sum > 0) ? 1 : -1;
    sum = get<double>(bits);
  }
  // To a float in the same way, and from there to a bf16.
  auto narrow = static_cast<float>(sum);
  auto narrow_bits = get<std::int32_t>(narrow);
  if (static_cast<double>(narrow) != sum && std::isfinite(narrow) && (narrow_bits & 1) == 0) {
    narrow_bits += (std::fabs(sum) > std::fabs(static_cast<double>(narrow))) ? 1 : -1;
    narrow = get<float>(narrow_bits);
  }
  return to_bf16(narrow);
}
template <typename Out>
KJIT_SIM_INLINE void fma_bf16x2(Out& out, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t lower = fma_bf16(a & 0xffff, b & 0xffff, c & 0xffff);
  put(out, std::uint32_t{fma_bf16(a >> 16, b >> 16, c >> 16)} << 16 | lower);
}

#undef KJIT_SIM_INLINE

}  // namespace ptx

}  // namespace kjit_sim
