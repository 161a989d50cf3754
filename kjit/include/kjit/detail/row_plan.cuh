// What the threads of pattern rowwise hold on a GPU; docs/kernel-notes.md has what was measured to find the numbers.

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

/// Blocks of the largest cluster that shares a row: what every GPU with clusters can run, or one, where the unit is
/// compiled for others.
constexpr int kMaxCluster = KJIT_ARCH_HOPPER_OR_GREATER ? 8 : 1;

template <typename Operand>
constexpr bool kIsInput = kIsIn<Operand, Place::kElement> && Operand::kIsRead;

/// What the threads of an op's kernels hold: as much as their registers have room for.
template <typename Rules, typename... Operands>
struct RowTuning {
  static constexpr int kInputs = (0 + ... + static_cast<int>(kIsInput<Operands>));
  static constexpr int kColumns = (0 + ... + static_cast<int>(kIsIn<Operands, Place::kColumn>));
  static constexpr bool kTermReadsColumns = Rules::kTermReadsColumns;
  static constexpr bool kIsWide = elements_in<Operands...>(16) < 4;  // math on 8 bytes takes twice the registers
  static constexpr bool kIsLight = kInputs <= 1 && kColumns <= 1 && !kIsWide;

  static constexpr int vectors_for(int tensors) { return tensors <= 2 ? 4 : tensors <= 4 ? 2 : 1; }
  /// Whether columns of a row that is held come when its total is known: two of them beside more of the row.
  static constexpr bool kLoadsLate = kInputs <= 1 && kColumns == 2 && !kTermReadsColumns;
  /// Vectors of a row in each thread, so that all inputs and columns fit into the registers; of short rows, where the
  /// more threads run, the better; and of long rows, beside which columns are not held unless their total needs them.
  static constexpr int kParts = kLoadsLate ? 4 : vectors_for(kInputs + kColumns);
  static constexpr int kShortParts = kParts < 2 ? kParts : 2;
  /// Of unaligned rows: elements of a vector, few, as columns are read one by one; vectors in each thread, 64 bytes of
  /// all inputs; threads of the largest block, and blocks on an SM. Nothing is spilled.
  static constexpr int kUnalignedVec = elements_in<Operands...>(16) < 4 ? elements_in<Operands...>(16) : 4;
  static constexpr int kUnalignedBytes = 16 / elements_in<Operands...>(16) * kUnalignedVec;
  static constexpr int kUnalignedInputs = kInputs < 1 ? 1 : kInputs < 4 ? kInputs : 4;
  static constexpr int kUnalignedParts = 64 / (kUnalignedBytes < 8 ? 8 : kUnalignedBytes) / kUnalignedInputs;
  static constexpr int kUnalignedBlock = 512, kUnalignedBlocks = 2;
  /// Launch bounds: threads of the largest block, and blocks on an SM. Of short rows an SM holds more threads.
  static constexpr int max_block(bool is_short) { return is_short && kIsLight ? 768 : kMaxRowBlock; }
  static constexpr int min_blocks(bool is_short) { return is_short && kIsLight ? 2 : 1; }

  static constexpr int kLongHeld = kInputs + (kTermReadsColumns ? kColumns : 0);
  static constexpr int kMostLongParts = kIsWide ? 4 : 8;
  static constexpr int kLongParts = kLongHeld <= 1 ? kMostLongParts : kLongHeld == 2 ? 4 : kLongHeld <= 4 ? 2 : 1;

  /// Whether columns are held like rows, by threads with so many vectors.
  static constexpr bool holds_columns(int parts) {
    return kTermReadsColumns || parts <= (kLoadsLate ? kShortParts : kParts > 3 ? kParts : 3);
  }

  /// How many vectors of each column come through shared memory, for a thread of a long row.
  static constexpr int late_columns(int parts) {
    if (kColumns == 0 || holds_columns(parts) || KJIT_CUDA_ARCH < 800) return 0;
    return parts / (2 * kColumns);
  }
};

template <typename Math, typename... Operands>
using RowTuningOf = RowTuning<RowMath<Math, Operands...>, Operands...>;

}  // namespace kjit::details
