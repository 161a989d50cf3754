#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/impl/norm.cuh>
#include <sgl_kernel/cta.cuh>
