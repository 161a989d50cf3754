// libcu++ configured for the host: its parts that need no GPU work in simulated kernels too.

#pragma once

#undef __CUDACC__
#include_next <cuda/std/__cccl/compiler.h>
#define __CUDACC__ 1
