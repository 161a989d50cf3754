// softcap on a GPU: softcap.h has the op.

#include "softcap.h"
