#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/tvm_ffi.h>
#include <sgl_kernel/utils.h>
