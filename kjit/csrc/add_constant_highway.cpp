// add_constant on the CPU with Google Highway, in one file: vector code for several instruction sets, selected at the
// first call.

#include <kjit/cpu.h>
#include <kjit/tensor.h>

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "add_constant_highway.cpp"
#include <kjit/highway.h>  // re-includes this file once for each instruction set

HWY_BEFORE_NAMESPACE();
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void add_to_range(const int32_t* x, int32_t* out, int32_t constant, int64_t begin, int64_t end) {
  const hn::ScalableTag<int32_t> tag;
  const auto constants = hn::Set(tag, constant);
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) hn::StoreU(hn::Add(hn::LoadU(tag, x + i), constants), tag, out + i);
  for (; i < end; ++i) out[i] = static_cast<int32_t>(static_cast<uint32_t>(x[i]) + static_cast<uint32_t>(constant));
}

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace {

HWY_EXPORT(add_to_range);

template <int32_t constant>
void add_constant_highway(kjit::TensorView x, kjit::TensorView out) {
  using namespace kjit::host;
  SymbolicShape shape{"shape"};
  TensorMatcher(shape).with_device<kDLCPU>().with_dtype<int32_t>().verify(x, "x").verify(out, "out");
  const auto* from = data_of<const int32_t>(x);
  auto* to = data_of<int32_t>(out);
  constexpr int64_t kGrain = 32'768;  // elements that justify a thread
  kjit::parallel_ranges(shape.numel(), kGrain, true, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_to_range)(from, to, constant, begin, end);
  });
}

}  // namespace
#endif
