#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/cta.cuh>
#include <sgl_kernel/warp.cuh>
