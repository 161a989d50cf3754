// out[i] = table[ids[i]], and zeros for ids that are out of range.

#pragma once

#include <kjit/patterns/gather.h>

#include <cstdint>

namespace {

using namespace kjit;

template <typename T, typename Id>
struct Embedding {
  KJIT_MATH void element(T word, T& out) const { out = word; }

  static void run(TensorView ids, TensorView table, TensorView out) {
    using namespace host;
    SymbolicDevice device;
    SymbolicSize N{"N"}, V{"V"}, D{"D"};
    TensorMatcher({N}).with_device<kDevice>(device).with_dtype<Id>().verify(ids, "ids");
    TensorMatcher({V, D}).with_device<kDevice>(device).with_dtype<T>().verify(table, "table");
    TensorMatcher({N, D}).with_device<kDevice>(device).with_dtype<T>().verify(out, "out");
    const GatherSizes sizes{.table_size = V.unwrap(), .num_rows = N.unwrap(), .row_size = D.unwrap()};
    gather(Embedding{}, sizes, device, Index<Id>(ids), Table<T>(table), Out<T>(out));
  }
};

}  // namespace
