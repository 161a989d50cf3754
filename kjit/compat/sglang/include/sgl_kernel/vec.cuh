#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/vec.cuh>
#include <sgl_kernel/type.cuh>
