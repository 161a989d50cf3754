// Pattern elementwise on a GPU: the launch of its kernel.

#pragma once

#include <kjit/launch.h>
#include <kjit/patterns/operands.h>
#include <kjit/tensor.h>
#include <kjit/utils.h>

#include <kjit/detail/elementwise_kernel.cuh>

#include <cstddef>
#include <cstdint>

namespace kjit::details {

/// How many elements come before the first one that is aligned to a vector of kVec elements in every tensor that is
/// there; -1 where the tensors never are at the same time.
template <int kVec, typename... Operands>
std::int64_t aligned_head(const Operands&... tensors) {
  const std::uintptr_t addresses[] = {reinterpret_cast<std::uintptr_t>(tensors.data)...};
  const std::uintptr_t heads[] = {-reinterpret_cast<std::uintptr_t>(tensors.data) %
                                  (kVec * sizeof(typename Operands::Element)) / sizeof(typename Operands::Element)...};
  std::int64_t first = -1;
  for (std::size_t i = 0; i < sizeof...(Operands); ++i) {
    const std::int64_t head = static_cast<std::int64_t>(heads[i]);
    if (addresses[i] == 0) continue;
    if (first >= 0 && head != first) return -1;
    first = head;
  }
  return first < 0 ? 0 : first;
}

/// Calls `math.element` for each of `numel` elements.
template <typename Math, typename... Operands>
void run_elementwise(const Math& math, std::int64_t numel, DLDevice device, const Operands&... tensors) {
  if (numel == 0) return;
  constexpr int kVec = widest_vector<Operands...>();
  ElementRange range{.numel = numel, .head = 0, .vectors = 0};
  // As many single elements a thread as a vector has, where the tensors are never aligned at the same time.
  void (*kernel)(Math, ElementRange, Operands...) = kernels::elementwise<Math, 1, Operands...>;
  std::int64_t threads = host::div_ceil(numel, kVec);
  const std::int64_t head = aligned_head<kVec>(tensors...);
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
