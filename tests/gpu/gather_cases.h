// An op with pattern gather, for a GPU and for the CPU: every role of a tensor, and types of several sizes side by
// side.

#pragma once

#include <kjit/patterns/gather.h>

#include <cstdint>

namespace {

using namespace kjit;

template <typename T, typename U, typename V, typename I>
struct LookUp {
  KJIT_MATH void element(compute_t<T> row, T moved, compute_t<U> column, compute_t<V> bias, compute_t<V> gate,
                         compute_t<U> shift, compute_t<V>& sum, T& out) const {
    sum = static_cast<compute_t<V>>(sum + static_cast<compute_t<V>>(row) * gate +
                                    static_cast<compute_t<V>>(column + shift) + bias);
    out = moved;
  }

  static void run(TensorView table, TensorView index, TensorView column, Optional<TensorView> bias, TensorView gate,
                  Optional<TensorView> shift, TensorView sum, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize rows{"rows"}, chosen{"chosen"}, columns{"columns"};
    TensorMatcher({rows, columns}).with_device<kDevice>(device).with_dtype<T>().verify(table, "table");
    TensorMatcher({chosen}).with_device<kDevice>(device).with_dtype<I>().verify(index, "index");
    TensorMatcher({chosen, columns}).with_device<kDevice>(device).with_dtype<T>().verify(out, "out");
    const GatherSizes sizes{
        .table_size = rows.unwrap(),
        .num_rows = chosen.unwrap(),
        .row_size = columns.unwrap(),
    };
    gather(LookUp{}, sizes, device, Index<I>(index), Table<T>(table), Table<T>(table), PerColumn<U>(column),
           OptionalPerColumn<V>(bias), PerRow<V>(gate), OptionalPerRow<U>(shift), Mut<V>(sum), Out<T>(out));
  }
};

// Where a tensor has what belongs to an element.
static_assert(Table<float>::kPlace == Place::kTable && PerRow<float>::kPlace == Place::kRow);

}  // namespace
