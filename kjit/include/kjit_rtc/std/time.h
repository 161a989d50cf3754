// <time.h> for the device half (kjit_rtc/device.h): clock is built in.

#pragma once

#define clock kjit_rtc_clock
#include_next <time.h>
#undef clock
