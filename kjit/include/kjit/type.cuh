// What is known about an element type, and conversions between any two: DTypeTrait, packed types, cast, unpack.
//
//   const fp32x2_t xy = device::cast<fp32x2_t>(pair_of_halves);    // any scalar to any scalar, any pair to any pair
//   packed_t<bf16_t> pair = device::cast<packed_t<bf16_t>>(xy);    // bf16x2_t
//   for (auto& x : device::unpack(pair)) x = DTypeTrait<bf16_t>::abs(x);
//
// Rounding is to nearest, ties to even, in one step. To an 8-bit type, what is too large, infinity included, becomes
// the largest finite value of its sign (448 for e4m3, 57,344 for e5m2) and NaN stays NaN. To an integer, the fraction
// is dropped; out of the integer's range the result means nothing, as in C++.

#pragma once

#include <kjit/utils.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kjit {

/// What is known about the element type `T`, a scalar or two or four of them packed:
///
/// - `self_t` is `T`, `packed_t` the type of two of it (void: there is none), `unpacked_t` the scalar that it is made
/// of,
///   and `kVecSize` how many of those;
/// - `from(x)` converts from any type with as many elements (see `device::cast`);
/// - `abs(x)`, `max(x, y)`, `min(x, y)`, element by element. Where one operand is NaN, `max` and `min` give the other;
/// - `kFloatMax` is the largest finite value as a float, and `kZeroBits` the bits of zero (floating-point scalars).
template <typename T>
struct DTypeTrait;

/// Another name for `DTypeTrait`.
template <typename T>
using dtype_trait = DTypeTrait<T>;

/// Two elements of type `T` in one: `packed_t<bf16_t>` is `bf16x2_t`.
template <typename T>
using packed_t = typename DTypeTrait<T>::packed_t;

/// The largest finite values of the 8-bit types.
inline constexpr float kFP8E4M3Max = 448.0f;
inline constexpr float kFP8E5M2Max = 57344.0f;

/// Whether `T` is a 16-bit floating type, or an 8-bit one.
template <typename T>
inline constexpr bool is_half_v = std::is_same_v<T, fp16_t> || std::is_same_v<T, bf16_t>;
template <typename T>
inline constexpr bool is_fp8_v = std::is_same_v<T, fp8_e4m3_t> || std::is_same_v<T, fp8_e5m2_t>;

/// The elements of `T` as an array, constant where `T` is.
template <typename T, typename Trait = DTypeTrait<std::remove_const_t<T>>>
using unpacked_array_t = std::conditional_t<std::is_const_v<T>, const typename Trait::unpacked_t,
                                            typename Trait::unpacked_t>[Trait::kVecSize];

namespace device {

/// The elements of a packed value as an array that refers to it: writing to one changes the value.
template <typename T>
KJIT_DEVICE unpacked_array_t<T>& unpack(T& value) {
  static_assert(sizeof(T) == sizeof(unpacked_array_t<T>), "a packed type is as large as its elements");
  return reinterpret_cast<unpacked_array_t<T>&>(value);
}

/// How one type becomes another: behind `DTypeTrait<To>::from`.
struct Conversion {
  template <typename T>
  static constexpr bool is_fp8x2 = std::is_same_v<T, fp8x2_e4m3_t> || std::is_same_v<T, fp8x2_e5m2_t>;
  template <typename T>
  static constexpr bool is_fp8x4 = std::is_same_v<T, fp8x4_e4m3_t> || std::is_same_v<T, fp8x4_e5m2_t>;

  /// Narrow floating types widen to float without loss, so that one rounding is left.
  template <typename To, typename From>
  static __device__ To scalar(const From& value) {
    if constexpr (std::is_same_v<To, From>) {
      return value;
    } else if constexpr (is_half_v<From> && is_fp8_v<To>) {
      return To(value);  // sm_89 and later have an instruction for it
    } else if constexpr (is_half_v<From> || is_fp8_v<From>) {
      return scalar<To>(static_cast<float>(value));
    } else if constexpr (is_fp8_v<To>) {
      if constexpr (std::is_floating_point_v<From>) {
        return To(value);
      } else {
        return To(static_cast<float>(value));  // exact as far as these types reach
      }
    } else if constexpr (std::is_same_v<To, fp16_t>) {
      if constexpr (std::is_same_v<From, float>) {
        return __float2half_rn(value);
      } else if constexpr (std::is_same_v<From, double>) {
        return __double2half(value);
      } else if constexpr (std::is_signed_v<From>) {
        return __ll2half_rn(static_cast<long long>(value));
      } else {
        return __ull2half_rn(static_cast<unsigned long long>(value));
      }
    } else if constexpr (std::is_same_v<To, bf16_t>) {
      if constexpr (std::is_same_v<From, float>) {
        return __float2bfloat16_rn(value);
      } else if constexpr (std::is_same_v<From, double>) {
        return __double2bfloat16(value);
      } else if constexpr (std::is_signed_v<From>) {
        return __ll2bfloat16_rn(static_cast<long long>(value));
      } else {
        return __ull2bfloat16_rn(static_cast<unsigned long long>(value));
      }
    } else {
      return static_cast<To>(value);
    }
  }

  /// Both have the same number of elements. In one instruction where there is one.
  template <typename To, typename From>
  static __device__ To packed(const From& value) {
    if constexpr (std::is_same_v<To, From>) {
      return value;
    } else if constexpr (std::is_same_v<From, fp16x2_t> && std::is_same_v<To, fp32x2_t>) {
      return __half22float2(value);
    } else if constexpr (std::is_same_v<From, bf16x2_t> && std::is_same_v<To, fp32x2_t>) {
      return __bfloat1622float2(value);
    } else if constexpr (std::is_same_v<From, fp32x2_t> && std::is_same_v<To, fp16x2_t>) {
      return __float22half2_rn(value);
    } else if constexpr (std::is_same_v<From, fp32x2_t> && std::is_same_v<To, bf16x2_t>) {
      return __float22bfloat162_rn(value);
    } else if constexpr ((is_fp8x2<To> && !is_fp8x2<From>) || (is_fp8x4<To> && std::is_same_v<From, fp32x4_t>)) {
      return To(value);
    } else if constexpr ((is_fp8x2<From> && (std::is_same_v<To, fp32x2_t> || std::is_same_v<To, fp16x2_t>)) ||
                         (is_fp8x4<From> && std::is_same_v<To, fp32x4_t>)) {
      return static_cast<To>(value);
    } else {
      static_assert(DTypeTrait<To>::kVecSize == DTypeTrait<From>::kVecSize, "both have the same number of elements");
      To result;
#pragma unroll
      for (std::size_t i = 0; i < DTypeTrait<To>::kVecSize; ++i) {
        unpack(result)[i] = scalar<typename DTypeTrait<To>::unpacked_t>(unpack(value)[i]);
      }
      return result;
    }
  }
};

}  // namespace device

/// What the traits of all scalars have in common.
template <typename T, typename Packed>
struct ScalarTrait {
  using self_t = T;
  using packed_t = Packed;
  using unpacked_t = T;
  static constexpr std::size_t kVecSize = 1;

  template <typename From>
  static __device__ T from(const From& value) {
    return device::Conversion::scalar<T>(value);
  }
};

/// 8-bit types are compared as floats, which every one of them is without loss.
template <typename T, typename Packed>
struct Fp8Trait : ScalarTrait<T, Packed> {
  static constexpr std::uint8_t kZeroBits = 0;

  static __device__ T abs(const T& x) {
    T result = x;
    result.__x = static_cast<std::uint8_t>(x.__x & 0x7f);
    return result;
  }
  static __device__ T max(const T& x, const T& y) {
    const float a = static_cast<float>(x), b = static_cast<float>(y);
    return a > b || b != b ? x : y;
  }
  static __device__ T min(const T& x, const T& y) {
    const float a = static_cast<float>(x), b = static_cast<float>(y);
    return a < b || b != b ? x : y;
  }
};

/// What the traits of all packed types have in common: `abs`, `max` and `min` go through the elements.
template <typename T, typename Packed, typename Scalar, std::size_t N>
struct PackedTrait {
  using self_t = T;
  using packed_t = Packed;
  using unpacked_t = Scalar;
  static constexpr std::size_t kVecSize = N;

  template <typename From>
  static __device__ T from(const From& value) {
    return device::Conversion::packed<T>(value);
  }
  static __device__ T abs(const T& x) {
    T result;
#pragma unroll
    for (std::size_t i = 0; i < N; ++i) device::unpack(result)[i] = DTypeTrait<Scalar>::abs(device::unpack(x)[i]);
    return result;
  }
  static __device__ T max(const T& x, const T& y) {
    T result;
#pragma unroll
    for (std::size_t i = 0; i < N; ++i) {
      device::unpack(result)[i] = DTypeTrait<Scalar>::max(device::unpack(x)[i], device::unpack(y)[i]);
    }
    return result;
  }
  static __device__ T min(const T& x, const T& y) {
    T result;
#pragma unroll
    for (std::size_t i = 0; i < N; ++i) {
      device::unpack(result)[i] = DTypeTrait<Scalar>::min(device::unpack(x)[i], device::unpack(y)[i]);
    }
    return result;
  }
};

template <std::integral T>
struct DTypeTrait<T> : ScalarTrait<T, void> {
  static constexpr T kZeroBits = 0;

  /// The smallest number of a signed type has no absolute value and is returned as it is.
  static __device__ T abs(const T& x) {
    if constexpr (std::is_signed_v<T>) {
      return x < 0 ? static_cast<T>(T{0} - static_cast<std::make_unsigned_t<T>>(x)) : x;
    } else {
      return x;
    }
  }
  static __device__ T max(const T& x, const T& y) { return x > y ? x : y; }
  static __device__ T min(const T& x, const T& y) { return x < y ? x : y; }
};

template <>
struct DTypeTrait<double> : ScalarTrait<double, void> {
  static constexpr std::uint64_t kZeroBits = 0;

  static __device__ double abs(const double& x) { return ::fabs(x); }
  static __device__ double max(const double& x, const double& y) { return ::fmax(x, y); }
  static __device__ double min(const double& x, const double& y) { return ::fmin(x, y); }
};

template <>
struct DTypeTrait<fp32_t> : ScalarTrait<fp32_t, fp32x2_t> {
  static constexpr float kFloatMax = 0x1.fffffep127f;
  static constexpr std::uint32_t kZeroBits = 0;

  static __device__ fp32_t abs(const fp32_t& x) { return ::fabsf(x); }
  static __device__ fp32_t max(const fp32_t& x, const fp32_t& y) { return ::fmaxf(x, y); }
  static __device__ fp32_t min(const fp32_t& x, const fp32_t& y) { return ::fminf(x, y); }
};

template <>
struct DTypeTrait<fp16_t> : ScalarTrait<fp16_t, fp16x2_t> {
  static constexpr float kFloatMax = 65504.0f;
  static constexpr std::uint16_t kZeroBits = 0;

  static __device__ fp16_t abs(const fp16_t& x) { return __habs(x); }
  static __device__ fp16_t max(const fp16_t& x, const fp16_t& y) { return __hmax(x, y); }
  static __device__ fp16_t min(const fp16_t& x, const fp16_t& y) { return __hmin(x, y); }
};

template <>
struct DTypeTrait<bf16_t> : ScalarTrait<bf16_t, bf16x2_t> {
  static constexpr float kFloatMax = 0x1.fep127f;
  static constexpr std::uint16_t kZeroBits = 0;

  static __device__ bf16_t abs(const bf16_t& x) { return __habs(x); }
  static __device__ bf16_t max(const bf16_t& x, const bf16_t& y) { return __hmax(x, y); }
  static __device__ bf16_t min(const bf16_t& x, const bf16_t& y) { return __hmin(x, y); }
};

template <>
struct DTypeTrait<fp32x2_t> : PackedTrait<fp32x2_t, fp32x4_t, fp32_t, 2> {};
template <>
struct DTypeTrait<fp32x4_t> : PackedTrait<fp32x4_t, void, fp32_t, 4> {};

/// Pairs of half types are computed with as pairs, `add` (each sum rounded to the type) included.
template <>
struct DTypeTrait<fp16x2_t> : PackedTrait<fp16x2_t, void, fp16_t, 2> {
  static __device__ fp16x2_t abs(const fp16x2_t& x) { return __habs2(x); }
  static __device__ fp16x2_t max(const fp16x2_t& x, const fp16x2_t& y) { return __hmax2(x, y); }
  static __device__ fp16x2_t min(const fp16x2_t& x, const fp16x2_t& y) { return __hmin2(x, y); }
  static __device__ fp16x2_t add(const fp16x2_t& x, const fp16x2_t& y) { return __hadd2(x, y); }
};

template <>
struct DTypeTrait<bf16x2_t> : PackedTrait<bf16x2_t, void, bf16_t, 2> {
  static __device__ bf16x2_t abs(const bf16x2_t& x) { return __habs2(x); }
  static __device__ bf16x2_t max(const bf16x2_t& x, const bf16x2_t& y) { return __hmax2(x, y); }
  static __device__ bf16x2_t min(const bf16x2_t& x, const bf16x2_t& y) { return __hmin2(x, y); }
  static __device__ bf16x2_t add(const bf16x2_t& x, const bf16x2_t& y) { return __hadd2(x, y); }
};

#ifndef KJIT_NO_FP8

template <>
struct DTypeTrait<fp8_e4m3_t> : Fp8Trait<fp8_e4m3_t, fp8x2_e4m3_t> {
  static constexpr float kFloatMax = kFP8E4M3Max;
};

template <>
struct DTypeTrait<fp8_e5m2_t> : Fp8Trait<fp8_e5m2_t, fp8x2_e5m2_t> {
  static constexpr float kFloatMax = kFP8E5M2Max;
};

template <>
struct DTypeTrait<fp8x2_e4m3_t> : PackedTrait<fp8x2_e4m3_t, fp8x4_e4m3_t, fp8_e4m3_t, 2> {};
template <>
struct DTypeTrait<fp8x4_e4m3_t> : PackedTrait<fp8x4_e4m3_t, void, fp8_e4m3_t, 4> {};
template <>
struct DTypeTrait<fp8x2_e5m2_t> : PackedTrait<fp8x2_e5m2_t, fp8x4_e5m2_t, fp8_e5m2_t, 2> {};
template <>
struct DTypeTrait<fp8x4_e5m2_t> : PackedTrait<fp8x4_e5m2_t, void, fp8_e5m2_t, 4> {};

#endif

namespace device {

/// `value` as a `To` with as many elements; see the top of this file for rounding and saturation.
template <typename To, typename From>
KJIT_DEVICE To cast(const From& value) {
  return DTypeTrait<To>::from(value);
}

enum class ReductionOp : std::uint8_t { SUM, MAX, MIN };

/// `ReductionTrait<op, T>::reduce(x, y)`: the sum, larger or smaller of two values, element by element for packed
/// types. A sum is rounded to `T` (integers wrap around); where one operand is NaN, MAX and MIN give the other.
template <ReductionOp kOp, typename T>
struct ReductionTrait {
  static __device__ T reduce(const T& x, const T& y) {
    if constexpr (kOp == ReductionOp::MAX) {
      return DTypeTrait<T>::max(x, y);
    } else if constexpr (kOp == ReductionOp::MIN) {
      return DTypeTrait<T>::min(x, y);
    } else if constexpr (std::is_same_v<T, fp16x2_t> || std::is_same_v<T, bf16x2_t>) {
      return DTypeTrait<T>::add(x, y);
    } else if constexpr (DTypeTrait<T>::kVecSize == 1) {
      if constexpr (is_fp8_v<T>) {
        return T(static_cast<float>(x) + static_cast<float>(y));
      } else {
        return static_cast<T>(x + y);
      }
    } else {
      T result;
#pragma unroll
      for (std::size_t i = 0; i < DTypeTrait<T>::kVecSize; ++i) {
        unpack(result)[i] = ReductionTrait<kOp, typename DTypeTrait<T>::unpacked_t>::reduce(unpack(x)[i], unpack(y)[i]);
      }
      return result;
    }
  }
};

}  // namespace device

}  // namespace kjit
