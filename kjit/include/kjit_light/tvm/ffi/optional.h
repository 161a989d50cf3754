// See kjit_light/tvm.h.

#pragma once

#include <kjit_light/tvm.h>
