// The usual includes of a CUDA kernel: element types, launches, and kjit/device.cuh.
//
//   template <typename T> __global__ void copy(T* dst, const T* src, int64_t n);
//   KJIT_DEVICE float half_of(bf16_t x) { return static_cast<float>(x) * 0.5f; }
//   host::LaunchKernel(host::div_ceil(n, 256), 256, device)(copy<fp16_t>, dst, src, n);
//
// CUDA's headers for half and 8-bit types take over half as long to compile as an empty kernel. A source that uses none
// of their functions defines KJIT_LIGHT_TYPES before its first include: the names are then kjit's own types
// (kjit/dtype.h). A source that uses them, but not the 8-bit types, may define KJIT_NO_FP8.

#pragma once

#include <kjit/dtype.h>
#include <kjit/launch.h>
#include <kjit/utils.h>

#if KJIT_CUDA_TYPES
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifndef KJIT_NO_FP8
#include <cuda_fp8.h>
#endif
#endif

// Kernels test CUDA_VERSION for the toolkit's version. It is defined by <cuda.h>, which is long; redefining it to the
// same number is allowed.
#ifndef CUDA_VERSION
#if CUDART_VERSION == 12080
#define CUDA_VERSION 12080
#elif CUDART_VERSION == 12090
#define CUDA_VERSION 12090
#elif CUDART_VERSION == 13000
#define CUDA_VERSION 13000
#elif CUDART_VERSION == 13010
#define CUDA_VERSION 13010
#elif CUDART_VERSION == 13020
#define CUDA_VERSION 13020
#else
#include <cuda.h>
#endif
#endif
#include <kjit/device.cuh>
