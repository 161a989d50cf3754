// Tuning of pattern rowwise on a GPU: the amount of a row that a thread holds in registers, and launch bounds. The
// measurements that the numbers are based on are in docs/kernel-notes.md.

#pragma once

#include <kjit/patterns/operands.h>
#include <kjit/utils.h>
#include <kjit/device.cuh>

#include <kjit/detail/row_math.h>
#include <kjit/detail/row_spread.h>
#include <kjit/detail/vectors.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kjit::details {

/// Blocks of the largest cluster that shares a row: the largest that every GPU with clusters can run; 1 if the unit is
/// compiled for a GPU without clusters.
constexpr int kMaxCluster = KJIT_ARCH_HOPPER_OR_GREATER ? 8 : 1;

template <typename Operand>
constexpr bool kIsInput = kIsIn<Operand, Place::kElement> && Operand::kIsRead;

/// The amount of data that a thread of an op's kernels holds: as much as fits into its registers.
template <typename Rules, typename... Operands>
struct RowTuning {
  static constexpr int kInputs = (0 + ... + static_cast<int>(kIsInput<Operands>));
  static constexpr int kColumns = (0 + ... + static_cast<int>(kIsIn<Operands, Place::kColumn>));
  static constexpr bool kTermReadsColumns = Rules::kTermReadsColumns;
  static constexpr bool kIsWide = elements_in<Operands...>(16) < 4;  // math on 8 bytes takes twice the registers
  static constexpr bool kIsLight = kInputs <= 1 && kColumns <= 1 && !kIsWide;

  static constexpr int vectors_for(int tensors) { return tensors <= 2 ? 4 : tensors <= 4 ? 2 : 1; }
  /// Whether per-column tensors are loaded only after the total: with two of them, threads can then hold more of a row.
  static constexpr bool kLoadsLate = kInputs <= 1 && kColumns == 2 && !kTermReadsColumns;
  /// Vectors of a row in each thread, such that all inputs and per-column tensors fit into its registers: in general;
  /// for short rows, where more threads are better; and below, for long rows, whose per-column tensors are held only if
  /// the total depends on them.
  static constexpr int kParts = kLoadsLate ? 4 : vectors_for(kInputs + kColumns);
  static constexpr int kShortParts = kParts < 2 ? kParts : 2;
  /// For unaligned rows: elements in a vector, few because per-column tensors are loaded one element at a time; vectors
  /// in each thread, 64 bytes of all inputs together; threads in the largest block, and blocks on an SM. No register is
  /// spilled.
  static constexpr int kUnalignedVec = elements_in<Operands...>(16) < 4 ? elements_in<Operands...>(16) : 4;
  static constexpr int kUnalignedBytes = 16 / elements_in<Operands...>(16) * kUnalignedVec;
  static constexpr int kUnalignedInputs = kInputs < 1 ? 1 : kInputs < 4 ? kInputs : 4;
  static constexpr int kUnalignedParts = 64 / (kUnalignedBytes < 8 ? 8 : kUnalignedBytes) / kUnalignedInputs;
  static constexpr int kUnalignedBlock = 512, kUnalignedBlocks = 2;
  /// Launch bounds: threads in the largest block, and blocks on an SM. For short rows an SM runs more threads.
  static constexpr int max_block(bool is_short) { return is_short && kIsLight ? 768 : kMaxRowBlock; }
  static constexpr int min_blocks(bool is_short) { return is_short && kIsLight ? 2 : 1; }

  static constexpr int kLongHeld = kInputs + (kTermReadsColumns ? kColumns : 0);
  static constexpr int kMostLongParts = kIsWide ? 4 : 8;
  static constexpr int kLongParts = kLongHeld <= 1 ? kMostLongParts : kLongHeld == 2 ? 4 : kLongHeld <= 4 ? 2 : 1;

  /// Whether threads that hold `parts` vectors of a row hold the per-column tensors, too.
  static constexpr bool holds_columns(int parts) {
    return kTermReadsColumns || parts <= (kLoadsLate ? kShortParts : kParts > 3 ? kParts : 3);
  }

  /// The number of vectors of each per-column tensor that a thread of a long row copies through shared memory.
  static constexpr int late_columns(int parts) {
    if (kColumns == 0 || holds_columns(parts) || KJIT_CUDA_ARCH < 800) return 0;
    return parts / (2 * kColumns);
  }
};

template <typename Math, typename... Operands>
using RowTuningOf = RowTuning<RowMath<Math, Operands...>, Operands...>;

}  // namespace kjit::details
