// Stacks, and switching between them.

#pragma once

#include <cstddef>

#pragma GCC visibility push(hidden)

/// Continues at `to`; returns when something switches back to `*from`.
extern "C" void kjit_sim_switch(void** from, void* to);

namespace kjit_sim {

/// Bytes in the stack of a kernel thread: the 512 KiB of local memory that a GPU thread has, plus call frames.
/// Untouched pages cost nothing, and a guard page lies below.
inline constexpr std::size_t kStackBytes = 576 * 1024;

/// The size of the guard page.
std::size_t guard_bytes();

/// A context that calls `entry`, which must not return, on an unused stack.
void* new_context(char* stack, void (*entry)());

/// Stacks for the threads of a block, mapped on demand. With its guard page each is two mappings, of which a process
/// may have about 65,000; every module has its own stacks for each OS thread.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// An unused stack; null if memory is exhausted, or all `kMost` are in use.
  char* take();
  void give_back(char* stack);
  /// Unmaps all but one. None may be in use.
  void shrink();

  static constexpr int kMost = 1024;

 private:
  // Mapped in groups of 1, 31, 32, 64, 128, 256 and 512.
  static constexpr int kGroups = 7;
  static constexpr int size_of(int group) { return group == 0 ? 1 : group == 1 ? 31 : 16 << (group - 1); }
  void unmap(int from);

  char* groups_[kGroups] = {};
  int mapped_ = 0;          // groups
  char* unused_ = nullptr;  // a list linked through the stacks' highest words
};

}  // namespace kjit_sim

#pragma GCC visibility pop
