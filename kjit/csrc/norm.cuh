// Norms of rows: RMSNorm, RMSNorm with a residual addition, LayerNorm.

#pragma once

#include <kjit/patterns/rowwise.h>

namespace {

using namespace kjit;

/// out = x / sqrt(mean(x * x) + eps) * (weight + offset)
template <typename T>
struct RmsNorm {
  using S = compute_t<T>;
  S eps, offset;

  KJIT_MATH S term(S x) const { return x * x; }
  KJIT_MATH S row(S total, S size) const { return rsqrt(total / size + eps); }
  KJIT_MATH void element(S inverse_rms, S x, S weight, S& out) const { out = x * inverse_rms * (weight + offset); }

  static void run(TensorView x, TensorView weight, double eps, double offset, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    TensorMatcher({D}).with_device<kDevice>(device).with_dtype<T>().verify(weight, "weight");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(RmsNorm{static_cast<S>(eps), static_cast<S>(offset)}, sizes, device, In<T>(x), PerColumn<T>(weight),
            Out<T>(out));
  }
};

/// residual += x; x = residual / sqrt(mean(residual * residual) + eps) * (weight + offset)
template <typename T>
struct FusedAddRmsNorm {
  using S = compute_t<T>;
  S eps, offset;

  KJIT_MATH S term(S x, S residual) const { return (x + residual) * (x + residual); }
  KJIT_MATH S row(S total, S size) const { return rsqrt(total / size + eps); }
  KJIT_MATH void element(S inverse_rms, S& x, S& residual, S weight) const {
    residual += x;
    x = residual * inverse_rms * (weight + offset);
  }

  static void run(TensorView x, TensorView residual, TensorView weight, double eps, double offset) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(residual, "residual");
    TensorMatcher({D}).with_device<kDevice>(device).with_dtype<T>().verify(weight, "weight");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(FusedAddRmsNorm{static_cast<S>(eps), static_cast<S>(offset)}, sizes, device, Mut<T>(x), Mut<T>(residual),
            PerColumn<T>(weight));
  }
};

/// out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias
template <typename T>
struct LayerNorm {
  using S = compute_t<T>;
  struct Scaling {
    S mean, inverse_deviation;
  };
  S eps;

  KJIT_MATH Welford<S> term(S x) const { return x; }
  KJIT_MATH Scaling row(Welford<S> total, S) const { return {total.mean, rsqrt(total.variance() + eps)}; }
  KJIT_MATH void element(Scaling row, S x, S weight, S bias, S& out) const {
    out = (x - row.mean) * row.inverse_deviation * weight + bias;
  }

  static void run(TensorView x, TensorView weight, Optional<TensorView> bias, double eps, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"}, D{"D"};
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    TensorMatcher columns({D});
    columns.with_device<kDevice>(device).with_dtype<T>().verify(weight, "weight");
    if (bias.has_value()) columns.verify(bias.value(), "bias");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    rowwise(LayerNorm{static_cast<S>(eps)}, sizes, device, In<T>(x), PerColumn<T>(weight), OptionalPerColumn<T>(bias),
            Out<T>(out));
  }
};

}  // namespace
