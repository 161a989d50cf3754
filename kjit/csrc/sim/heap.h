// Memory that kernels have allocated.

#pragma once

#include <cstddef>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// Whether the bytes are in a live allocation of a kernel, by `malloc` or `new`.
bool is_in_heap(const void* address, std::size_t size);

}  // namespace kjit_sim

#pragma GCC visibility pop
