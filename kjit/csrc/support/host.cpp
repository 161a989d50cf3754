// All functions that the headers only declare under -DKJIT_PRECOMPILED, in one unit; linked into every module that kjit
// builds.

#include <kjit/detail/ffi_python.cpp>
#include <kjit/ffi.cpp>
#include <kjit/impl/errors.cpp>
#include <kjit/once.cpp>
#include <kjit/streaming.cpp>
#include <kjit/tensor.cpp>
#include <kjit/utils.cpp>

#include <kjit/detail/pattern_call.cpp>
