// Pattern rowwise on a GPU: the choice of its kernel, and the launch.

#pragma once

#include <kjit/launch.h>
#include <kjit/patterns/operands.h>
#include <kjit/utils.h>

#include <kjit/detail/row_math.h>
#include <kjit/detail/vectors.h>
#include <kjit/detail/row_plan.cuh>
#include <kjit/detail/rowwise_kernel.cuh>

#include <cstddef>
#include <cstdint>

namespace kjit::details {

/// Reduces each of `num_rows` rows to a total, and computes the results.
template <typename Math, typename... Operands>
void run_rowwise(const Math& math, std::int64_t num_rows, std::int64_t row_size, DLDevice device,
                 const Operands&... tensors) {
  using Rules = RowMath<Math, Operands...>;
  using Total = typename Rules::Total;
  using Tuning = RowTuningOf<Math, Operands...>;
  constexpr int kVec = elements_in<Operands...>(16);
  constexpr RowLimits kLimits{.parts = Tuning::kParts,
                              .short_parts = Tuning::kShortParts,
                              .long_parts = Tuning::kLongParts,
                              .unaligned_parts = Tuning::kUnalignedParts,
                              .short_block = Tuning::max_block(true),
                              .unaligned_block = Tuning::kUnalignedBlock,
                              .unaligned_threads = 2 * Tuning::kUnalignedVec,
                              .unaligned_line = 128 / Tuning::kUnalignedBytes,
                              .max_cluster = kMaxCluster};
  constexpr void (*kKernels[kRowKernels])(Math, RowPlan, Operands...) = {
      kernels::rowwise_unaligned<Math, Tuning::kUnalignedParts, Operands...>,
      kernels::rowwise<Math, Tuning::kParts, true, false, Operands...>,
      kernels::rowwise<Math, Tuning::kShortParts, false, false, Operands...>,
      kernels::rowwise<Math, Tuning::kLongParts, false, true, Operands...>,
  };
  host::RuntimeCheck(row_size <= kMaxRowSize, "a row of ", row_size,
                     " elements is longer than pattern rowwise takes on a GPU, ", kMaxRowSize);
  const std::int64_t vectors = row_size / kVec;
  RowPlan plan{.num_rows = num_rows, .row_size = row_size, .ahead = num_rows, .fetched = 0, .threads = 1};

  const bool aligned = aligned_head<kVec, Place::kElement, Place::kColumn>(tensors...) == 0 && row_size % kVec == 0 &&
                       (keeps_aligned<kVec>(tensors) && ...);
  const RowChoice choice = choose_rows(num_rows, vectors, row_size / Tuning::kUnalignedVec, aligned, kLimits);
  const RowSpread& spread = choice.spread;
  const auto kernel = kKernels[choice.kernel];
  plan.threads = spread.threads;
  plan_prefetch(plan, reinterpret_cast<const void*>(kernel), spread, vectors, Tuning::kInputs, device);
  std::size_t shared_bytes = spread.cluster > 1 ? sizeof(Exchange<Total>) : 0;
  if (choice.kernel == kLongRows && 2 * vectors > std::int64_t{spread.threads} * choice.parts) {
    shared_bytes += std::size_t{16} *
                    static_cast<std::size_t>(spread.block * Tuning::late_columns(choice.parts) * Tuning::kColumns);
  }
  host::LaunchKernel launch({spread.grid, spread.cluster}, spread.block, device, shared_bytes);
  if (spread.cluster > 1) launch.enable_cluster(dim3(1, static_cast<unsigned>(spread.cluster)));
  launch.enable_pdl()(kernel, math, plan, tensors...);
}

}  // namespace kjit::details
