#include <kjit/patterns/rowwise.h>

#include <cstdint>

using namespace kjit;

template <typename T>
struct Scale {
  compute_t<T> eps;

  KJIT_MATH compute_t<T> term(compute_t<T> x) const { return x * x; }
  KJIT_MATH compute_t<T> row(compute_t<T> total, compute_t<T> size, float& rms) const {
    return rms = total / size + eps;
  }
  KJIT_MATH void element(compute_t<T> mean, compute_t<T> x, compute_t<T> weight, compute_t<T>& out) const {
    out = x / mean * weight;
  }

  static void run(TensorView x, TensorView weight, double eps, TensorView out, TensorView rms) {
    using namespace host;
    SymbolicSize B{"B"}, D{"D"};
    SymbolicDevice device;
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(Scale{static_cast<compute_t<T>>(eps)}, sizes, device, In<T>(x), PerColumn<T>(weight), Out<T>(out),
            OutPerRow<float>(rms));
  }
};
