// The one definition of what the headers only declare under -DKJIT_PRECOMPILED; linked into every module that kjit builds.

#include <kjit/impl/ffi.h>
#include <kjit/impl/tensor.h>
#include <kjit/impl/utils.h>
