// Replaces CUDA's header: the simulated part of the CUDA runtime's C++ API.

#pragma once

#include <kjit_sim/sim.h>
