// Pattern rowwise: each row is reduced to a total, and results are computed from the total and the elements.
//
//   struct RmsNorm {
//     float eps;
//     KJIT_MATH float term(float x) const { return x * x; }  // of one element; the total is their sum
//     KJIT_MATH float row(float total, float size) const { return rsqrt(total / size + eps); }  // once a row
//     KJIT_MATH void element(float inverse_rms, float x, float weight, float& out) const {      // of each element
//       out = x * inverse_rms * weight;
//     }
//   };
//   host::rowwise(RmsNorm{1e-6f}, {.num_rows = B, .row_size = D}, device, In<bf16_t>(x), PerColumn<bf16_t>(weight),
//                 Out<bf16_t>(out));
//
// - `term` takes one value of each tensor that is read, in call order. It returns a number, which is summed, or a
//   struct that defines how two totals are combined (patterns/totals.h has the usual ones).
// - `row` takes the total, the number of elements in a row, and the values of per-row tensors: `PerRow` by value,
//   `OutPerRow` and `MutPerRow` by reference. Without `row`, `element` gets the total itself.
// - `element` takes the result of `row` (unless void), then one value of each tensor, results by reference; tensors
//   that are written once a row are not passed. Without `element`, there is no `Out` and no `Mut`.
//
// Trailing tensors that a function only reads may be omitted from its parameters. A last parameter of type `Column` is
// the index of the element in its row, for `term` and `element`.
//
// A result may be an input itself. `Strided` marks a tensor whose rows are not contiguous with each other.
//
// In a CUDA unit it runs on a GPU, with as much of a row as possible in registers: memory is read once. In a C++ unit
// it runs on the CPU, multithreaded and vectorised.

#pragma once

#include <kjit/patterns/operands.h>
#include <kjit/patterns/totals.h>
#include <kjit/tensor.h>

#include <kjit/detail/pattern_call.h>
#include <kjit/detail/row_math.h>
#ifdef __CUDACC__
#include <kjit/detail/rowwise_gpu.cuh>
#else
#include <kjit/detail/rowwise_cpu.h>
#endif

#include <cstdint>

namespace kjit {

namespace host {

/// Reduces `math.term` over each of `num_rows` rows, calls `math.row` with the total, and `math.element` for each
/// element of the row. Full tensors have `num_rows * row_size` elements, per-row ones `num_rows`, per-column ones
/// `row_size`; all are contiguous, except `Strided` ones, and on `device`. A result may be an input of the same
/// shape itself; any other overlap with a tensor is an error. Totals are bitwise reproducible; for rows that are not
/// aligned to 16 bytes, only between tensors with the same offset from an aligned address.
template <typename Math, typename... Operands>
void rowwise(const Math& math, const RowSizes& sizes, const kjit::details::CallDevice& device,
             const Operands&... tensors) {
  if constexpr (kjit::details::check_rowwise<Math, Operands...>()) {
    using namespace kjit::details;
    check_overlap(device, "rowwise", {sizes.num_rows, sizes.row_size}, tensors...);
    run_rowwise(math, sizes.num_rows, sizes.row_size, device.value, tensors...);
  }
}

}  // namespace host

}  // namespace kjit
