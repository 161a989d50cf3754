// What a GPU answers with an error and a CPU with a signal, and blocks that never end: both are the launch's error.

#pragma once

#include "scheduler.h"

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// While it lives, a launch runs, and signals of its kernel are looked after. Others go where they would go without it.
class LaunchGuard {
 public:
  LaunchGuard();
  ~LaunchGuard();
  LaunchGuard(const LaunchGuard&) = delete;
  LaunchGuard& operator=(const LaunchGuard&) = delete;
};

/// While it lives, this OS thread may run blocks of such a launch: it has a stack for them, and a clock.
class FaultGuard {
 public:
  explicit FaultGuard(Worker& w);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

 private:
  stack_t stack_before_{};
  sigset_t mask_before_{};
  timer_t clock_{};
  bool has_stack_ = false;
  bool has_clock_ = false;
  int entry_ = -1;
};

/// Whether `KJIT_SIM_TIMEOUT` lets a block end that runs for too long.
bool has_timeout();

/// Gives up a block that is overdue, from a call of the simulator's that returns to `place`.
[[noreturn]] void leave_overdue(Worker& w, const void* place);

/// Says in the launch's report what ended the worker's block.
void report_fault(Worker& w);

}  // namespace kjit_sim

#pragma GCC visibility pop
