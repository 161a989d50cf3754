#include "../gpu/rowwise_cases.h"

#include <kjit/ffi.h>

#include <type_traits>

// glibc declares it from 2.42 on.
extern "C" double rsqrt(double) noexcept;

namespace {
using namespace kjit;
static_assert(std::is_same_v<decltype(rsqrt(1.0)), double> && std::is_same_v<decltype(rsqrt(1.0f)), float>);
}  // namespace

KJIT_EXPORT(rms_norm, RmsNorm<bf16_t>::run)
KJIT_EXPORT(add_rms_norm, AddRmsNorm<bf16_t>::run)
KJIT_EXPORT(layer_norm, LayerNorm<fp32_t>::run)
KJIT_EXPORT(softmax, Softmax<fp32_t>::run)
KJIT_EXPORT(log_softmax, LogSoftmax<fp16_t>::run)
KJIT_EXPORT(argmax, ArgMaxOfRow<bf16_t>::run)
KJIT_EXPORT(row_max, MaxOfRow<double>::run)
KJIT_EXPORT(quantise, Quantise<bf16_t>::run)
KJIT_EXPORT(silu_mul_quantise, SiluMulQuantise<bf16_t>::run)
KJIT_EXPORT(cross_entropy, CrossEntropy<bf16_t>::run)
KJIT_EXPORT(qk_norm, QkNorm<bf16_t>::run)
KJIT_EXPORT(qk_norm_across, QkNorm<bf16_t>::run_across)
KJIT_EXPORT(every_role_0, (EveryRole<fp32_t, bf16_t, uint8_t>::run))
KJIT_EXPORT(every_role_1, (EveryRole<bf16_t, fp32_t, fp16_t>::run))
