// What tests/cpp/test_cpu_header.py calls: the parts of kjit/highway.h.
#include <kjit/cpu_rows.h>
#include <kjit/ffi.h>

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "highway_cases.cpp"
#include <kjit/highway.h>

HWY_BEFORE_NAMESPACE();
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kjit::HWY_NAMESPACE;

/// Copies halves through lanes, and returns their sum.
float through_lanes(const kjit::fp16_t* from, kjit::fp16_t* to, int64_t numel, bool wants_streams) {
  using Tag = hn::ScalableTag<kjit::lane_t<kjit::fp16_t>>;
  const Tag tag;
  hn::Vec<Tag> totals = hn::Zero(tag);
  const bool streams = wants_streams && are_aligned(tag, to);
  for_vectors(tag, 0, numel, streams, [&]<typename Part>(int64_t at, Part part) HWY_ATTR {
    const hn::Vec<Tag> x = load(tag, from + at, part);
    const hn::Vec<Tag> zeros = load_or_zero(tag, static_cast<const float*>(nullptr), at, part);
    totals = totals + only(tag, x + zeros + hn::Set(tag, 1.0f), part);
    store(tag, x, to + at, part);
  });
  for_vectors(tag, 0, 0, [&]<typename Part>(int64_t, Part) HWY_ATTR { totals = hn::Zero(tag); });
  HWY_ALIGN float lanes[hn::MaxLanes(Tag())];
  store_vector(tag, totals, lanes, kjit::AllLanes{streams});
  totals = hn::Load(tag, lanes);
  static_assert(kConvertsHalves || !kConvertsHalves);
  static_assert(kIsNarrowInt<int8_t> && sizeof(kjit::bits_t<double>) == 8);
  static_assert(!std::is_same_v<kjit::AllLanes, size_t>);
  float first;
  store_one(load_one<float>(from, 0), &first, 0);
  return hn::GetLane(hn::SumOfLanes(tag, totals)) + first;
}

/// Converts floats to bf16, and to whether they are another number than zero.
void convert_lanes(const float* from, kjit::bf16_t* to, bool* is_set, int64_t numel) {
  const hn::ScalableTag<float> tag;
  for_vectors(tag, 0, numel, [&]<typename Part>(int64_t at, Part part) HWY_ATTR {
    store(tag, load(tag, from + at, part), to + at, part);
    store(tag, load(tag, from + at, part), is_set + at, part);
  });
}

/// Copies elements in lanes, a third of them first; or writes all, the last of them twice, unless `wants_streams`.
template <typename Copied>
void copy_row(const typename Copied::Element* from, typename Copied::Element* to, int64_t size, bool writes,
              bool wants_streams) {
  const hn::ScalableTag<typename Copied::Lane> tag;
  const auto copy = [&]<typename Part>(int64_t at, Part part)
                        HWY_ATTR { store(tag, load_or_zero(tag, from, at, part), to + at, part); };
  const auto write = [&]<class Tag, typename Part>(Tag narrowed, int64_t at, Part part)
                         HWY_ATTR { store(narrowed, load_or_zero(narrowed, from, at, part), to + at, part); };
  if (writes) {
    write_vectors(tag, 0, 0, write);
    write_vectors(tag, 0, size, wants_streams && are_aligned(tag, to), write);
    write_run(tag, kjit::run<false>(0, size / 3, size), wants_streams && are_aligned(tag, to + size / 3), write);
  } else {
    for_vectors(tag, 0, size / 3, copy);
    for_vectors(tag, size / 3, size, copy);
    for_run(tag, kjit::run<false>(0, size / 3, size), false, write);
  }
}

/// For which of three functions the compiler sees that they only copy: a bit for each.
int64_t find_copying() {
  const hn::ScalableTag<float> tag;
  const bool copies = only_copies(tag, [](auto, const auto& from, auto& to) HWY_ATTR { to = from; });
  const bool doubles = only_copies(tag, [](auto, const auto& from, auto& to) HWY_ATTR { to = from + from; });
  const bool clears = only_copies(tag, [](auto tag, const auto& from, auto& to)
                                           HWY_ATTR { to = hn::IfThenZeroElse(from == hn::Set(tag, 7.0f), from); });
  return copies | doubles << 1 | clears << 2;
}

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace {

HWY_EXPORT(through_lanes);
HWY_EXPORT(convert_lanes);
HWY_EXPORT(find_copying);

double copy(kjit::TensorView x, kjit::TensorView out, bool streams) {
  const auto* from = static_cast<const kjit::fp16_t*>(x.data_ptr());
  return HWY_DYNAMIC_DISPATCH(through_lanes)(from, static_cast<kjit::fp16_t*>(out.data_ptr()), x.numel(), streams);
}

void convert(kjit::TensorView x, kjit::TensorView out, kjit::TensorView is_set) {
  const auto* from = static_cast<const float*>(x.data_ptr());
  auto* to = static_cast<kjit::bf16_t*>(out.data_ptr());
  HWY_DYNAMIC_DISPATCH(convert_lanes)(from, to, static_cast<bool*>(is_set.data_ptr()), x.numel());
}

int64_t copying() {
  return HWY_DYNAMIC_DISPATCH(find_copying)();
}

/// Elements of type `T` in lanes of another.
template <typename T, typename L>
struct Copied {
  using Element = T;
  using Lane = L;
};

template <typename T, typename L>
void copy_as(kjit::TensorView x, kjit::TensorView out, bool writes, bool wants_streams) {
  using As = Copied<T, L>;
  HWY_EXPORT_T(copy_table, copy_row<As>);
  const auto* from = static_cast<const T*>(x.data_ptr());
  HWY_DYNAMIC_DISPATCH_T(copy_table)(from, static_cast<T*>(out.data_ptr()), x.numel(), writes, wants_streams);
  kjit::stream_fence();
}

}  // namespace

KJIT_EXPORT(copy, copy)
KJIT_EXPORT(copy_bytes, copy_as<uint8_t, uint8_t>)
KJIT_EXPORT(copy_few_bytes, copy_as<uint8_t, int64_t>)
KJIT_EXPORT(copy_halves, copy_as<kjit::fp16_t, uint16_t>)
KJIT_EXPORT(copy_fp16_as_floats, copy_as<kjit::fp16_t, float>)
KJIT_EXPORT(copy_bf16_as_floats, copy_as<kjit::bf16_t, float>)
KJIT_EXPORT(copy_floats, copy_as<float, float>)
KJIT_EXPORT(copy_doubles, copy_as<double, uint64_t>)
KJIT_EXPORT(convert, convert)
KJIT_EXPORT(copying, copying)

#endif
