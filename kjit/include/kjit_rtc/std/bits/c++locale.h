// Part of GCC's library for the device half (kjit_rtc/device.h): the C library's locales, which only host code uses.

#pragma once

#include <cstddef>

#define _GLIBCXX_C_LOCALE_GNU 1
#define _GLIBCXX_NUM_CATEGORIES 6

namespace std {

typedef void* __c_locale;
int __convert_from_v(const __c_locale&, char*, int, const char*, ...);

}  // namespace std
