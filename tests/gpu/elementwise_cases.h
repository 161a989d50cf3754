// Ops with pattern elementwise, for a GPU and for the CPU: every kind of operand, with types of every size in one call.

#pragma once

#include <kjit/patterns/elementwise.h>

#include <cstdint>

namespace {

using namespace kjit;

template <typename T, typename U, typename V>
struct Mix {
  scalar_t<T, U> factor;
  bool adds;

  KJIT_MATH void element(compute_t<T> a, const compute_t<U>& b, compute_t<V>& c, compute_t<T>& d, bool& e) const {
    d = static_cast<compute_t<T>>(a * factor + static_cast<scalar_t<T, U>>(adds));
    e = static_cast<scalar_t<T, U>>(a) < static_cast<scalar_t<T, U>>(b);
    c = static_cast<compute_t<V>>(c + static_cast<compute_t<V>>(b));
  }

  static void run(TensorView a, Optional<TensorView> b, TensorView c, TensorView d, TensorView e, double factor,
                  bool adds) {
    host::SymbolicDevice device;
    host::SymbolicSize n{"n"};
    host::TensorMatcher({n}).with_device<kDevice>(device).with_dtype<T>().verify(a, "a").verify(d, "d");
    host::elementwise(Mix{static_cast<scalar_t<T, U>>(factor), adds}, n.unwrap(), device, In<T>(a), OptionalIn<U>(b),
                      Mut<V>(c), Out<T>(d), Out<bool>(e));
  }
};

/// The halves of rows, a strided tensor that is modified, and one that may be absent.
template <typename T, typename U>
struct Halves {
  KJIT_MATH void element(compute_t<T> left, compute_t<T> right, compute_t<U> other, compute_t<U>& kept,
                         compute_t<T>& out) const {
    out = static_cast<compute_t<T>>(left - right + static_cast<compute_t<T>>(other));
    kept = static_cast<compute_t<U>>(kept + static_cast<compute_t<U>>(left));
  }

  static void run(TensorView x, Optional<TensorView> other, TensorView kept, TensorView out) {
    host::SymbolicDevice device;
    host::SymbolicSize N{"N"}, D{"D"}, stride{"stride"};
    host::TensorMatcher({N, D}).with_device<kDevice>(device).with_dtype<T>().verify(out, "out");
    host::TensorMatcher({N, 2 * D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    host::TensorMatcher({N, D}).with_strides({stride, 1}).with_dtype<U>().verify(kept, "kept");
    const host::RowSizes sizes{.num_rows = N.unwrap(), .row_size = D.unwrap()};
    host::elementwise(Halves{}, sizes, device, left_half(In<T>(x), sizes), right_half(In<T>(x), sizes),
                      OptionalIn<U>(other), Strided(Mut<U>(kept), {.stride = kept.stride(0)}), Out<T>(out));
  }
};

/// Math that is a template, and a single tensor that is modified.
template <typename T>
struct Negate {
  KJIT_MATH void element(auto& x) const { x = -x; }

  static void run(TensorView x) {
    host::SymbolicDevice device;
    host::SymbolicShape shape{"shape"};
    host::TensorMatcher(shape).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    host::elementwise(Negate{}, shape.numel(), device, Mut<T>(x));
  }
};

}  // namespace
