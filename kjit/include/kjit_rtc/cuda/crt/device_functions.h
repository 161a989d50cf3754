// A stand-in for CUDA's header of this name (see host_defines.h): what a launch calls. NVRTC declares the rest.

#pragma once

#include "builtin_types.h"

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_memory = 0,
                                                struct CUstream_st* stream = nullptr);
