// The counterpart of host.cpp for functions that need the CUDA runtime; linked into every CUDA module that kjit builds.

#include <kjit/launch.cpp>
#include <kjit/runtime.cpp>

#include <kjit/detail/row_spread.cpp>
