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
KJIT_SIM_FUNCTION(float, rsqrtf, (float x), 1.0 / ::sqrt(static_cast<double>(x)))
KJIT_SIM_FUNCTION(double, rsqrt, (double x), 1.0 / ::sqrt(x))
#endif
KJIT_SIM_FUNCTION(float, rsqrt, (float x), rsqrtf(x))

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
KJIT_SIM_FUNCTION(float, sinpif, (float x), sinpi(static_cast<double>(x)))
KJIT_SIM_FUNCTION(float, cospif, (float x), cospi(static_cast<double>(x)))
#endif
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}

KJIT_SIM_FUNCTION(double, rcbrt, (double x), 1.0 / ::cbrt(x))
KJIT_SIM_FUNCTION(float, rcbrtf, (float x), 1.0 / ::cbrt(static_cast<double>(x)))
KJIT_SIM_FUNCTION(double, rhypot, (double x, double y), 1.0 / ::hypot(x, y))
KJIT_SIM_FUNCTION(float, rhypotf, (float x, float y), 1.0 / ::hypot(static_cast<double>(x), static_cast<double>(y)))
KJIT_SIM_FUNCTION(double, norm3d, (double x, double y, double z), ::sqrt(x* x + y * y + z * z))
KJIT_SIM_FUNCTION(float, norm3df, (float x, float y, float z), norm3d(x, y, z))
KJIT_SIM_FUNCTION(double, rnorm3d, (double x, double y, double z), 1.0 / norm3d(x, y, z))
KJIT_SIM_FUNCTION(float, rnorm3df, (float x, float y, float z), rnorm3d(x, y, z))
KJIT_SIM_FUNCTION(double, norm4d, (double x, double y, double z, double w), ::sqrt(x* x + y * y + z * z + w * w))
KJIT_SIM_FUNCTION(float, norm4df, (float x, float y, float z, float w), norm4d(x, y, z, w))
KJIT_SIM_FUNCTION(double, rnorm4d, (double x, double y, double z, double w), 1.0 / norm4d(x, y, z, w))
KJIT_SIM_FUNCTION(float, rnorm4df, (float x, float y, float z, float w), rnorm4d(x, y, z, w))
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
KJIT_SIM_FUNCTION(double, rnorm, (int count, const double* x), 1.0 / norm(count, x))
KJIT_SIM_FUNCTION(float, rnormf, (int count, const float* x), 1.0 / static_cast<double>(normf(count, x)))
KJIT_SIM_FUNCTION(double, normcdf, (double x), 0.5 * ::erfc(-x * M_SQRT1_2))
KJIT_SIM_FUNCTION(float, normcdff, (float x), normcdf(x))
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
KJIT_SIM_FUNCTION(float, erfinvf, (float y), erfinv(y))
KJIT_SIM_FUNCTION(double, normcdfinv, (double p), M_SQRT2* erfinv(2.0 * p - 1.0))
KJIT_SIM_FUNCTION(float, normcdfinvf, (float p), normcdfinv(p))
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
KJIT_SIM_FUNCTION(float, erfcinvf, (float y), erfcinv(y))
/// Modified Bessel functions of the first kind (the C++ standard library's, which takes no negative numbers).
KJIT_SIM_FUNCTION(double, cyl_bessel_i0, (double x), std::cyl_bessel_i(0.0, ::fabs(x)))
KJIT_SIM_FUNCTION(double, cyl_bessel_i1, (double x), ::copysign(1.0, x) * std::cyl_bessel_i(1.0, ::fabs(x)))
KJIT_SIM_FUNCTION(float, cyl_bessel_i0f, (float x), cyl_bessel_i0(x))
KJIT_SIM_FUNCTION(float, cyl_bessel_i1f, (float x), cyl_bessel_i1(x))
/// exp(x * x) * erfc(x); for large x by its asymptotic series.
inline double erfcx(double x) {
  if (x < 10.0) return ::exp(x * x) * ::erfc(x);
  double series = 1.0;
  for (int i = 27; i > 0; i -= 2) series = 1.0 - i / (2.0 * x * x) * series;
  return series / (x * ::sqrt(M_PI));
}
KJIT_SIM_FUNCTION(float, erfcxf, (float x), erfcx(x))

KJIT_SIM_FUNCTION(double, fdivide, (double x, double y), x / y)
KJIT_SIM_FUNCTION(float, fdividef, (float x, float y), x / y)
inline float __fdividef(float x, float y) {
  // CUDA C++ Programming Guide, "Intrinsic Functions": 0 for divisors this large.
  return ::fabsf(y) > 0x1p126f && ::fabsf(y) < HUGE_VALF ? x * 0.0f : x / y;
}
KJIT_SIM_FUNCTION(float, __expf, (float x), ::expf(x))
KJIT_SIM_FUNCTION(float, __exp10f, (float x), ::exp10f(x))
KJIT_SIM_FUNCTION(float, __logf, (float x), ::logf(x))
KJIT_SIM_FUNCTION(float, __log2f, (float x), ::log2f(x))
KJIT_SIM_FUNCTION(float, __log10f, (float x), ::log10f(x))
KJIT_SIM_FUNCTION(float, __powf, (float x, float y), ::powf(x, y))
KJIT_SIM_FUNCTION(float, __sinf, (float x), ::sinf(x))
KJIT_SIM_FUNCTION(float, __cosf, (float x), ::cosf(x))
KJIT_SIM_FUNCTION(float, __tanf, (float x), ::tanf(x))
KJIT_SIM_FUNCTION(float, __tanhf, (float x), ::tanhf(x))
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = ::sinf(x);
  *cosine = ::cosf(x);
}
KJIT_SIM_FUNCTION(float, __saturatef, (float x), x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
KJIT_SIM_FUNCTION(float, __frsqrt_rn, (float x), 1.0 / ::sqrt(static_cast<double>(x)))
