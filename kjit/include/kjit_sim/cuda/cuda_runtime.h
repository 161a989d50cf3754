// CUDA's header, which kjit_sim/sim.h includes before it defines what a CUDA compiler does.

#pragma once

#include_next <cuda_runtime.h>
