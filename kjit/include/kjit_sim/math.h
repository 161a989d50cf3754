// CUDA's math functions that the C library lacks, and the fast ones, which are as accurate as the others here.
//
//   const float scale = rsqrtf(sum / n + eps);
//   const float p = __expf(x - peak);

#pragma once

#include <kjit_sim/intrinsics.h>
#include <math.h>

#include <cmath>

// The C library has them since glibc 2.42 (rsqrt) and 2.41 (sinpi and its relatives).
#if !defined(__GLIBC__) || __GLIBC__ == 2 && __GLIBC_MINOR__ < 42
inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / ::sqrt(static_cast<double>(x)));
}
inline double rsqrt(double x) {
  return 1.0 / ::sqrt(x);
}
#endif
inline float rsqrt(float x) {
  return rsqrtf(x);
}

#if !defined(__GLIBC__) || __GLIBC__ == 2 && __GLIBC_MINOR__ < 41
// The remainder of a division by 2 is exact, so that multiples of a half give exact results.
inline double sinpi(double x) {
  const double rest = ::fabs(::fmod(x, 2.0));
  const double turned = rest > 1.5 ? rest - 2.0 : rest > 0.5 ? 1.0 - rest : rest;
  return ::copysign(1.0, x) * ::sin(turned * M_PI);
}
inline double cospi(double x) {
  const double rest = ::fabs(::fmod(x, 2.0));
  const double turned = rest > 1.0 ? 2.0 - rest : rest;
  return turned == 0.5 ? 0.0 : ::cos(turned * M_PI);
}
inline float sinpif(float x) {
  return static_cast<float>(sinpi(static_cast<double>(x)));
}
inline float cospif(float x) {
  return static_cast<float>(cospi(static_cast<double>(x)));
}
#endif
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}

inline double rcbrt(double x) {
  return 1.0 / ::cbrt(x);
}
inline float rcbrtf(float x) {
  return static_cast<float>(1.0 / ::cbrt(static_cast<double>(x)));
}
inline double rhypot(double x, double y) {
  return 1.0 / ::hypot(x, y);
}
inline float rhypotf(float x, float y) {
  return static_cast<float>(1.0 / ::hypot(static_cast<double>(x), static_cast<double>(y)));
}
inline double norm3d(double x, double y, double z) {
  return ::sqrt(x * x + y * y + z * z);
}
inline float norm3df(float x, float y, float z) {
  return static_cast<float>(norm3d(x, y, z));
}
inline double rnorm3d(double x, double y, double z) {
  return 1.0 / norm3d(x, y, z);
}
inline float rnorm3df(float x, float y, float z) {
  return static_cast<float>(rnorm3d(x, y, z));
}
inline double norm4d(double x, double y, double z, double w) {
  return ::sqrt(x * x + y * y + z * z + w * w);
}
inline float norm4df(float x, float y, float z, float w) {
  return static_cast<float>(norm4d(x, y, z, w));
}
inline double normcdf(double x) {
  return 0.5 * ::erfc(-x * M_SQRT1_2);
}
inline float normcdff(float x) {
  return static_cast<float>(normcdf(x));
}
/// The inverse of erf: an initial estimate (S. Winitzki, "A handy approximation for the error function and its
/// inverse", 2008), refined by three Newton steps.
inline double erfinv(double y) {
  if (!(y > -1.0 && y < 1.0)) return y == 1.0 ? HUGE_VAL : y == -1.0 ? -HUGE_VAL : NAN;
  if (y == 0.0) return y;
  const double a = 0.147;
  const double log1 = ::log1p(-y * y);
  const double part = 2.0 / (M_PI * a) + log1 / 2.0;
  double x = ::copysign(::sqrt(::sqrt(part * part - log1 / a) - part), y);
  for (int i = 0; i < 3; ++i) {
    // Near 1, the difference to 1 has more significant digits.
    const double error = y > 0.5 ? (1.0 - y) - ::erfc(x) : y < -0.5 ? ::erfc(-x) - (1.0 + y) : ::erf(x) - y;
    x -= error * (::sqrt(M_PI) / 2.0) * ::exp(x * x);
  }
  return x;
}
inline float erfinvf(float y) {
  return static_cast<float>(erfinv(y));
}
inline double normcdfinv(double p) {
  return M_SQRT2 * erfinv(2.0 * p - 1.0);
}
inline float normcdfinvf(float p) {
  return static_cast<float>(normcdfinv(p));
}
/// exp(x * x) * erfc(x); for large x by its asymptotic series.
inline double erfcx(double x) {
  if (x < 10.0) return ::exp(x * x) * ::erfc(x);
  const double inverse = 1.0 / (2.0 * x * x);
  return (1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)))) / (x * ::sqrt(M_PI));
}
inline float erfcxf(float x) {
  return static_cast<float>(erfcx(x));
}

inline float fdividef(float x, float y) {
  return x / y;
}
inline float __fdividef(float x, float y) {
  // CUDA C++ Programming Guide, "Intrinsic Functions": 0 for divisors this large.
  return ::fabsf(y) > 0x1p126f && ::fabsf(y) < HUGE_VALF ? x * 0.0f : x / y;
}
inline float __expf(float x) {
  return ::expf(x);
}
inline float __exp10f(float x) {
  return ::exp10f(x);
}
inline float __logf(float x) {
  return ::logf(x);
}
inline float __log2f(float x) {
  return ::log2f(x);
}
inline float __log10f(float x) {
  return ::log10f(x);
}
inline float __powf(float x, float y) {
  return ::powf(x, y);
}
inline float __sinf(float x) {
  return ::sinf(x);
}
inline float __cosf(float x) {
  return ::cosf(x);
}
inline float __tanf(float x) {
  return ::tanf(x);
}
inline float __tanhf(float x) {
  return ::tanhf(x);
}
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = ::sinf(x);
  *cosine = ::cosf(x);
}
inline float __saturatef(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / ::sqrt(static_cast<double>(x)));
}
