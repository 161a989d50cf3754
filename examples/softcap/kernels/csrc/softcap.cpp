// softcap on the CPU: softcap.h has the op.

#include "softcap.h"
