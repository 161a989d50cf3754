// What nearly every CUDA kernel needs: the element types, launching, and kjit/device.cuh.
//
//   template <typename T> __global__ void copy(T* dst, const T* src, int64_t n);
//   KJIT_DEVICE float half_of(bf16_t x) { return static_cast<float>(x) * 0.5f; }
//   host::LaunchKernel(host::div_ceil(n, 256), 256, device)(copy<fp16_t>, dst, src, n);
//
// CUDA's headers for half and 8-bit types take over half as long to compile as an empty kernel. A source that is
// generic in its element type includes kjit/device.cuh and kjit/launch.h instead.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <kjit/dtype.h>
#include <kjit/launch.h>
#include <kjit/utils.h>
#include <kjit/device.cuh>
