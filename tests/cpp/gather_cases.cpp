#include "../gpu/gather_cases.h"

#include <kjit/ffi.h>

KJIT_EXPORT(look_up_0, (LookUp<fp32_t, fp32_t, fp32_t, int64_t>::run))
KJIT_EXPORT(look_up_1, (LookUp<bf16_t, fp32_t, fp16_t, int32_t>::run))
KJIT_EXPORT(look_up_2, (LookUp<uint8_t, bf16_t, double, int64_t>::run))
