// `KJIT_UNROLL for (...)`: a loop that is unrolled on a GPU, so that indexed values stay in registers. Host compilers
// decide themselves.

#pragma once

#ifdef __CUDACC__
#define KJIT_UNROLL _Pragma("unroll")
#else
#define KJIT_UNROLL
#endif
