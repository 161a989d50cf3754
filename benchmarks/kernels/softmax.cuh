// Softmax of rows.

#include <kjit/patterns/rowwise.h>

#include <cstdint>

namespace {

using namespace kjit;

template <typename T>
struct Softmax {
  using S = compute_t<T>;

  KJIT_MATH OnlineSoftmax<S> term(S x) const { return x; }
  KJIT_MATH OnlineSoftmax<S> row(OnlineSoftmax<S> total, S) const { return {total.max, 1 / total.sum}; }
  KJIT_MATH void element(OnlineSoftmax<S> row, S x, S& out) const { out = row.share(x, row.sum); }

  static void run(TensorView x, TensorView out) {
    using namespace host;
    SymbolicSize B{"B"}, D{"D"};
    SymbolicDevice device;
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(Softmax{}, sizes, device, In<T>(x), Out<T>(out));
  }
};

}  // namespace
