// Signals that kernels may raise, while any module of the process runs a kernel.

#pragma once

#include <csignal>

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// SIGURG is for timers: it is ignored by default, so that a late one is harmless.
inline constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGURG};
inline constexpr int kSignalCount = sizeof(kSignals) / sizeof(kSignals[0]);

/// Called in a handler; does not return, or returns whether the signal was this module's.
using Taker = bool (*)(int signal, siginfo_t* info, void* context);

/// Until `end_signals`, this module's `take` is called for each of these signals. Launches may overlap.
void begin_signals(Taker take);
void end_signals();

}  // namespace kjit_sim

#pragma GCC visibility pop
