// CUDA's C++ library asks here which compiler reads it: NVRTC, though GCC preprocesses.

#pragma once

#pragma push_macro("__GNUC__")
#undef __GNUC__
#include_next <cuda/std/__cccl/compiler.h>
#pragma pop_macro("__GNUC__")

// Named by it where GCC's library is there.
namespace __gnu_cxx {
template <typename Iterator, typename Container>
class __normal_iterator;
}
