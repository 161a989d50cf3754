// libcu++ as it is for the host: what of it needs no GPU runs in simulated kernels too.

#pragma once

#undef __CUDACC__
#include_next <cuda/std/__cccl/compiler.h>
#define __CUDACC__ 1
