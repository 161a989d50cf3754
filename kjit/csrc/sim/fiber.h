// Stacks, and changing from one to another.

#pragma once

#include <cstddef>

#pragma GCC visibility push(hidden)

/// Goes on at `to`; whoever switches to `*from` later comes back here.
extern "C" void kjit_sim_switch(void** from, void* to);

namespace kjit_sim {

/// For one thread of a kernel. A page below it is not accessible.
inline constexpr std::size_t kStackBytes = 64 * 1024;

/// A context that calls `entry`, which must not return, on an unused stack.
void* new_context(char* stack, void (*entry)());

/// Unused stacks are a list through their highest words.
inline char*& next_stack(char* stack) {
  return *reinterpret_cast<char**>(stack + kStackBytes - sizeof(char*));
}

/// Maps stacks, as a list; null where there is no memory.
char* map_stacks(int count);

}  // namespace kjit_sim

#pragma GCC visibility pop
