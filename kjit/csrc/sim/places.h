// Names for addresses of this module: source lines, functions and `__shared__` variables, from its own file.

#pragma once

#include <cstddef>
#include <cstdint>

#include "scheduler.h"

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// A `__shared__` variable: its place in the module's thread-local storage.
struct SharedVariable {
  std::size_t begin;
  std::size_t size;
  char name[96];
};

/// What is known of this module; read from its file at the first use.
struct Module {
  std::uintptr_t base = 0;
  const char* path = "";
  Range data[8];  // its segments: variables, constants
  int segments = 0;
  SharedVariable* shared = nullptr;
  std::size_t shared_count = 0;

  /// The variable that holds the byte at this place in the thread-local storage, or null.
  const SharedVariable* shared_at(std::size_t offset) const;
  /// Where a variable of the simulator itself, or of nobody, is: not the block's memory.
  bool is_own(std::size_t offset) const;

  unsigned char* own = nullptr;  // a byte for each of the thread-local storage
  std::size_t own_size = 0;
};
const Module& this_module();

/// `file:line` of the call before `address`, in the op's own source where there is one; else module and offset. False:
/// nothing of the op's own source is there.
bool place_of(const void* address, char* text, std::size_t size);
/// Where the caller of the simulator that asks goes on, in the op's own source if it comes from there.
const void* own_caller();
/// Ends the launch with a report that the running thread's kernel does `what` ("reads ..."), with the place.
[[noreturn]] void accuse(const char* what, const void* place);
/// The name of a kernel.
void name_of_kernel(const void* address, char* text, std::size_t size);

}  // namespace kjit_sim

#pragma GCC visibility pop
