// Empty: the simulated part of the CUDA runtime's C++ API is included in every unit.

#pragma once

#include <kjit_sim/sim.h>
