// RMSNorm of q and of k over all heads of a token, in place.

#pragma once

#include <kjit/patterns/rowwise.h>

namespace {

using namespace kjit;

template <typename T>
struct NormAcrossHeads {
  using S = compute_t<T>;
  S eps;

  KJIT_MATH S term(S x) const { return x * x; }
  KJIT_MATH S row(S total, S size) const { return rsqrt(total / size + eps); }
  KJIT_MATH void element(S inverse_rms, S& x, S weight) const { x *= inverse_rms * weight; }

  static void run(TensorView q, TensorView k, TensorView q_weight, TensorView k_weight, double eps) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize B{"B"};
    const auto norm = [&](TensorView x, const char* name, TensorView weight, const char* weight_name) {
      SymbolicSize D{"D"}, stride{"stride"};
      TensorMatcher({B, D}).with_strides({stride, 1}).with_device<kDevice>(device).with_dtype<T>().verify(x, name);
      TensorMatcher({D}).with_device<kDevice>(device).with_dtype<T>().verify(weight, weight_name);
      const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
      rowwise(NormAcrossHeads{static_cast<S>(eps)}, sizes, device, Strided(Mut<T>(x), {.stride = x.stride(0)}),
              PerColumn<T>(weight));
    };
    norm(q, "q", q_weight, "q_weight");
    norm(k, "k", k_weight, "k_weight");
  }
};

}  // namespace
