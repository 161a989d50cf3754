// add_constant: element by element.
//
//     x: T[...], constant: const int = 1 -> out: T[...]

#pragma once

#include <kjit/patterns/elementwise.h>

#include <cstdint>

namespace {

using namespace kjit;

template <typename T, int64_t constant>
struct AddConstant {
  /// The math of one element, from one value of each tensor, in compute_t<T>: float for narrower types.
  KJIT_MATH void element(compute_t<T> x, compute_t<T>& out) const {
    // The math, as in `reference` of tests/ops/test_add_constant.py.
    out = x + constant;
  }

  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicShape shape{"shape"};
    SymbolicDevice device;
    TensorMatcher(shape).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");

    elementwise(AddConstant{}, shape.numel(), device, In<T>(x), Out<T>(out));
  }
};

KJIT_EDITOR_CHECKS(AddConstant<int32_t, 1>::run);

}  // namespace
