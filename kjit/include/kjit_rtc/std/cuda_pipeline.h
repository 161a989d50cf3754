// <cuda_pipeline.h> for the device half (kjit_rtc/device.h), without its own types for NVRTC: the preprocessed half has
// those of <stdint.h>.

#pragma once
#pragma GCC system_header

#undef __CUDACC_RTC__
#include_next <cuda_pipeline.h>
#define __CUDACC_RTC__ 1
