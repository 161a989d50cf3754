// Pattern scatter: rows of the tensors are written to rows of a table, selected by an index.
//
//   struct Store {
//     KJIT_MATH void element(float& cache, float x) const { cache = x; }
//   };
//   host::scatter(Store{}, {.table_size = 50'000, .num_rows = 32, .row_size = 4096}, device, Index<int64_t>(slots),
//                 OutTable<float>(cache), In<float>(x));  // cache[slots[r]] = x[r]
//
// In a CUDA unit it runs on a GPU; in a C++ unit on the CPU, multithreaded and vectorised.

#pragma once

#include <kjit/patterns/operands.h>
#include <kjit/tensor.h>

#include <kjit/detail/element.h>
#include <kjit/detail/pattern_call.h>
#ifdef __CUDACC__
#include <kjit/detail/gather_gpu.cuh>
#else
#include <kjit/detail/scatter_cpu.h>
#endif

#include <cstdint>

namespace kjit {

namespace details {

template <typename Math, typename Sizes, typename T, typename... Bound, typename... Operands>
void run_scatter(const Math& math, const Sizes& sizes, DLDevice device, Types<Bound...>, const Index<T>& index,
                 const Operands&... tensors) {
  run_scatter(math, sizes, device, index, Bound(tensors)...);
}

}  // namespace details

namespace host {

/// The number of rows in the table, of rows written, and of elements in a row.
struct ScatterSizes {
  std::int64_t table_size;
  std::int64_t num_rows;
  std::int64_t row_size;
};

/// Calls `math.element` for each element of `num_rows` rows, with one value of each tensor, in call order: in an
/// `OutTable` or `MutTable`, that of row `index[r]`. Rows whose index is out of range (negative, or `table_size` and
/// above) are skipped without an error. If an index occurs twice, each element of that row gets one of the values;
/// which one is unspecified. All tensors are contiguous, on `device`. A table that overlaps another
/// tensor is an error.
template <typename Math, typename T, typename... Operands>
void scatter(const Math& math, const ScatterSizes& sizes, const kjit::details::CallDevice& device,
             const Index<T>& index, const Operands&... tensors) {
  constexpr bool kWritesTables = ((Operands::kPlace == Place::kTable || !Operands::kIsWritten) && ...);
  static_assert(kWritesTables, "scatter() only writes to tables: OutTable or MutTable, not Out or Mut");
  static_assert((Operands::kIsWritten || ...), "scatter() writes to a table, and none is given: OutTable or MutTable");
  static_assert((!Operands::kIsStrided && ...), "scatter() takes contiguous rows, not Strided ones");
  if constexpr (kWritesTables && kjit::details::check_element<Math, Operands...>()) {
    using namespace kjit::details;
    check_overlap(device, "scatter", {sizes.num_rows, sizes.row_size, sizes.table_size}, index, tensors...);
    run_scatter(math, sizes, device.value, BoundOperands<Math, Operands...>(), index, tensors...);
  }
}

}  // namespace host

}  // namespace kjit
