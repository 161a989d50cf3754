// Patterns gather and scatter on a GPU: the launch of their kernels.

#pragma once

#include <kjit/launch.h>
#include <kjit/patterns/operands.h>
#include <kjit/utils.h>

#include <kjit/detail/vectors.h>
#include <kjit/detail/gather_kernel.cuh>

#include <cstdint>

namespace kjit::details {

/// Launches a kernel whose threads move `parts` vectors of `vec` elements each.
template <typename Sizes, typename Math, typename T, typename... Operands>
void launch_on_rows(void (*kernel)(Math, host::row::Pieces, std::int64_t, Index<T>, Operands...), int vec, int parts,
                    const Sizes& sizes, DLDevice device, const Math& math, const Index<T>& index,
                    const Operands&... tensors) {
  using namespace host::row;
  const Pieces cut = pieces(sizes.num_rows, sizes.row_size, vec);
  host::LaunchKernel launch(grid(cut, kGatherBlock * parts), kGatherBlock, device);
  launch.enable_pdl()(kernel, math, cut, sizes.table_size, index, tensors...);
}

/// Whether there is so little data that twice the threads, with one vector each, finish sooner.
template <typename Sizes>
bool is_little(const Sizes& sizes, int vec) {
  return sizes.num_rows * sizes.row_size <= 65536 * vec;
}

/// Calls `math.element` for each element of the rows.
template <typename Math, typename Sizes, typename T, typename... Operands>
void run_gather(const Math& math, const Sizes& sizes, DLDevice device, const Index<T>& index,
                const Operands&... tensors) {
  using namespace host::row;
  constexpr int kVec = elements_in<Operands...>(16);
  const std::int64_t head = aligned_head<kVec, Place::kElement>(tensors...);
  const bool others_aligned = aligned_head<kVec, Place::kTable, Place::kColumn>(tensors...) == 0;
  const bool all_aligned = head == 0 && sizes.row_size % kVec == 0 && others_aligned;
  if (!all_aligned && head >= 0 && sizes.row_size >= kVec && sizes.row_size < std::int64_t{1} << 30) {
    const std::int64_t numel = sizes.num_rows * sizes.row_size, vectors = numel > head ? (numel - head) / kVec : 0;
    const RowRun run{static_cast<unsigned>(sizes.row_size), numel, head, vectors, Division::by(sizes.row_size)};
    const auto kernel = kernels::gather_unaligned<Math, kVec, T, Operands...>;
    const std::int64_t blocks = host::div_ceil(vectors, std::int64_t{kGatherBlock});
    host::LaunchKernel launch(numel > 0 && blocks == 0 ? 1 : blocks, kGatherBlock, device);
    launch.enable_pdl()(kernel, math, run, sizes.table_size, index, tensors...);
    return;
  }
  // Element by element if rows are short, or if the tensors are never aligned at the same element.
  const int parts = all_aligned && is_little(sizes, kVec) ? 1 : 2;
  const auto kernel = !all_aligned ? kernels::gather<Math, 1, 2, T, Operands...>
                      : parts == 1 ? kernels::gather<Math, kVec, 1, T, Operands...>
                                   : kernels::gather<Math, kVec, 2, T, Operands...>;
  launch_on_rows(kernel, all_aligned ? kVec : 1, parts, sizes, device, math, index, tensors...);
}

/// The kernel whose threads move two vectors of `vec` elements each; `vec` is at most `kVec`.
template <int kVec, typename Math, typename T, typename... Operands>
auto scatter_kernel(int vec) {
  if constexpr (kVec > 1) {
    if (vec < kVec) return scatter_kernel<kNarrower<kVec>, Math, T, Operands...>(vec);
  }
  return kernels::scatter<Math, kVec, 2, T, Operands...>;
}

/// Calls `math.element` for each element of the rows whose index is in range.
template <typename Math, typename Sizes, typename T, typename... Operands>
void run_scatter(const Math& math, const Sizes& sizes, DLDevice device, const Index<T>& index,
                 const Operands&... tensors) {
  constexpr int kVec = elements_in<Operands...>(16);
  const int vec = widest_vector<kVec, Place::kElement, Place::kTable, Place::kColumn>(sizes.row_size, tensors...);
  const int parts = vec == kVec && is_little(sizes, kVec) ? 1 : 2;
  const auto kernel =
      parts == 1 ? kernels::scatter<Math, kVec, 1, T, Operands...> : scatter_kernel<kVec, Math, T, Operands...>(vec);
  launch_on_rows(kernel, vec, parts, sizes, device, math, index, tensors...);
}

}  // namespace kjit::details
