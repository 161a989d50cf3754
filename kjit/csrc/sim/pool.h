// The work of an OS thread in a launch.

#pragma once

#include "scheduler.h"

#pragma GCC visibility push(hidden)

namespace kjit_sim {

/// Prepares a worker for a launch. A `seed` other than 0 randomises the order of threads.
void begin_launch(Worker& w, Launch& launch, std::uint64_t seed);

/// Runs one block of the worker's launch to its end; false when it failed.
bool run_block(Worker& w, std::uint64_t number);

}  // namespace kjit_sim

#pragma GCC visibility pop
