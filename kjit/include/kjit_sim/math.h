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
inline double rnorm4d(double x, double y, double z, double w) {
  return 1.0 / norm4d(x, y, z, w);
}
inline float rnorm4df(float x, float y, float z, float w) {
  return static_cast<float>(rnorm4d(x, y, z, w));
}
inline double norm(int count, const double* x) {
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += x[i] * x[i];
  return ::sqrt(sum);
}
inline float normf(int count, const float* x) {
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(::sqrt(sum));
}
inline double rnorm(int count, const double* x) {
  return 1.0 / norm(count, x);
}
inline float rnormf(int count, const float* x) {
  return static_cast<float>(1.0 / static_cast<double>(normf(count, x)));
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
/// The inverse of erfc: near 0, where 1 - y has too few digits, by Newton steps from its leading term.
inline double erfcinv(double y) {
  if (!(y > 0.0 && y < 2.0)) return y == 0.0 ? HUGE_VAL : y == 2.0 ? -HUGE_VAL : NAN;
  if (y > 0.1) return y < 1.9 ? erfinv(1.0 - y) : -erfcinv(2.0 - y);
  double x = ::sqrt(-::log(y));
  // On log(erfc(x)), which is nearly a parabola.
  for (int i = 0; i < 8; ++i) {
    const double slope = -2.0 / ::sqrt(M_PI) * ::exp(-x * x) / ::erfc(x);
    x -= ::log(::erfc(x) / y) / slope;
  }
  return x;
}
inline float erfcinvf(float y) {
  return static_cast<float>(erfcinv(y));
}
/// Modified Bessel functions of the first kind (the C++ standard library's, which takes no negative numbers).
inline double cyl_bessel_i0(double x) {
  return std::cyl_bessel_i(0.0, ::fabs(x));
}
inline double cyl_bessel_i1(double x) {
  return ::copysign(1.0, x) * std::cyl_bessel_i(1.0, ::fabs(x));
}
inline float cyl_bessel_i0f(float x) {
  return static_cast<float>(cyl_bessel_i0(x));
}
inline float cyl_bessel_i1f(float x) {
  return static_cast<float>(cyl_bessel_i1(x));
}
/// exp(x * x) * erfc(x); for large x by its asymptotic series.
inline double erfcx(double x) {
  if (x < 10.0) return ::exp(x * x) * ::erfc(x);
  double series = 1.0;
  for (int i = 27; i > 0; i -= 2) series = 1.0 - i / (2.0 * x * x) * series;
  return series / (x * ::sqrt(M_PI));
}
inline float erfcxf(float x) {
  return static_cast<float>(erfcx(x));
}

inline double fdivide(double x, double y) {
  return x / y;
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
