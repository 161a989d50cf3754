// What the build makes of inline PTX (kjit/build/rewrite.py has the list): each instruction is a call of one of these.
//
//   asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(out) : "r"(a), "r"(b));   // PTX
//   ::kjit_sim::ptx::prmt((out), (a), (b), 0x7632);                      // becomes
//
// Results come first, as in PTX. Values are those of the PTX ISA, "Instruction Set".

#pragma once

#include <kjit_sim/intrinsics.h>
#include <kjit_sim/threads.h>

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
