// CUDA's 4-bit floating-point types as plain C++.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#undef __CUDACC__
#include_next <cuda_fp4.h>
#define __CUDACC__ 1
