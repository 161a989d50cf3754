// A stand-in for CUDA's header of this name (see host_defines.h).

#pragma once

#include <features.h>
