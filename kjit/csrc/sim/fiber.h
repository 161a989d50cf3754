// Stacks, and changing from one to another.

#pragma once

#include <cstddef>

#pragma GCC visibility push(hidden)

/// Goes on at `to`; whoever switches to `*from` later comes back here.
extern "C" void kjit_sim_switch(void** from, void* to);

namespace kjit_sim {

/// For one thread of a kernel: the 512 KiB that a GPU has for the variables of a thread, and what calls need. Pages
/// that are never touched cost nothing, and the one below it is not accessible.
inline constexpr std::size_t kStackBytes = 576 * 1024;

/// The size of that page.
std::size_t guard_bytes();

/// A context that calls `entry`, which must not return, on an unused stack.
void* new_context(char* stack, void (*entry)());

/// Stacks for the threads of a block, mapped as they are asked for. With the page below it each is two mappings, of
/// which a process may have some 65,000; every module has stacks of its own, for each OS thread.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// One that nobody uses, or null where there is no memory, or none left of `kMost`.
  char* take();
  void give_back(char* stack);
  /// Unmaps all but one. Nobody uses any.
  void shrink();

  static constexpr int kMost = 1024;

 private:
  // Mapped together: 1, 31, 32, 64, 128, 256 and 512.
  static constexpr int kGroups = 7;
  static constexpr int size_of(int group) { return group == 0 ? 1 : group == 1 ? 31 : 16 << (group - 1); }
  void unmap(int from);

  char* groups_[kGroups] = {};
  int mapped_ = 0;          // groups
  char* unused_ = nullptr;  // a list through the stacks' highest words
};

}  // namespace kjit_sim

#pragma GCC visibility pop
