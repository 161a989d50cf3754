#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/type.cuh>
#include <limits>
#include <sgl_kernel/utils.cuh>
