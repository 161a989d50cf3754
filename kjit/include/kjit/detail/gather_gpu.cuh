// Pattern gather on a GPU: the launch of its kernels.

#pragma once

#include <kjit/launch.h>
#include <kjit/patterns/operands.h>
#include <kjit/utils.h>

#include <kjit/detail/vectors.h>
#include <kjit/detail/gather_kernel.cuh>

#include <cstdint>

namespace kjit::details {

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
  int vec = 1, parts = 2;
  void (*kernel)(Math, Pieces, std::int64_t, Index<T>, Operands...) = kernels::gather<Math, 1, 2, T, Operands...>;
  if (all_aligned) {
    vec = kVec;
    kernel = kernels::gather<Math, kVec, 2, T, Operands...>;
    if (sizes.num_rows * sizes.row_size <= 65536 * kVec) {  // with little to move, more threads are sooner done
      parts = 1;
      kernel = kernels::gather<Math, kVec, 1, T, Operands...>;
    }
  }
  const Pieces cut = pieces(sizes.num_rows, sizes.row_size, vec);
  host::LaunchKernel launch(grid(cut, kGatherBlock * parts), kGatherBlock, device);
  launch.enable_pdl()(kernel, math, cut, sizes.table_size, index, tensors...);
}

}  // namespace kjit::details
