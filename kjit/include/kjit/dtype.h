// The element types of tensors under the same names in CUDA and plain C++ units.
//
//   fp16_t h = 1.5f;  bf16_t b = static_cast<float>(h);       // fp32_t fp16_t bf16_t fp8_e4m3_t fp8_e5m2_t
//   using C = compute_t<T>;                                   // float for every narrow floating type, else T
//   host::is_type<fp16_t>(view.dtype());
//
// In a CUDA unit the names are CUDA's own types, which are only declared here: <cuda_fp16.h> and its relatives define
// them (kjit/utils.cuh includes all of them), and take over half as long to compile as an empty kernel.
//
// In a CUDA unit that defines KJIT_LIGHT_TYPES before its first include, and in every plain C++ unit, they are small
// types of kjit's own with the same size, alignment and bits: stored as bits, computed in float. So `a * b` is a float,
// and `c = a * b` rounds it. CUDA's functions (`__half2float`, `__hmul2`) do not accept them.

#pragma once

#include <dlpack/dlpack.h>
#include <kjit/utils.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// Whether the names are CUDA's types in this unit; decided once.
#if defined(__CUDACC__) && !defined(KJIT_LIGHT_TYPES)
#define KJIT_CUDA_TYPES 1
struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;
struct __nv_fp8_e4m3;
struct __nv_fp8x2_e4m3;
struct __nv_fp8x4_e4m3;
struct __nv_fp8_e5m2;
struct __nv_fp8x2_e5m2;
struct __nv_fp8x4_e5m2;
#else
#define KJIT_CUDA_TYPES 0
#endif

namespace kjit {

namespace dtype_details {

// For functions with an instruction of GPUs.
#ifdef __CUDACC__
#define KJIT_CONVERSION_ __host__ __device__ constexpr
#else
#define KJIT_CONVERSION_ constexpr
#endif

constexpr std::uint32_t float_bits(float value);
constexpr float bits_float(std::uint32_t bits);

KJIT_CONVERSION_ float half_to_float(std::uint16_t half);
KJIT_CONVERSION_ std::uint16_t float_to_half(float value);
KJIT_CONVERSION_ float bfloat_to_float(std::uint16_t bfloat);
KJIT_CONVERSION_ std::uint16_t float_to_bfloat(float value);

}  // namespace dtype_details

constexpr std::uint32_t dtype_details::float_bits(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
constexpr float dtype_details::bits_float(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// Conversions of bits. One instruction each on a GPU; elsewhere branch-free, so that loops over them vectorise.

// IEEE binary16. The shift leaves the exponent 112 too small; multiplying by 2^112 corrects it, and normalises
// subnormals in the same step, exactly.
KJIT_CONVERSION_ float dtype_details::half_to_float(std::uint16_t half) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  }
#endif
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  const std::uint32_t scaled = float_bits(bits_float(magnitude) * 0x1p112f);
  const std::uint32_t inf_or_nan = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return bits_float(scaled | inf_or_nan | ((half & 0x8000u) << 16));
}

// Round to nearest, ties to even. Below 2^-14 the result is subnormal: adding 0.5f, whose last bit has the value 2^-24,
// makes the floating-point adder round. Above 65,520 the carry of the rounding produces infinity.
KJIT_CONVERSION_ std::uint16_t dtype_details::float_to_half(float value) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    std::uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
  }
#endif
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? special : result;
  return static_cast<std::uint16_t>(result | sign);
}

KJIT_CONVERSION_ float dtype_details::bfloat_to_float(std::uint16_t bfloat) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    float value;  // one instruction, even for the upper half of a register, where `cvt` and a shift are two
    asm("mov.b32 %0, {%1, %2};" : "=f"(value) : "h"(std::uint16_t{0}), "h"(bfloat));
    return value;
  }
#endif
  return bits_float(static_cast<std::uint32_t>(bfloat) << 16);
}

KJIT_CONVERSION_ std::uint16_t dtype_details::float_to_bfloat(float value) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    std::uint16_t bfloat;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bfloat) : "f"(value));
    return bfloat;
  }
#endif
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>(value != value ? nan : rounded);
}

namespace dtype_details {

// The 8-bit formats of the OCP 8-bit Floating Point Specification (revision 1.0): E4M3 has no infinity and one NaN
// (S.1111.111), E5M2 is IEEE-like. Conversions saturate, as CUDA's do: values out of range, infinity included, become
// the largest finite value of their sign (448 and 57,344).
template <bool kE4M3>
KJIT_CONVERSION_ float float8_to_float(std::uint8_t code) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (!std::is_constant_evaluated()) {
    std::uint32_t halves;
    if constexpr (kE4M3) {
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(code)));
    } else {
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(code)));
    }
    return half_to_float(static_cast<std::uint16_t>(halves));
  }
#endif
  constexpr int kMantissa = kE4M3 ? 3 : 2;
  constexpr int kBias = kE4M3 ? 7 : 15;
  const std::uint32_t magnitude = code & 0x7fu;
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  std::uint32_t special = 0;
  if (kE4M3) {
    special = magnitude == 0x7fu ? 0x7fc00000u : 0u;
  } else {
    special = magnitude >= 0x7cu ? 0x7f800000u : 0u;
  }
  const float scale = bits_float(static_cast<std::uint32_t>(127 + 127 - kBias) << 23);
  return bits_float(float_bits(bits_float(magnitude << (23 - kMantissa)) * scale) | special | sign);
}

template <bool kE4M3>
KJIT_CONVERSION_ std::uint8_t float_to_float8(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (!std::is_constant_evaluated()) {
    std::uint16_t codes;  // of zero, and of the value in the low byte
    if constexpr (kE4M3) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(0.0f), "f"(value));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(0.0f), "f"(value));
    }
    return static_cast<std::uint8_t>(codes);
  }
#endif
  constexpr int kMantissa = kE4M3 ? 3 : 2;
  constexpr int kBias = kE4M3 ? 7 : 15;
  constexpr std::uint32_t kLargest = kE4M3 ? 0x7e : 0x7b;
  constexpr int kShift = 23 - kMantissa;
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude - (static_cast<std::uint32_t>(127 - kBias) << 23) +
                                ((1u << (kShift - 1)) - 1u) + ((magnitude >> kShift) & 1u)) >>
                               kShift;
  // As for binary16: the last bit of `anchor` has the value of the smallest subnormal, 2^(1 - bias - mantissa).
  const std::uint32_t anchor = static_cast<std::uint32_t>(127 + 23 + 1 - kBias - kMantissa) << 23;
  const std::uint32_t subnormal = float_bits(bits_float(magnitude) + bits_float(anchor)) - anchor;
  std::uint32_t result = magnitude < (static_cast<std::uint32_t>(128 - kBias) << 23) ? subnormal : normal;
  result = magnitude >= (143u << 23) || result > kLargest ? kLargest : result;  // 143: 2^16 is out of range for both
  result = magnitude > 0x7f800000u ? 0x7fu : result;
  return static_cast<std::uint8_t>(result | sign);
}

#undef KJIT_CONVERSION_

}  // namespace dtype_details

using fp32_t = float;
#ifdef __CUDACC__
using fp32x2_t = float2;
using fp32x4_t = float4;
#endif

#if KJIT_CUDA_TYPES

using fp16_t = __half;
using bf16_t = __nv_bfloat16;
using fp8_e4m3_t = __nv_fp8_e4m3;
using fp8_e5m2_t = __nv_fp8_e5m2;

using fp16x2_t = __half2;
using bf16x2_t = __nv_bfloat162;
using fp8x2_e4m3_t = __nv_fp8x2_e4m3;
using fp8x2_e5m2_t = __nv_fp8x2_e5m2;

using fp8x4_e4m3_t = __nv_fp8x4_e4m3;
using fp8x4_e5m2_t = __nv_fp8x4_e5m2;

#else

#define KJIT_LIGHT_TYPE_(name, word, from_float, to_float)                      \
  struct name {                                                                 \
    word bits;                                                                  \
    name() = default;                                                           \
    constexpr name(float value);                                                \
    constexpr operator float() const;                                           \
  };                                                                            \
  constexpr name::name(float value) : bits(dtype_details::from_float(value)) {} \
  constexpr name::operator float() const {                                      \
    return dtype_details::to_float(bits);                                       \
  }
KJIT_LIGHT_TYPE_(fp16_t, std::uint16_t, float_to_half, half_to_float)
KJIT_LIGHT_TYPE_(bf16_t, std::uint16_t, float_to_bfloat, bfloat_to_float)
KJIT_LIGHT_TYPE_(fp8_e4m3_t, std::uint8_t, float_to_float8<true>, float8_to_float<true>)
KJIT_LIGHT_TYPE_(fp8_e5m2_t, std::uint8_t, float_to_float8<false>, float8_to_float<false>)
#undef KJIT_LIGHT_TYPE_

/// Packed types of two and four elements.
struct alignas(4) fp16x2_t {
  fp16_t x, y;
};
struct alignas(4) bf16x2_t {
  bf16_t x, y;
};
struct alignas(2) fp8x2_e4m3_t {
  fp8_e4m3_t x, y;
};
struct alignas(2) fp8x2_e5m2_t {
  fp8_e5m2_t x, y;
};
struct alignas(4) fp8x4_e4m3_t {
  fp8_e4m3_t x, y, z, w;
};
struct alignas(4) fp8x4_e5m2_t {
  fp8_e5m2_t x, y, z, w;
};

namespace dtype_details {

/// For operators. Not a concept: clang before 20 checked those too late, with an error for non-class types.
template <typename T>
using IfLightType = std::enable_if_t<std::is_same_v<T, fp16_t> || std::is_same_v<T, bf16_t> ||
                                         std::is_same_v<T, fp8_e4m3_t> || std::is_same_v<T, fp8_e5m2_t>,
                                     bool>;

}  // namespace dtype_details

/// `x += y` and the like: computed in float, rounded once.
#define KJIT_IN_PLACE_(op)                                    \
  template <typename T, dtype_details::IfLightType<T> = true> \
  constexpr T& operator op## = (T & x, float y) {             \
    return x = static_cast<float>(x) op y;                    \
  }
KJIT_IN_PLACE_(+)
KJIT_IN_PLACE_(-)
KJIT_IN_PLACE_(*)
KJIT_IN_PLACE_(/)
#undef KJIT_IN_PLACE_

#endif

/// The type of arithmetic on elements of type `T`: float for narrow floating-point types, otherwise `T`.
template <typename T>
struct compute_type {
  using type = T;
};
template <>
struct compute_type<fp16_t> : compute_type<float> {};
template <>
struct compute_type<bf16_t> : compute_type<float> {};
template <>
struct compute_type<fp8_e4m3_t> : compute_type<float> {};
template <>
struct compute_type<fp8_e5m2_t> : compute_type<float> {};
template <typename T>
using compute_t = typename compute_type<T>::type;

/// The type of a scalar argument beside elements of types `Ts`: double if one of them is, otherwise float.
template <typename... Ts>
using scalar_t = std::common_type_t<float, compute_t<Ts>...>;

/// An element converted exactly to the type it is computed in: `static_cast<compute_t<T>>(x)`, in the fewest
/// instructions.
template <typename T>
constexpr compute_t<T> widen(const T& x) {
#if KJIT_CUDA_TYPES && defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, bf16_t>) return dtype_details::bfloat_to_float(__builtin_bit_cast(std::uint16_t, x));
#endif
  return static_cast<compute_t<T>>(x);
}

namespace host {

namespace details {

template <typename Code>
constexpr DLDataType make_dtype(Code code, std::size_t bytes) {
  return DLDataType{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bytes * 8), 1};
}

/// The DLPack dtype of a C++ type, as `DLDataTypeTrait<T>::value`; undefined for types that are no element type.
template <typename T>
struct DLDataTypeTrait;

template <std::integral T>
struct DLDataTypeTrait<T> {
  static constexpr DLDataType value = make_dtype(std::is_signed_v<T> ? kDLInt : kDLUInt, sizeof(T));
};
template <>
struct DLDataTypeTrait<bool> {  // torch.bool has a type code of its own
  static constexpr DLDataType value = make_dtype(kDLBool, 1);
};
template <std::floating_point T>
struct DLDataTypeTrait<T> {
  static constexpr DLDataType value = make_dtype(kDLFloat, sizeof(T));
};
template <>
struct DLDataTypeTrait<fp16_t> {
  static constexpr DLDataType value = make_dtype(kDLFloat, 2);
};
template <>
struct DLDataTypeTrait<bf16_t> {
  static constexpr DLDataType value = make_dtype(kDLBfloat, 2);
};
template <>
struct DLDataTypeTrait<fp8_e4m3_t> {
  static constexpr DLDataType value = make_dtype(kDLFloat8_e4m3fn, 1);
};
template <>
struct DLDataTypeTrait<fp8_e5m2_t> {
  static constexpr DLDataType value = make_dtype(kDLFloat8_e5m2, 1);
};

}  // namespace details

/// Whether `dtype` is the dtype of tensors with elements of C++ type `T`.
template <typename T>
constexpr bool is_type(DLDataType dtype) {
  return details::same_dtype(dtype, details::DLDataTypeTrait<T>::value);
}

}  // namespace host

}  // namespace kjit
