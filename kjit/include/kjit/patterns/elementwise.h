// Pattern elementwise: each result is computed from the elements at the same position.
//
//   struct Scale {
//     float alpha;
//     KJIT_MATH void element(float x, float& out) const { out = x * alpha; }
//   };
//   host::elementwise(Scale{2}, numel, device, In<bf16_t>(x), Out<bf16_t>(out));  // out = x * 2
//
// If the rows of a tensor are strided, such as the halves of x: T[N, 2 * D]:
//
//   const RowSizes sizes{.num_rows = N, .row_size = D};
//   host::elementwise(SiluAndMul{}, sizes, device, left_half(In<bf16_t>(x), sizes), right_half(In<bf16_t>(x), sizes),
//                     Out<bf16_t>(out));
//
// In a CUDA unit it runs on a GPU, with the widest vector loads; in a C++ unit on the CPU, multithreaded and
// vectorised.

#pragma once

#include <kjit/patterns/operands.h>
#include <kjit/tensor.h>

#include <kjit/detail/element.h>
#include <kjit/detail/pattern_call.h>
#ifdef __CUDACC__
#include <kjit/detail/elementwise_gpu.cuh>
#else
#include <kjit/detail/elementwise_cpu.h>
#endif

#include <cstdint>

namespace kjit {

namespace details {

template <typename Math, typename... Bound, typename... Operands>
void run_elementwise(const Math& math, std::int64_t numel, DLDevice device, Types<Bound...>,
                     const Operands&... tensors) {
  run_elementwise(math, numel, device, Bound(tensors)...);
}

template <typename Math, typename... Bound, typename... Operands>
void run_elementwise_rows(const Math& math, const host::RowSizes& sizes, DLDevice device, Types<Bound...>,
                          const Operands&... tensors) {
  run_elementwise_rows(math, sizes.num_rows, sizes.row_size, device, Bound(tensors)...);
}

}  // namespace details

namespace host {

/// Calls `math.element` for each element, with one value of each tensor, in call order. All tensors have `numel`
/// elements, are contiguous, and are on `device`. A result may be an input itself; any other overlap with a tensor is
/// an error.
template <typename Math, typename... Operands>
void elementwise(const Math& math, std::int64_t numel, const kjit::details::CallDevice& device,
                 const Operands&... tensors) {
  constexpr bool kIsWhole = (!Operands::kIsStrided && ...);
  static_assert(kIsWhole, "strided rows need RowSizes instead of the number of elements");
  if constexpr (kIsWhole && kjit::details::check_element<Math, Operands...>()) {
    using namespace kjit::details;
    check_overlap(device, "elementwise", {.num_rows = 1, .row_size = numel}, tensors...);
    run_elementwise(math, numel, device.value, BoundOperands<Math, Operands...>(), tensors...);
  }
}

/// The same for tensors of `num_rows` rows of `row_size` elements, some of which may be `Strided`.
template <typename Math, typename... Operands>
void elementwise(const Math& math, const RowSizes& sizes, const kjit::details::CallDevice& device,
                 const Operands&... tensors) {
  if constexpr (kjit::details::check_element<Math, Operands...>()) {
    using namespace kjit::details;
    check_overlap(device, "elementwise", {sizes.num_rows, sizes.row_size}, tensors...);
    run_elementwise_rows(math, sizes, device.value, BoundOperands<Math, Operands...>(), tensors...);
  }
}

}  // namespace host

}  // namespace kjit
