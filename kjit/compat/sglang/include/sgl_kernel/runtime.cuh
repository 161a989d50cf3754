#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/runtime.cuh>
#include <sgl_kernel/utils.cuh>
