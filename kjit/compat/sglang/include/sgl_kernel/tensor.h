#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/tensor.h>
#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <optional>
#include <sgl_kernel/utils.cuh>
