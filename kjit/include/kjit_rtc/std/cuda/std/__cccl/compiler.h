// libcu++'s compiler detection for the device half: NVRTC, although GCC preprocesses.

#pragma once

#pragma push_macro("__GNUC__")
#undef __GNUC__
#include_next <cuda/std/__cccl/compiler.h>
#pragma pop_macro("__GNUC__")

// A namespace that libcu++ names if GCC's library is present.
namespace __gnu_cxx {
template <typename Iterator, typename Container>
class __normal_iterator;
}
