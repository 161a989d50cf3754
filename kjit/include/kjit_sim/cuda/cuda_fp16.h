// CUDA's half types as plain C++, with the functions that it defines only for device code.

#pragma once

#undef __CUDACC__
#include_next <cuda_fp16.h>
#define __CUDACC__ 1

#include <kjit_sim/narrow.h>

template <>
struct kjit_sim::NarrowTraits<__half> {
  using pair = __half2;
  static __half from(float value) { return __float2half_rn(value); }
  static __half from(double value) { return __double2half(value); }
};
template <>
struct kjit_sim::NarrowTraits<__half2> {
  using single = __half;
};
template <>
inline constexpr bool kjit_sim::is_number_v<__half> = true;
template <>
inline constexpr bool kjit_sim::is_number_v<__half2> = true;

#define KJIT_SIM_CONVERSION(type, name)                                 \
  inline type __half2##name##_rn(__half h) {                            \
    return kjit_sim::to_integer<type>(::rintf(static_cast<float>(h)));  \
  }                                                                     \
  inline type __half2##name##_rd(__half h) {                            \
    return kjit_sim::to_integer<type>(::floorf(static_cast<float>(h))); \
  }                                                                     \
  inline type __half2##name##_ru(__half h) {                            \
    return kjit_sim::to_integer<type>(::ceilf(static_cast<float>(h)));  \
  }
KJIT_SIM_CONVERSION(int, int)
KJIT_SIM_CONVERSION(short, short)
KJIT_SIM_CONVERSION(unsigned, uint)
KJIT_SIM_CONVERSION(unsigned short, ushort)
KJIT_SIM_CONVERSION(unsigned long long, ull)
KJIT_SIM_CONVERSION(long long, ll)
#undef KJIT_SIM_CONVERSION
