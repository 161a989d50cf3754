// softmax(x * scale) of rows, reading memory once.

#pragma once

#include <kjit/patterns/rowwise.h>

namespace {

using namespace kjit;

template <typename T>
struct Softmax {
  using S = compute_t<T>;
  S scale;

  KJIT_MATH OnlineSoftmax<S> term(S x) const { return x * scale; }
  KJIT_MATH OnlineSoftmax<S> row(OnlineSoftmax<S> total, S) const { return {total.max, 1 / total.sum}; }
  KJIT_MATH void element(OnlineSoftmax<S> row, S x, S& out) const { out = row.share(x * scale, row.sum); }

  static void run(TensorView x, double scale, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(Softmax{static_cast<S>(scale)}, sizes, device, In<T>(x), Out<T>(out));
  }
};

}  // namespace
