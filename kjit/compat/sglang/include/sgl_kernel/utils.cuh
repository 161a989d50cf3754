#pragma once

#include <sgl_kernel/kjit_names.h>

#include <sgl_kernel/bits.h>
#include <sgl_kernel/utils.h>
#include <kjit/utils.cuh>
#include <optional>
#include <type_traits>
