#include "../gpu/elementwise_cases.h"

#include <kjit/ffi.h>

KJIT_EXPORT(halves_0, (Halves<fp32_t, fp32_t>::run))
KJIT_EXPORT(halves_1, (Halves<bf16_t, int8_t>::run))
KJIT_EXPORT(mix_0, (Mix<fp32_t, fp32_t, fp32_t>::run))
KJIT_EXPORT(mix_1, (Mix<bf16_t, double, int8_t>::run))
KJIT_EXPORT(mix_2, (Mix<uint8_t, fp16_t, int64_t>::run))
KJIT_EXPORT(mix_3, (Mix<fp16_t, fp8_e4m3_t, bf16_t>::run))
KJIT_EXPORT(mix_4, (Mix<double, int32_t, fp8_e5m2_t>::run))
KJIT_EXPORT(negate_0, Negate<fp32_t>::run)
KJIT_EXPORT(negate_1, Negate<bf16_t>::run)
KJIT_EXPORT(negate_2, Negate<int8_t>::run)
