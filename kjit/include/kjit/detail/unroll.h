// `KJIT_UNROLL for (...)`: a loop that is unrolled on a GPU, where an index has to be known for a value to stay in a
// register. Host compilers decide for themselves.

#pragma once

#ifdef __CUDACC__
#define KJIT_UNROLL _Pragma("unroll")
#else
#define KJIT_UNROLL
#endif
