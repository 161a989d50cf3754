// Errors of a launch that the CPU reports as signals, and blocks that never end.

#pragma once

#include "scheduler.h"

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// Handles signals of kernels during its lifetime, that of a launch. Other signals are passed on.
class LaunchGuard {
 public:
  LaunchGuard();
  ~LaunchGuard();
  LaunchGuard(const LaunchGuard&) = delete;
  LaunchGuard& operator=(const LaunchGuard&) = delete;
};

/// Prepares this OS thread for running blocks of such a launch during its lifetime: an alternate stack, and a timer.
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

/// Whether `KJIT_SIM_TIMEOUT` limits the time of a block.
bool has_timeout();

/// Aborts a block that is overdue, from a call of the simulator that returns to `place`.
[[noreturn]] void leave_overdue(Worker& w, const void* place);

/// Writes to the launch's report what ended the worker's block.
void report_fault(Worker& w);

}  // namespace kjit_sim

#pragma GCC visibility pop
