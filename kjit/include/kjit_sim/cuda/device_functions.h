// The CUDA runtime's C++ API: what of it the simulator has is there in every unit.

#pragma once

#include <kjit_sim/sim.h>
