// Exports for test_highway_header.py: a hand-written Google Highway kernel in one file.
#include <kjit/ffi.h>
#include <kjit/tensor.h>

#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "highway_cases.cpp"
#include <kjit/highway.h>

HWY_BEFORE_NAMESPACE();
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The number of floats in a vector.
int64_t count_lanes() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

/// Adds a number to each element; the tail in vectors of one lane.
template <typename T>
void add_number(const T* from, T* to, std::size_t numel, T number) {
  const auto add = [&](auto tag, std::size_t at)
                       HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(tag, from + at), hn::Set(tag, number)), tag, to + at); };
  const hn::ScalableTag<T> tag;
  std::size_t at = 0;
  for (; at + hn::Lanes(tag) <= numel; at += hn::Lanes(tag)) add(tag, at);
  for (; at < numel; ++at) add(hn::CappedTag<T, 1>(), at);
}

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace {

HWY_EXPORT(count_lanes);

int64_t lanes() {
  return HWY_DYNAMIC_DISPATCH(count_lanes)();
}

template <typename T>
void add(kjit::TensorView x, double number, kjit::TensorView out) {
  using namespace kjit::host;
  SymbolicSize N = {"numel"};
  TensorMatcher({N}).with_device<kDLCPU>().with_dtype<T>().verify(x).verify(out);

  HWY_EXPORT_T(add_table, add_number<T>);
  HWY_DYNAMIC_DISPATCH_T(add_table)
  (data_of<const T>(x), data_of<T>(out), static_cast<std::size_t>(N.unwrap()), static_cast<T>(number));
}

}  // namespace

KJIT_EXPORT(lanes, lanes)
KJIT_EXPORT(add_floats, add<float>)
KJIT_EXPORT(add_doubles, add<double>)

#endif
