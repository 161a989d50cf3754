// softcap: values kept within +-cap, smoothly, as Gemma 2 does with logits.
//
//     x: T[...], cap: float = 30.0 -> out: T[...]

#pragma once

#include <kjit/patterns/elementwise.h>

#include <cmath>
#include <cstdint>

namespace {

using namespace kjit;

template <typename T>
struct Softcap {
  scalar_t<T> cap;

  /// The math of one element, from one value of each tensor, in compute_t<T>: float for narrower types.
  KJIT_MATH void element(compute_t<T> x, compute_t<T>& out) const { out = cap * tanhf(x / cap); }

  static void run(TensorView x, double cap, TensorView out) {
    using namespace host;
    SymbolicShape shape{"shape"};
    SymbolicDevice device;
    TensorMatcher(shape).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");

    elementwise(Softcap{static_cast<scalar_t<T>>(cap)}, shape.numel(), device, In<T>(x), Out<T>(out));
  }
};

}  // namespace
