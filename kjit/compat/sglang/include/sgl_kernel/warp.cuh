#pragma once

#include <sgl_kernel/kjit_names.h>

#include <sgl_kernel/bits.h>
#include <kjit/warp.cuh>
#include <sgl_kernel/math.cuh>
#include <sgl_kernel/tile.cuh>
#include <sgl_kernel/vec.cuh>
