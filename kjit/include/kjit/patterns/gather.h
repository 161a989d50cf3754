// Pattern gather: rows of the results are computed from rows of a table, selected by an index.
//
//   struct TakeRows {
//     KJIT_MATH void element(float src, float& out) const { out = src; }
//   };
//   host::gather(TakeRows{}, {.table_size = 50'000, .num_rows = 32, .row_size = 4096}, device, Index<int64_t>(index),
//                Table<float>(src), Out<float>(out));  // out[r] = src[index[r]]
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
#include <kjit/detail/gather_cpu.h>
#endif

#include <cstdint>

namespace kjit {

namespace details {

template <typename Math, typename Sizes, typename T, typename... Bound, typename... Operands>
void run_gather(const Math& math, const Sizes& sizes, DLDevice device, Types<Bound...>, const Index<T>& index,
                const Operands&... tensors) {
  run_gather(math, sizes, device, index, Bound(tensors)...);
}

}  // namespace details

namespace host {

/// The number of rows in the table, of rows selected, and of elements in a row.
struct GatherSizes {
  std::int64_t table_size;
  std::int64_t num_rows;
  std::int64_t row_size;
};

/// Calls `math.element` for each element of `num_rows` rows, with one value of each tensor, in call order: from a
/// `Table`, that of row `index[r]`, or zero if the index is out of range. All tensors are contiguous, on `device`. A
/// result may be an input itself; any other overlap with a tensor is an error.
template <typename Math, typename T, typename... Operands>
void gather(const Math& math, const GatherSizes& sizes, const kjit::details::CallDevice& device, const Index<T>& index,
            const Operands&... tensors) {
  constexpr bool kReadsTables = ((Operands::kPlace != Place::kTable || !Operands::kIsWritten) && ...);
  static_assert((!Operands::kIsStrided && ...), "gather() takes contiguous rows, not Strided ones");
  static_assert(kReadsTables, "gather() only reads tables; scatter() of <kjit/patterns/scatter.h> writes to them");
  if constexpr (kReadsTables && kjit::details::check_element<Math, Operands...>()) {
    using namespace kjit::details;
    check_overlap(device, "gather", {sizes.num_rows, sizes.row_size, sizes.table_size}, index, tensors...);
    run_gather(math, sizes, device.value, BoundOperands<Math, Operands...>(), index, tensors...);
  }
}

}  // namespace host

}  // namespace kjit
