// A stand-in for CUDA's header of this name (see host_defines.h): the headers of the C and C++ libraries that nvcc's
// units include without asking, and CUDA's functions for host code. NVRTC declares those for device code.

#pragma once

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <utility>

#include "crt/host_defines.h"

#if defined(__CUDA_ARCH__)

extern "C" {
extern __host__ __device__ __device_builtin__ __cudart_builtin__ clock_t clock(void) noexcept;
extern __host__ __device__ __device_builtin__ __cudart_builtin__ void* memset(void*, int, size_t) noexcept;
extern __host__ __device__ __device_builtin__ __cudart_builtin__ void* memcpy(void*, const void*, size_t) noexcept;
extern __host__ __device__ __device_builtin__ __cudart_builtin__ int printf(const char*, ...);
extern __host__ __device__ __cudart_builtin__ void* malloc(size_t) noexcept;
extern __host__ __device__ __cudart_builtin__ void free(void*) noexcept;
extern __host__ __device__ __cudart_builtin__ void __assert_fail(const char*, const char*, unsigned,
                                                                 const char*) noexcept;
}

#define KJIT_RTC_MEMORY extern __host__ __device__ __cudart_builtin__
KJIT_RTC_MEMORY void* operator new(std::size_t);
KJIT_RTC_MEMORY void* operator new[](std::size_t);
KJIT_RTC_MEMORY void* operator new(std::size_t, void*) noexcept;
KJIT_RTC_MEMORY void* operator new[](std::size_t, void*) noexcept;
KJIT_RTC_MEMORY void operator delete(void*) noexcept;
KJIT_RTC_MEMORY void operator delete[](void*) noexcept;
KJIT_RTC_MEMORY void operator delete(void*, void*) noexcept;
KJIT_RTC_MEMORY void operator delete[](void*, void*) noexcept;
KJIT_RTC_MEMORY void operator delete(void*, std::size_t) noexcept;
KJIT_RTC_MEMORY void operator delete[](void*, std::size_t) noexcept;
#undef KJIT_RTC_MEMORY

#else

// As in CUDA's headers: of a NaN and a number, the number. Of two types, C++'s common one, where that is not signed and
// longer than an unsigned one.
#define KJIT_RTC_OF_INTEGERS(type, a, b)                                                              \
  static inline type min(const a x, const b y) {                                                      \
    return static_cast<type>(x) < static_cast<type>(y) ? static_cast<type>(x) : static_cast<type>(y); \
  }                                                                                                   \
  static inline type max(const a x, const b y) {                                                      \
    return static_cast<type>(x) > static_cast<type>(y) ? static_cast<type>(x) : static_cast<type>(y); \
  }
#define KJIT_RTC_OF_TYPE(type)                             \
  KJIT_RTC_OF_INTEGERS(type, type, type)                   \
  KJIT_RTC_OF_INTEGERS(unsigned type, unsigned type, type) \
  KJIT_RTC_OF_INTEGERS(unsigned type, type, unsigned type) \
  KJIT_RTC_OF_INTEGERS(unsigned type, unsigned type, unsigned type)
KJIT_RTC_OF_TYPE(int)
KJIT_RTC_OF_TYPE(long)
KJIT_RTC_OF_TYPE(long long)
#undef KJIT_RTC_OF_TYPE
#undef KJIT_RTC_OF_INTEGERS

static inline float min(const float x, const float y) {
  return fminf(x, y);
}
static inline float max(const float x, const float y) {
  return fmaxf(x, y);
}
#define KJIT_RTC_OF_FLOATS(a, b)                   \
  static inline double min(const a x, const b y) { \
    return fmin(double(x), double(y));             \
  }                                                \
  static inline double max(const a x, const b y) { \
    return fmax(double(x), double(y));             \
  }
KJIT_RTC_OF_FLOATS(double, double)
KJIT_RTC_OF_FLOATS(float, double)
KJIT_RTC_OF_FLOATS(double, float)
#undef KJIT_RTC_OF_FLOATS

// Functions that no host library defines: a `__host__ __device__` function may name them.
#define KJIT_RTC_OF_ONE(name)               \
  extern "C" double name(double);           \
  extern "C" float name##f(float);          \
  static inline float name(const float x) { \
    return name##f(x);                      \
  }
KJIT_RTC_OF_ONE(rsqrt)
KJIT_RTC_OF_ONE(rcbrt)
KJIT_RTC_OF_ONE(sinpi)
KJIT_RTC_OF_ONE(cospi)
KJIT_RTC_OF_ONE(erfinv)
KJIT_RTC_OF_ONE(erfcinv)
KJIT_RTC_OF_ONE(erfcx)
KJIT_RTC_OF_ONE(normcdf)
KJIT_RTC_OF_ONE(normcdfinv)
KJIT_RTC_OF_ONE(cyl_bessel_i0)
KJIT_RTC_OF_ONE(cyl_bessel_i1)
#undef KJIT_RTC_OF_ONE

#endif
