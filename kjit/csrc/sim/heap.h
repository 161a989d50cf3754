// Memory that kernels have allocated.

#pragma once

#include <cstddef>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// Whether a kernel has allocated these bytes, by `malloc` or `new`, and has not freed them.
bool is_in_heap(const void* address, std::size_t size);

}  // namespace kjit_sim

#pragma GCC visibility pop
