// Symbolisation of addresses of this module: source lines, functions and `__shared__` variables, from its own file.

#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>

#include "scheduler.h"

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// A `__shared__` variable, and its offset in the module's thread-local storage.
struct SharedVariable {
  std::size_t begin;
  std::size_t size;
  char name[96];
};

/// The layout of this module, read from its file at the first use.
struct Module {
  std::uintptr_t base = 0;
  const char* path = "";
  Range data[8];  // its data segments
  int segments = 0;
  SharedVariable* shared = nullptr;
  std::size_t shared_count = 0;

  /// The variable at this offset of the thread-local storage, or null.
  const SharedVariable* shared_at(std::size_t offset) const;
  /// Whether the offset belongs to a variable of the simulator or to none: not the block's memory.
  bool is_own(std::size_t offset) const;

  unsigned char* own = nullptr;  // one byte for each of the thread-local storage
  std::size_t own_size = 0;
};
const Module& this_module();

/// Calls `use` with the memory of each segment of this type, and its description.
template <typename F>
void for_each_segment(const dl_phdr_info& info, std::uint32_t type, F&& use) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& segment = info.dlpi_phdr[i];
    if (segment.p_type != type) continue;
    use(Range{reinterpret_cast<const char*>(info.dlpi_addr + segment.p_vaddr),
              static_cast<std::size_t>(segment.p_memsz)},
        segment);
  }
}

/// Calls `use` with the dynamic loader's description of this module.
template <typename F>
void with_loaded_module(F&& use) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const auto here = reinterpret_cast<std::uintptr_t>(&this_module);
        bool is_ours = false;
        for_each_segment(*info, PT_LOAD, [&](Range memory, const auto&) {
          is_ours |= here - reinterpret_cast<std::uintptr_t>(memory.begin) < memory.size;
        });
        if (is_ours) (*static_cast<F*>(data))(*info);
        return is_ours ? 1 : 0;
      },
      &use);
}

/// `file:line` of the call that returns to `address`, in the op's own source if possible, otherwise module and offset.
/// False: not in the op's own source.
bool place_of(const void* address, char* text, std::size_t size);
/// The return address of the current call into the simulator, in the op's own source if it comes from there.
const void* own_caller();
/// Fails the launch with a report that the running thread's kernel does `what` ("reads ..."), with the location.
[[noreturn]] void fail_at(const char* what, const void* place);
/// The name of a kernel.
void name_of_kernel(const void* address, char* text, std::size_t size);

}  // namespace kjit_sim

#pragma GCC visibility pop
