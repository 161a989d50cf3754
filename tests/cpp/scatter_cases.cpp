#include "../gpu/scatter_cases.h"

#include <kjit/ffi.h>

KJIT_EXPORT(store_0, (Store<fp32_t, fp32_t, fp32_t, int64_t>::run))
KJIT_EXPORT(store_1, (Store<bf16_t, fp32_t, fp16_t, int32_t>::run))
KJIT_EXPORT(store_2, (Store<uint8_t, bf16_t, double, int64_t>::run))
