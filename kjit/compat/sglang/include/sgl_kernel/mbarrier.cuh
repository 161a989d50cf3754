#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/mbarrier.cuh>
#include <sgl_kernel/utils.cuh>
