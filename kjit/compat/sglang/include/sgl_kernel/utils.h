#pragma once

#include <sgl_kernel/kjit_names.h>

#include <kjit/utils.h>
#include <sgl_kernel/source_location.h>
#include <concepts>
#include <cstddef>
#include <ranges>
#include <utility>

namespace kjit::host {

namespace stdr = std::ranges;
namespace stdv = stdr::views;

}  // namespace kjit::host
