// An op with pattern scatter, for a GPU and for the CPU: every kind of operand, with types of several sizes in one
// call.

#pragma once

#include <kjit/patterns/scatter.h>

#include <cstdint>

namespace {

using namespace kjit;

template <typename T, typename U, typename V, typename I>
struct Store {
  KJIT_MATH void element(T& cache, compute_t<V>& total, T moved, compute_t<T> x, compute_t<U> gate, compute_t<U> more,
                         compute_t<V> bias) const {
    cache = moved;
    total = static_cast<compute_t<V>>(total + static_cast<compute_t<V>>(x) * static_cast<compute_t<V>>(gate) +
                                      static_cast<compute_t<V>>(more) + bias);
  }

  static void run(TensorView cache, TensorView total, TensorView index, TensorView x, TensorView gate,
                  Optional<TensorView> more, Optional<TensorView> bias) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize rows{"rows"}, stored{"stored"}, columns{"columns"};
    TensorMatcher({rows, columns}).with_device<kDevice>(device).with_dtype<T>().verify(cache, "cache");
    TensorMatcher({stored}).with_device<kDevice>(device).with_dtype<I>().verify(index, "index");
    TensorMatcher({stored, columns}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x");
    const ScatterSizes sizes{
        .table_size = rows.unwrap(),
        .num_rows = stored.unwrap(),
        .row_size = columns.unwrap(),
    };
    scatter(Store{}, sizes, device, Index<I>(index), OutTable<T>(cache), MutTable<V>(total), In<T>(x), In<T>(x),
            PerRow<U>(gate), OptionalIn<U>(more), OptionalPerColumn<V>(bias));
  }
};

}  // namespace
