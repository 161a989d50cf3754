// Device math under the same names for every element type, and the usual activations.
//
//   const float scale = math::rsqrt(sum / n + eps);             // using namespace device
//   const bf16_t gate = math::silu(x[i]);                       // computed in float, rounded once
//   const float amax = math::max(amax, math::abs(cast<float>(x[i])));
//
// A function of a half type is computed in float and rounded; of a packed type, element by element. Errors of float
// functions are CUDA's (CUDA C++ Programming Guide, "Mathematical Functions Appendix"), without fast-math flags: sqrt
// is correctly rounded, log has one ulp, exp rsqrt sin cos tanh two. Doubles use CUDA's double functions.

#pragma once

#include <kjit/type.cuh>

#include <cstdint>
#include <type_traits>

namespace kjit::device::math {

inline constexpr float log2e = 1.44269504088896340736f;    // log2(e)
inline constexpr float loge2 = 0.69314718055994530942f;    // ln(2)
inline constexpr float pi = 3.14159265358979323846f;       // pi
inline constexpr float sqrt1_2 = 0.70710678118654752440f;  // 1 / sqrt(2)
/// The largest finite values of the 8-bit types, as for quantisation scales.
inline constexpr float FP8_E4M3_MAX = kFP8E4M3Max;
inline constexpr float FP8_E5M2_MAX = kFP8E5M2Max;

/// The larger value; if one is NaN, the other.
template <typename T>
KJIT_DEVICE T max(T a, T b) {
  return DTypeTrait<T>::max(a, b);
}

/// The smaller value; if one is NaN, the other.
template <typename T>
KJIT_DEVICE T min(T a, T b) {
  return DTypeTrait<T>::min(a, b);
}

template <typename T>
KJIT_DEVICE T abs(T a) {
  return DTypeTrait<T>::abs(a);
}

/// The functions of float and double, and their application to other types.
struct Functions {
#define KJIT_FUNCTION_(Name, function)                               \
  struct Name {                                                      \
    static __device__ float of(float x) { return ::function##f(x); } \
    static __device__ double of(double x) { return ::function(x); }  \
  };
  KJIT_FUNCTION_(Sqrt, sqrt)
  KJIT_FUNCTION_(Rsqrt, rsqrt)
  KJIT_FUNCTION_(Exp, exp)
  KJIT_FUNCTION_(Log, log)
  KJIT_FUNCTION_(Sin, sin)
  KJIT_FUNCTION_(Cos, cos)
  KJIT_FUNCTION_(Tanh, tanh)
#undef KJIT_FUNCTION_
  struct Sigmoid {
    template <typename T>
    static __device__ T of(T x) {
      return T{1} / (T{1} + Exp::of(-x));
    }
  };
  struct Silu {
    template <typename T>
    static __device__ T of(T x) {
      return x / (T{1} + Exp::of(-x));
    }
  };
  struct Gelu {
    static __device__ float of(float x) { return 0.5f * x * (1.0f + ::erff(x * sqrt1_2)); }
    static __device__ double of(double x) { return 0.5 * x * (1.0 + ::erf(x * 0.70710678118654752440)); }
  };
  struct GeluTanh {
    template <typename T>
    static __device__ T of(T x) {
      constexpr T kSqrt2OverPi = static_cast<T>(0.79788456080286535588);
      return T(0.5) * x * (T{1} + Tanh::of(kSqrt2OverPi * (x + T(0.044715) * x * x * x)));
    }
  };

  /// `Function` (of float, or double if required) of a value of any floating-point type, packed ones included.
  template <typename Function, typename T>
  static __device__ T apply(const T& x) {
    if constexpr (std::is_floating_point_v<T>) {
      return Function::of(x);
    } else if constexpr (DTypeTrait<T>::kVecSize == 1) {
      return cast<T>(Function::of(cast<float>(x)));
    } else {
      T result;
#pragma unroll
      for (std::size_t i = 0; i < DTypeTrait<T>::kVecSize; ++i) {
        unpack(result)[i] = apply<Function, typename DTypeTrait<T>::unpacked_t>(unpack(x)[i]);
      }
      return result;
    }
  }
};

template <typename T>
KJIT_DEVICE T sqrt(T a) {
  return Functions::apply<Functions::Sqrt>(a);
}
/// 1 / sqrt(a).
template <typename T>
KJIT_DEVICE T rsqrt(T a) {
  return Functions::apply<Functions::Rsqrt>(a);
}
template <typename T>
KJIT_DEVICE T exp(T a) {
  return Functions::apply<Functions::Exp>(a);
}
/// The natural logarithm.
template <typename T>
KJIT_DEVICE T log(T a) {
  return Functions::apply<Functions::Log>(a);
}
template <typename T>
KJIT_DEVICE T sin(T a) {
  return Functions::apply<Functions::Sin>(a);
}
template <typename T>
KJIT_DEVICE T cos(T a) {
  return Functions::apply<Functions::Cos>(a);
}
template <typename T>
KJIT_DEVICE T tanh(T a) {
  return Functions::apply<Functions::Tanh>(a);
}
/// 1 / (1 + exp(-a)).
template <typename T>
KJIT_DEVICE T sigmoid(T a) {
  return Functions::apply<Functions::Sigmoid>(a);
}
/// a * sigmoid(a), as torch.nn.functional.silu; NaN at minus infinity, as there.
template <typename T>
KJIT_DEVICE T silu(T a) {
  return Functions::apply<Functions::Silu>(a);
}
/// a * Phi(a) with the normal distribution function Phi, by erf: torch.nn.functional.gelu.
template <typename T>
KJIT_DEVICE T gelu(T a) {
  return Functions::apply<Functions::Gelu>(a);
}
/// The tanh approximation of gelu: torch.nn.functional.gelu(approximate="tanh"); Hendrycks and Gimpel,
/// arXiv:1606.08415.
template <typename T>
KJIT_DEVICE T gelu_tanh(T a) {
  return Functions::apply<Functions::GeluTanh>(a);
}

/// `sigmoid` with the hardware's exponential: relative error below 2^-16 for |x| <= 64.
KJIT_DEVICE float sigmoid_fast(float x) {
  return 1.0f / (1.0f + __expf(-x));
}
/// x * sigmoid_fast(x), with the same relative error.
KJIT_DEVICE float silu_fast(float x) {
  return x * sigmoid_fast(x);
}
/// log(1 + exp(x)) with the hardware's exponential; x itself above 20, where the two round to the same float.
KJIT_DEVICE float softplus_fast(float x) {
  return x > 20.0f ? x : ::log1pf(__expf(x));
}

/// a * b + acc with a single rounding; the product of two bf16 is exact in float.
KJIT_DEVICE float fma_f32_bf16(bf16_t a, bf16_t b, float acc) {
  return ::fmaf(cast<float>(a), cast<float>(b), acc);
}
KJIT_DEVICE float fma_f32_bf16(bf16_t a, float b, float acc) {
  return ::fmaf(cast<float>(a), b, acc);
}

/// Division by a loop-invariant number, prepared on the host or at compile time: a multiplication and a shift. `n / d`
/// and `n % d` are exact for every `n` below 2^31 and every `d` from 1 to 2^31.
///
/// With L = ceil(log2(d)) the multiplier is ceil(2^(31 + L) / d), whose error does not affect the quotient for n < 2^31
/// (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994, theorem 4.2).
class fast_mod_div_u32_t {
 public:
  explicit constexpr fast_mod_div_u32_t(std::uint32_t divisor) : divisor_(divisor) {
    if (divisor < 2) return;
    while ((std::uint64_t{1} << (shift_ + 1)) < divisor) ++shift_;
    const std::uint64_t power = std::uint64_t{1} << (32 + shift_);
    multiplier_ = static_cast<std::uint32_t>((power + divisor - 1) / divisor);
  }

  constexpr operator std::uint32_t() const { return divisor_; }

  template <typename T>
  friend __device__ std::uint32_t operator/(T n, const fast_mod_div_u32_t& divisor) {
    static_assert(std::is_unsigned_v<T> && sizeof(T) <= sizeof(std::uint32_t), "an unsigned number of up to 32 bits");
    return divisor.divisor_ == 1 ? n : __umulhi(n, divisor.multiplier_) >> divisor.shift_;
  }
  template <typename T>
  friend __device__ std::uint32_t operator%(T n, const fast_mod_div_u32_t& divisor) {
    return n - n / divisor * divisor.divisor_;
  }

 private:
  std::uint32_t divisor_;
  std::uint32_t multiplier_ = 0;
  std::uint32_t shift_ = 0;  // ceil(log2(divisor)) - 1
};

/// Quotient (x) and remainder (y).
template <typename T>
KJIT_DEVICE uint2 div(T n, const fast_mod_div_u32_t& divisor) {
  const std::uint32_t quotient = n / divisor;
  return {quotient, n - quotient * static_cast<std::uint32_t>(divisor)};
}

}  // namespace kjit::device::math
