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
  // As many single elements a thread as a vector has, where the tensors are never aligned at the same time.
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

}  // namespace kjit::details
