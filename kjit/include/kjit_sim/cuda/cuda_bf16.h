// CUDA's bfloat16 types as plain C++, with the functions that it defines only for device code.

#pragma once

#undef __CUDACC__
#include_next <cuda_bf16.h>
#define __CUDACC__ 1

#include <kjit_sim/narrow.h>

template <>
struct kjit_sim::NarrowTraits<__nv_bfloat16> {
  using pair = __nv_bfloat162;
  static __nv_bfloat16 from(float value) { return __float2bfloat16_rn(value); }
  static __nv_bfloat16 from(double value) { return __double2bfloat16(value); }
};
template <>
struct kjit_sim::NarrowTraits<__nv_bfloat162> {
  using single = __nv_bfloat16;
};
template <>
inline constexpr bool kjit_sim::is_number_v<__nv_bfloat16> = true;
template <>
inline constexpr bool kjit_sim::is_number_v<__nv_bfloat162> = true;

#define KJIT_SIM_CONVERSION(type, name)                                 \
  inline type __bfloat162##name##_rn(__nv_bfloat16 h) {                 \
    return kjit_sim::to_integer<type>(::rintf(static_cast<float>(h)));  \
  }                                                                     \
  inline type __bfloat162##name##_rd(__nv_bfloat16 h) {                 \
    return kjit_sim::to_integer<type>(::floorf(static_cast<float>(h))); \
  }                                                                     \
  inline type __bfloat162##name##_ru(__nv_bfloat16 h) {                 \
    return kjit_sim::to_integer<type>(::ceilf(static_cast<float>(h)));  \
  }
KJIT_SIM_CONVERSION(int, int)
KJIT_SIM_CONVERSION(short, short)
KJIT_SIM_CONVERSION(unsigned, uint)
KJIT_SIM_CONVERSION(unsigned short, ushort)
KJIT_SIM_CONVERSION(unsigned long long, ull)
KJIT_SIM_CONVERSION(long long, ll)
#undef KJIT_SIM_CONVERSION
