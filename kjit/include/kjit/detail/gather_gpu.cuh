// Patterns gather and scatter on a GPU: the launch of their kernels.

#pragma once

#include <kjit/launch.h>
#include <kjit/patterns/operands.h>
#include <kjit/utils.h>

#include <kjit/detail/vectors.h>
#include <kjit/detail/gather_kernel.cuh>

#include <cstdint>

namespace kjit::details {

/// Launches the one of a pattern's kernels that suits the rows: `single` moves two elements a thread, `one` a vector of
/// `vec` elements, `two` two of these.
template <typename Sizes, typename Math, typename T, typename... Operands>
void launch_on_rows(bool are_aligned, int vec, const Sizes& sizes, DLDevice device,
                    void (*single)(Math, host::row::Pieces, std::int64_t, Index<T>, Operands...), decltype(single) one,
                    decltype(single) two, const Math& math, const Index<T>& index, const Operands&... tensors) {
  using namespace host::row;
  // With little to move, more threads are sooner done.
  const bool is_little = are_aligned && sizes.num_rows * sizes.row_size <= 65536 * vec;
  const auto kernel = !are_aligned ? single : is_little ? one : two;
  const Pieces cut = pieces(sizes.num_rows, sizes.row_size, are_aligned ? vec : 1);
  host::LaunchKernel launch(grid(cut, kGatherBlock * (is_little ? 1 : 2)), kGatherBlock, device);
  launch.enable_pdl()(kernel, math, cut, sizes.table_size, index, tensors...);
}

/// Calls `math.element` for each element of the rows.
template <typename Math, typename Sizes, typename T, typename... Operands>
void run_gather(const Math& math, const Sizes& sizes, DLDevice device, const Index<T>& index,
                const Operands&... tensors) {
  using namespace host::row;
  constexpr int kVec = elements_in<Operands...>(16);  // but for numbers of rows, of which none is moved in vectors
  const std::int64_t head = aligned_head<kVec, Place::kElement>(tensors...);
  const bool others_aligned = aligned_head<kVec, Place::kTable, Place::kColumn>(tensors...) == 0;
  const bool all_aligned = head == 0 && sizes.row_size % kVec == 0 && others_aligned;
  if (!all_aligned && can_cut(sizes.row_size, kVec, head)) {
    constexpr int kBlock = kCutBlock<Operands...>, kParts = kCutParts<Operands...>;
    const Cutting cut = cutting(sizes.num_rows, sizes.row_size, kVec, head, kBlock * kParts);
    void (*kernel)(Math, Cutting, std::int64_t, Index<T>, Operands...) =
        kernels::gather_cut<Math, kVec, T, Operands...>;
    host::LaunchKernel(cut.blocks, kBlock, device).enable_pdl()(kernel, math, cut, sizes.table_size, index, tensors...);
    return;
  }
  // Single elements where rows are short, or never aligned at the same time.
  launch_on_rows(all_aligned, kVec, sizes, device, kernels::gather<Math, 1, 2, T, Operands...>,
                 kernels::gather<Math, kVec, 1, T, Operands...>, kernels::gather<Math, kVec, 2, T, Operands...>, math,
                 index, tensors...);
}

/// Calls `math.element` for each element of the rows that the table has.
template <typename Math, typename Sizes, typename T, typename... Operands>
void run_scatter(const Math& math, const Sizes& sizes, DLDevice device, const Index<T>& index,
                 const Operands&... tensors) {
  constexpr int kVec = elements_in<Operands...>(16);
  const bool are_aligned =
      sizes.row_size % kVec == 0 && aligned_head<kVec, Place::kElement, Place::kTable, Place::kColumn>(tensors...) == 0;
  launch_on_rows(are_aligned, kVec, sizes, device, kernels::scatter<Math, 1, 2, T, Operands...>,
                 kernels::scatter<Math, kVec, 1, T, Operands...>, kernels::scatter<Math, kVec, 2, T, Operands...>, math,
                 index, tensors...);
}

}  // namespace kjit::details
