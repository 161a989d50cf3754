// Pattern rowwise on a GPU: which of its kernels has the rows, and its launch.

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

/// Combines each of `num_rows` rows, and computes what comes from their totals.
template <typename Math, typename... Operands>
void run_rowwise(const Math& math, std::int64_t num_rows, std::int64_t row_size, DLDevice device,
                 const Operands&... tensors) {
  using Rules = RowMath<Math, Operands...>;
  using Total = typename Rules::Total;
  using Tuning = RowTuningOf<Math, Operands...>;
  constexpr int kVec = elements_in<Operands...>(16);
  constexpr int kParts = Tuning::kParts, kShortParts = Tuning::kShortParts, kLongParts = Tuning::kLongParts;
  const std::int64_t vectors = row_size / kVec;
  RowPlan plan{.num_rows = num_rows, .row_size = row_size, .ahead = num_rows, .fetched = 0, .threads = 1};

  const bool aligned = aligned_head<kVec, Place::kElement, Place::kColumn>(tensors...) == 0 && row_size % kVec == 0 &&
                       (keeps_aligned<kVec>(tensors) && ...);
  // A thread holds more of a row where a block would be alone on an SM, unless it has just so many full warps.
  constexpr int kShortBlock = Tuning::max_block(true), kInShort = kShortBlock * kShortParts,
                kInHalf = kMaxRowBlock / 2 * kParts;
  const bool fits = vectors <= (kInShort < kInHalf ? kInShort : kInHalf) ||
                    (vectors % (32 * kParts) == 0 && vectors <= kMaxRowBlock * kParts);
  bool is_long = !fits || worth_sharing(num_rows, vectors);
  void (*kernel)(Math, RowPlan, Operands...);
  int parts;
  RowSpread spread;
  if (!aligned || vectors > std::int64_t{kMaxCluster} * kMaxRowBlock * kLongParts) {
    constexpr int kAnywhereParts = Tuning::kAnywhereParts;
    constexpr std::int64_t kHeld = std::int64_t{kMaxCluster} * kAnywhereBlock * kAnywhereParts;
    is_long = false;
    parts = vectors <= 64 ? kShortParts : kAnywhereParts;
    spread = spread_rows(num_rows, vectors < kHeld ? vectors : kHeld, parts, kAnywhereBlock, kMaxCluster);
    kernel = kernels::rowwise_anywhere<Math, kAnywhereParts, Operands...>;
  } else if (is_long) {
    parts = kLongParts;
    spread = spread_rows(num_rows, vectors, parts, largest_block(vectors, parts), kMaxCluster);
    kernel = kernels::rowwise<Math, kLongParts, false, true, Operands...>;
    if (vectors == std::int64_t{spread.threads} * parts)
      kernel = kernels::rowwise<Math, kLongParts, true, true, Operands...>;
  } else {
    parts = kParts;
    spread = spread_rows(num_rows, vectors, parts);
    kernel = kernels::rowwise<Math, kParts, true, false, Operands...>;
    // Of a short row a thread has less: it needs fewer registers then, and more of them run.
    if (vectors != std::int64_t{spread.threads} * parts || (kParts > kShortParts && vectors <= 64)) {
      parts = kShortParts;
      spread = spread_rows(num_rows, vectors, parts, kShortBlock);
      kernel = kernels::rowwise<Math, kShortParts, false, false, Operands...>;
    }
  }
  plan.threads = spread.threads;
  plan_prefetch(plan, reinterpret_cast<const void*>(kernel), spread, vectors, Tuning::kInputs, device);
  std::size_t shared_bytes = spread.cluster > 1 ? sizeof(Exchange<Total>) : 0;
  if (is_long && 2 * vectors > std::int64_t{spread.threads} * parts) {
    shared_bytes +=
        std::size_t{16} * static_cast<std::size_t>(spread.block * Tuning::late_columns(parts) * Tuning::kColumns);
  }
  host::LaunchKernel launch({spread.grid, spread.cluster}, spread.block, device, shared_bytes);
  if (spread.cluster > 1) launch.enable_cluster(dim3(1, static_cast<unsigned>(spread.cluster)));
  launch.enable_pdl()(kernel, math, plan, tensors...);
}

}  // namespace kjit::details
