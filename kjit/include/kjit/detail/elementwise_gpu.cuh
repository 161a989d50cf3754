// Pattern elementwise on a GPU: the launch of its kernel.

#pragma once

#include <kjit/launch.h>
#include <kjit/patterns/operands.h>
#include <kjit/tensor.h>
#include <kjit/utils.h>

#include <kjit/detail/vectors.h>
#include <kjit/detail/elementwise_kernel.cuh>

#include <cstdint>

namespace kjit::details {

/// Calls `math.element` for each of `numel` elements.
template <typename Math, typename... Operands>
void run_elementwise(const Math& math, std::int64_t numel, DLDevice device, const Operands&... tensors) {
  if (numel == 0) return;
  constexpr int kVec = elements_in<Operands...>(device::kMaxVecBytes);
  ElementRange range{.numel = numel, .head = 0, .vectors = 0};
  // As many scalars a thread as a vector has, if the tensors have no common alignment.
  void (*kernel)(Math, ElementRange, Operands...) = kernels::elementwise<Math, 1, Operands...>;
  std::int64_t threads = host::div_ceil(numel, kVec);
  const std::int64_t head = aligned_head<kVec, Place::kElement>(tensors...);
  if (head >= 0) {
    kernel = kernels::elementwise<Math, kVec, Operands...>;
    range.head = head < numel ? head : numel;
    range.vectors = (numel - range.head) / kVec;
    threads = numel - range.vectors * (kVec - 1);
  }
  host::LaunchKernel launch(host::div_ceil(threads, kElementBlock), kElementBlock, device);
  launch.enable_pdl()(kernel, math, range, tensors...);
}

/// The same for strided rows.
template <typename Math, typename... Operands>
void run_elementwise_rows(const Math& math, std::int64_t num_rows, std::int64_t row_size, DLDevice device,
                          const Operands&... tensors) {
  using namespace host::row;
  constexpr int kVec = elements_in<Operands...>(device::kMaxVecBytes), kSingles = 4;
  const bool is_aligned = row_size % kVec == 0 && aligned_head<kVec, Place::kElement>(tensors...) == 0 &&
                          (keeps_aligned<kVec>(tensors) && ...);
  const Pieces cut = pieces(num_rows, row_size, is_aligned ? kVec : 1);
  const auto kernel = is_aligned ? kernels::elementwise_rows<Math, kVec, 1, Operands...>
                                 : kernels::elementwise_rows<Math, 1, kSingles, Operands...>;
  host::LaunchKernel launch(grid(cut, kElementBlock * (is_aligned ? 1 : kSingles)), kElementBlock, device);
  launch.enable_pdl()(kernel, math, cut, tensors...);
}

}  // namespace kjit::details
