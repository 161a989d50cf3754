// Traits of element types, and conversions between any two: DTypeTrait, packed types, cast, unpack.
//
//   const fp32x2_t xy = device::cast<fp32x2_t>(pair_of_halves);    // any scalar to any scalar, any pair to any pair
//   packed_t<bf16_t> pair = device::cast<packed_t<bf16_t>>(xy);    // bf16x2_t
//   for (auto& x : device::unpack(pair)) x = DTypeTrait<bf16_t>::abs(x);
//
// Rounding is to nearest, ties to even, in one step. Conversions to 8-bit types saturate: values out of range, infinity
// included, become the largest finite value of their sign (448 for e4m3, 57,344 for e5m2), and NaN stays NaN.
// Conversions to integers truncate; out of range the result is undefined, as in C++.

#pragma once

#include <kjit/utils.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kjit {

/// Traits of the element type `T`, a scalar or two or four of them packed:
///
/// - `self_t` is `T`, `packed_t` its packed pair (void if there is none), `unpacked_t` its scalar, and `kVecSize` the
///   number of scalars;
/// - `from(x)` converts from any type with as many elements (see `device::cast`);
/// - `abs(x)`, `max(x, y)`, `min(x, y)`, element by element. If one operand is NaN, `max` and `min` return the other;
/// - `kFloatMax` is the largest finite value as a float, and `kZeroBits` the bits of zero (floating-point scalars).
template <typename T>
struct DTypeTrait;

/// An alias of `DTypeTrait`.
template <typename T>
using dtype_trait = DTypeTrait<T>;

/// The packed pair of `T`: `packed_t<bf16_t>` is `bf16x2_t`.
template <typename T>
using packed_t = typename DTypeTrait<T>::packed_t;

/// The largest finite values of the 8-bit types.
inline constexpr float kFP8E4M3Max = 448.0f;
inline constexpr float kFP8E5M2Max = 57344.0f;

/// Whether `T` is a 16-bit or an 8-bit floating-point type.
template <typename T>
inline constexpr bool is_half_v = std::is_same_v<T, fp16_t> || std::is_same_v<T, bf16_t>;
template <typename T>
inline constexpr bool is_fp8_v = std::is_same_v<T, fp8_e4m3_t> || std::is_same_v<T, fp8_e5m2_t>;

/// The elements of `T` as an array, const if `T` is.
template <typename T, typename Trait = DTypeTrait<std::remove_const_t<T>>>
using unpacked_array_t = std::conditional_t<std::is_const_v<T>, const typename Trait::unpacked_t,
                                            typename Trait::unpacked_t>[Trait::kVecSize];

namespace device {

/// A reference to the elements of a packed value as an array.
template <typename T>
KJIT_DEVICE unpacked_array_t<T>& unpack(T& value) {
  static_assert(sizeof(T) == sizeof(unpacked_array_t<T>), "a packed type is as large as its elements");
  return reinterpret_cast<unpacked_array_t<T>&>(value);
}

/// The conversions that implement `DTypeTrait<To>::from`. They work on the bits of narrow types, and are thus the same
/// for CUDA's and kjit's types.
struct Conversion {
  template <typename T>
  static constexpr bool is_narrow = is_half_v<T> || is_fp8_v<T>;
  template <typename T>
  static constexpr bool is_half2 = std::is_same_v<T, fp16x2_t> || std::is_same_v<T, bf16x2_t>;
  template <typename T>
  static constexpr bool is_fp8x2 = std::is_same_v<T, fp8x2_e4m3_t> || std::is_same_v<T, fp8x2_e5m2_t>;

  template <typename Bits, typename T>
  static __device__ Bits to_bits(const T& value) {
    static_assert(sizeof(Bits) == sizeof(T));
    const T copy = value;  // one load; memcpy from memory would be one for each byte
    Bits bits;
    std::memcpy(&bits, &copy, sizeof(T));
    return bits;
  }
  template <typename T, typename Bits>
  static __device__ T from_bits(Bits bits) {
    static_assert(sizeof(Bits) == sizeof(T));
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    return value;
  }

  template <typename From>
  static __device__ float widen(const From& value) {
    if constexpr (std::is_same_v<From, fp16_t>) {
      return kjit::dtype_details::half_to_float(to_bits<std::uint16_t>(value));
    } else if constexpr (std::is_same_v<From, bf16_t>) {
      return kjit::dtype_details::bfloat_to_float(to_bits<std::uint16_t>(value));
    } else {
      return kjit::dtype_details::float8_to_float<std::is_same_v<From, fp8_e4m3_t>>(to_bits<std::uint8_t>(value));
    }
  }
  template <typename To>
  static __device__ To narrow(float value) {
    if constexpr (std::is_same_v<To, fp16_t>) {
      return from_bits<To>(kjit::dtype_details::float_to_half(value));
    } else if constexpr (std::is_same_v<To, bf16_t>) {
      return from_bits<To>(kjit::dtype_details::float_to_bfloat(value));
    } else {
      return from_bits<To>(kjit::dtype_details::float_to_float8<std::is_same_v<To, fp8_e4m3_t>>(value));
    }
  }

  /// A float that rounds to a narrow type as `value` itself would: if inexact, rounded to odd.
  template <typename From>
  static __device__ float to_odd(From value) {
    float result;
    if constexpr (std::is_floating_point_v<From>) {
      result = __double2float_rz(value);
    } else if constexpr (std::is_signed_v<From>) {
      result = __ll2float_rz(static_cast<long long>(value));
    } else {
      result = __ull2float_rz(static_cast<unsigned long long>(value));
    }
    const bool exact = static_cast<From>(result) == value;
    return kjit::dtype_details::bits_float(kjit::dtype_details::float_bits(result) | (exact ? 0u : 1u));
  }

  /// Narrow types widen to float exactly, which leaves a single rounding.
  template <typename To, typename From>
  static __device__ To scalar(const From& value) {
    if constexpr (std::is_same_v<To, From>) {
      return value;
    } else if constexpr (is_narrow<From>) {
      return scalar<To>(widen(value));
    } else if constexpr (!is_narrow<To>) {
      return static_cast<To>(value);
    } else if constexpr (std::is_same_v<From, float>) {
      return narrow<To>(value);
    } else if constexpr (std::is_same_v<From, double> || (std::is_same_v<To, bf16_t> && sizeof(From) > 2)) {
      return narrow<To>(to_odd(value));
    } else {
      return narrow<To>(static_cast<float>(value));  // exact in the range of these types
    }
  }

  /// Both have the same number of elements. One instruction if there is one.
  template <typename To, typename From>
  static __device__ To packed(const From& value) {
    static_assert(DTypeTrait<To>::kVecSize == DTypeTrait<From>::kVecSize, "both have the same number of elements");
    if constexpr (std::is_same_v<To, From>) {
      return value;
    } else if constexpr (DTypeTrait<To>::kVecSize == 4) {
      using ToPair = typename DTypeTrait<typename DTypeTrait<To>::unpacked_t>::packed_t;
      using FromPair = typename DTypeTrait<typename DTypeTrait<From>::unpacked_t>::packed_t;
      const From copy = value;
      FromPair from[2];
      std::memcpy(static_cast<void*>(from), &copy, sizeof(From));
      const ToPair pairs[2] = {packed<ToPair>(from[0]), packed<ToPair>(from[1])};
      To result;
      std::memcpy(static_cast<void*>(&result), pairs, sizeof(To));
      return result;
#ifdef __CUDA_ARCH__
    } else if constexpr (is_half2<To> && std::is_same_v<From, fp32x2_t>) {
      std::uint32_t bits;
      if constexpr (std::is_same_v<To, fp16x2_t>) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(value.y), "f"(value.x));
      } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(value.y), "f"(value.x));
      }
      return from_bits<To>(bits);
#if __CUDA_ARCH__ >= 890
    } else if constexpr (is_fp8x2<To> && std::is_same_v<From, fp32x2_t>) {
      std::uint16_t bits;
      if constexpr (std::is_same_v<To, fp8x2_e4m3_t>) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(value.y), "f"(value.x));
      } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(value.y), "f"(value.x));
      }
      return from_bits<To>(bits);
    } else if constexpr (is_fp8x2<To> && std::is_same_v<From, fp16x2_t>) {
      std::uint16_t bits;
      if constexpr (std::is_same_v<To, fp8x2_e4m3_t>) {
        asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(bits) : "r"(to_bits<std::uint32_t>(value)));
      } else {
        asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(bits) : "r"(to_bits<std::uint32_t>(value)));
      }
      return from_bits<To>(bits);
    } else if constexpr (is_fp8x2<From> && std::is_same_v<To, fp16x2_t>) {
      std::uint32_t bits;
      if constexpr (std::is_same_v<From, fp8x2_e4m3_t>) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(bits) : "h"(to_bits<std::uint16_t>(value)));
      } else {
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(bits) : "h"(to_bits<std::uint16_t>(value)));
      }
      return from_bits<To>(bits);
    } else if constexpr (is_fp8x2<From>) {
      return packed<To>(packed<fp16x2_t>(value));  // exact
    } else if constexpr (is_fp8x2<To>) {
      return packed<To>(packed<fp32x2_t>(value));
#endif
#endif
    } else {
      To result;
#pragma unroll
      for (std::size_t i = 0; i < DTypeTrait<To>::kVecSize; ++i) {
        unpack(result)[i] = scalar<typename DTypeTrait<To>::unpacked_t>(unpack(value)[i]);
      }
      return result;
    }
  }
};

/// Comparisons and additions of half types: both halves of a word in one instruction. `T` is `fp16_t` or `bf16_t`.
template <typename T>
struct HalfPairs {
  static __device__ std::uint32_t max(std::uint32_t x, std::uint32_t y) {
#ifdef __CUDA_ARCH__
    std::uint32_t result;
    if constexpr (std::is_same_v<T, fp16_t>) {
      asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y));
    } else {
      asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y));
    }
    return result;
#else
    return each(x, y, [](float a, float b) { return a > b || b != b ? a : b; });
#endif
  }
  static __device__ std::uint32_t min(std::uint32_t x, std::uint32_t y) {
#ifdef __CUDA_ARCH__
    std::uint32_t result;
    if constexpr (std::is_same_v<T, fp16_t>) {
      asm("min.f16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y));
    } else {
      asm("min.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y));
    }
    return result;
#else
    return each(x, y, [](float a, float b) { return a < b || b != b ? a : b; });
#endif
  }
  static __device__ std::uint32_t add(std::uint32_t x, std::uint32_t y) {
#ifdef __CUDA_ARCH__
    std::uint32_t result;
    if constexpr (std::is_same_v<T, fp16_t>) {
      asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y));
    } else {
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(0x3f803f80u), "r"(y));  // x * 1 + y
    }
    return result;
#else
    return each(x, y, [](float a, float b) { return a + b; });
#endif
  }

 private:
  template <typename Function>
  static __device__ std::uint32_t each(std::uint32_t x, std::uint32_t y, Function function) {
    std::uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
      const T a = Conversion::from_bits<T>(static_cast<std::uint16_t>(x >> shift));
      const T b = Conversion::from_bits<T>(static_cast<std::uint16_t>(y >> shift));
      const T value = Conversion::narrow<T>(function(Conversion::widen(a), Conversion::widen(b)));
      result |= static_cast<std::uint32_t>(Conversion::to_bits<std::uint16_t>(value)) << shift;
    }
    return result;
  }
};

}  // namespace device

/// The common traits of all scalars.
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

template <typename T, typename Packed>
struct HalfTrait : ScalarTrait<T, Packed> {
  static constexpr std::uint16_t kZeroBits = 0;

  static __device__ T abs(const T& x) { return of_bits(bits_of(x) & 0x7fffu); }
  static __device__ T max(const T& x, const T& y) { return of_bits(device::HalfPairs<T>::max(bits_of(x), bits_of(y))); }
  static __device__ T min(const T& x, const T& y) { return of_bits(device::HalfPairs<T>::min(bits_of(x), bits_of(y))); }

 private:
  static __device__ std::uint32_t bits_of(const T& x) { return device::Conversion::to_bits<std::uint16_t>(x); }
  static __device__ T of_bits(std::uint32_t bits) {
    return device::Conversion::from_bits<T>(static_cast<std::uint16_t>(bits));
  }
};

/// 8-bit types are compared as floats, to which they widen exactly.
template <typename T, typename Packed>
struct Fp8Trait : ScalarTrait<T, Packed> {
  static constexpr std::uint8_t kZeroBits = 0;

  static __device__ T abs(const T& x) {
    using device::Conversion;
    return Conversion::from_bits<T>(static_cast<std::uint8_t>(Conversion::to_bits<std::uint8_t>(x) & 0x7fu));
  }
  static __device__ T max(const T& x, const T& y) {
    const float a = device::Conversion::widen(x), b = device::Conversion::widen(y);
    return a > b || b != b ? x : y;
  }
  static __device__ T min(const T& x, const T& y) {
    const float a = device::Conversion::widen(x), b = device::Conversion::widen(y);
    return a < b || b != b ? x : y;
  }
};

/// The common traits of all packed types: `abs`, `max` and `min` work element by element.
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

  /// The most negative number of a signed type is returned unchanged.
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
struct DTypeTrait<fp16_t> : HalfTrait<fp16_t, fp16x2_t> {
  static constexpr float kFloatMax = 65504.0f;
};
template <>
struct DTypeTrait<bf16_t> : HalfTrait<bf16_t, bf16x2_t> {
  static constexpr float kFloatMax = 0x1.fep127f;
};

template <>
struct DTypeTrait<fp32x2_t> : PackedTrait<fp32x2_t, fp32x4_t, fp32_t, 2> {};
template <>
struct DTypeTrait<fp32x4_t> : PackedTrait<fp32x4_t, void, fp32_t, 4> {};

/// Pairs of half types are computed as pairs, `add` included (each sum rounded to the type).
template <typename T, typename Scalar>
struct HalfPairTrait : PackedTrait<T, void, Scalar, 2> {
  static __device__ T abs(const T& x) { return of_bits(bits_of(x) & 0x7fff7fffu); }
  static __device__ T max(const T& x, const T& y) {
    return of_bits(device::HalfPairs<Scalar>::max(bits_of(x), bits_of(y)));
  }
  static __device__ T min(const T& x, const T& y) {
    return of_bits(device::HalfPairs<Scalar>::min(bits_of(x), bits_of(y)));
  }
  static __device__ T add(const T& x, const T& y) {
    return of_bits(device::HalfPairs<Scalar>::add(bits_of(x), bits_of(y)));
  }

 private:
  static __device__ std::uint32_t bits_of(const T& x) { return device::Conversion::to_bits<std::uint32_t>(x); }
  static __device__ T of_bits(std::uint32_t bits) { return device::Conversion::from_bits<T>(bits); }
};

template <>
struct DTypeTrait<fp16x2_t> : HalfPairTrait<fp16x2_t, fp16_t> {};
template <>
struct DTypeTrait<bf16x2_t> : HalfPairTrait<bf16x2_t, bf16_t> {};

#if !KJIT_CUDA_TYPES || !defined(KJIT_NO_FP8)

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

/// `value` converted to a `To` with as many elements; see the top of this file for rounding and saturation.
template <typename To, typename From>
KJIT_DEVICE To cast(const From& value) {
  return DTypeTrait<To>::from(value);
}

enum class ReductionOp : std::uint8_t { SUM, MAX, MIN };

/// `ReductionTrait<op, T>::reduce(x, y)`: the sum, maximum or minimum of two values, element by element for packed
/// types. Sums are rounded to `T` (integers wrap around); if one operand is NaN, MAX and MIN return the other.
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
      if constexpr (Conversion::is_narrow<T>) {
        return Conversion::narrow<T>(Conversion::widen(x) + Conversion::widen(y));
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
