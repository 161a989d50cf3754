// Pattern rowwise: the elements of a row are combined to a total, and results come from that.
//
//   struct RmsNorm {
//     float eps;
//     KJIT_MATH float term(float x) const { return x * x; }  // of an element; the sum of a row is its total
//     KJIT_MATH float row(float total, float size) const { return rsqrt(total / size + eps); }  // once a row
//     KJIT_MATH void element(float inverse_rms, float x, float weight, float& out) const {      // of each element
//       out = x * inverse_rms * weight;
//     }
//   };
//   host::rowwise(RmsNorm{1e-6f}, {.num_rows = B, .row_size = D}, device, In<bf16_t>(x), PerColumn<bf16_t>(weight),
//                 Out<bf16_t>(out));
//
// - `term` gets a value of each tensor that is read, in the order of the call. It returns a number, and the total is
//   their sum; or a struct that says how two of it are combined (patterns/totals.h has the usual ones).
// - `row` gets the total, the number of elements in a row, and what tensors with an element for each row have: `PerRow`
//   by value, `OutPerRow` and `MutPerRow` by reference. Math without it goes on with the total.
// - `element` gets what `row` returns (unless that is void), then a value of each tensor, results by reference; those
//   that are written once a row it does not get. Math without it writes no `Out` and no `Mut`.
//
// Tensors at the end of the call that a function only reads may be left out of its parameters. A last parameter of type
// `Column` is the number of the element in its row, for `term` and `element`.
//
// A result may lie where an input does, element by element. `Strided` says that the rows of a tensor do not follow each
// other.
//
// In a CUDA unit it runs on a GPU, with as much of a row as possible in registers: it is read once. In a C++ unit on
// the CPU's cores and vector units.

#pragma once

#include <kjit/patterns/operands.h>
#include <kjit/patterns/totals.h>
#include <kjit/tensor.h>

#include <kjit/detail/row_math.h>
#ifdef __CUDACC__
#include <kjit/detail/rowwise_gpu.cuh>
#else
#include <kjit/detail/rowwise_cpu.h>
#endif

#include <cstdint>

namespace kjit {

namespace host {

/// Combines `math.term` over each of `num_rows` rows, calls `math.row` with the total, and `math.element` for each
/// element of the row. Tensors with an element at each place or for each row have that many, contiguous but for
/// `Strided` ones; those with an element for each column have `row_size`. All lie on `device`. A result may lie where
/// an input of the same shape does, and must not overlap one otherwise. Totals are the same in each run, bit by bit; of
/// rows that are not aligned to 16 bytes, where tensors begin at the same place in a line of 128.
template <typename Math, typename... Operands>
void rowwise(const Math& math, const RowSizes& sizes, const SymbolicDevice& device, const Operands&... tensors) {
  if constexpr (kjit::details::check_rowwise<Math, Operands...>()) {
    kjit::details::run_rowwise(math, sizes.num_rows, sizes.row_size, device.unwrap(), tensors...);
  }
}

}  // namespace host

}  // namespace kjit
