// The fundamental types of numbers, for the short headers of the C++ library (kjit_rtc/std).

#pragma once

namespace kjit_rtc {

template <typename T>
inline constexpr bool is_integral = false;
#define KJIT_INTEGRAL(T) \
  template <>            \
  inline constexpr bool is_integral<T> = true;
KJIT_INTEGRAL(bool)
KJIT_INTEGRAL(char)
KJIT_INTEGRAL(signed char)
KJIT_INTEGRAL(unsigned char)
KJIT_INTEGRAL(wchar_t)
#ifdef __cpp_char8_t
KJIT_INTEGRAL(char8_t)
#endif
KJIT_INTEGRAL(char16_t)
KJIT_INTEGRAL(char32_t)
KJIT_INTEGRAL(short)
KJIT_INTEGRAL(unsigned short)
KJIT_INTEGRAL(int)
KJIT_INTEGRAL(unsigned)
KJIT_INTEGRAL(long)
KJIT_INTEGRAL(unsigned long)
KJIT_INTEGRAL(long long)
KJIT_INTEGRAL(unsigned long long)
#undef KJIT_INTEGRAL

template <typename T>
inline constexpr bool is_real = false;
template <>
inline constexpr bool is_real<float> = true;
template <>
inline constexpr bool is_real<double> = true;
template <>
inline constexpr bool is_real<long double> = true;

}  // namespace kjit_rtc
