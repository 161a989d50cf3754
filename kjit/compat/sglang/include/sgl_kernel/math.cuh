#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/math.cuh>
#include <sgl_kernel/type.cuh>
