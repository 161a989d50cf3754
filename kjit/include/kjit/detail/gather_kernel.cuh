// The kernels of patterns gather and scatter on a GPU: device code only; <kjit/detail/gather_gpu.cuh> launches them.

#pragma once

#include <kjit/detail/element.h>
#include <kjit/detail/vectors.h>
#include <kjit/patterns/operands.h>
#include <kjit/detail/row_memory.cuh>
#include <kjit/detail/row_pieces.cuh>
#include <kjit/device.cuh>

#include <cstdint>

namespace kjit {

namespace details {

constexpr int kGatherBlock = 128;  // threads in a block

/// Whether `row` is the index of a row of the table.
KJIT_DEVICE bool has_row(std::int64_t row, std::int64_t table_size) {
  return static_cast<std::uint64_t>(row) < static_cast<std::uint64_t>(table_size);  // false if negative
}

/// The element of a row in a per-row tensor; zero if the tensor is absent.
template <typename Operand>
KJIT_DEVICE typename Operand::Element of_row(const Operand& tensor, std::int64_t row) {
  if (Operand::kIsOptional && tensor.data == nullptr) return typename Operand::Element{};
  return tensor.data[row];
}

/// The registers of a thread for one tensor: `kCount` vectors of `kVec` elements, or the element of a per-row tensor.
/// Vectors are aligned; only those of tables and per-column tensors need not be, unless `kIsAligned`.
template <typename Operand, int kVec, int kCount, bool kIsAligned = true>
struct GatheredVectors {
  using Element = typename Operand::Element;
  static constexpr bool kIsTable = kIsIn<Operand, Place::kTable>;
  static constexpr bool kIsScattered = kIsTable && Operand::kIsWritten;
  static constexpr int kHeld = kIsIn<Operand, Place::kRow> ? 1 : kVec;  // per-row tensors are not moved in vectors

  Operand tensor;
  device::AlignedVector<Element, kHeld> vectors[kCount];
  Element row;

  /// Loads the thread's `i`-th vector from a table of `numel` elements at `table_at`, or from a full tensor at
  /// `row_at`. `kOnce`: no other thread reads the full tensors, and none is written.
  template <bool kOnce>
  KJIT_DEVICE void load_first(int i, bool there, bool has_row, std::int64_t table_at, std::int64_t row_at,
                              std::int64_t numel) {
    if constexpr (kIsTable && Operand::kIsRead) {
      vectors[i].fill(Element{});
      if (has_row) load(i, table_at, numel);
    } else if constexpr (kIsIn<Operand, Place::kElement> && Operand::kIsRead) {
      if (there) device::row::load<kOnce, Operand::kIsOptional>(vectors[i], tensor.data, row_at);
    }
  }
  /// Loads from a per-column or a per-row tensor.
  KJIT_DEVICE void load_shared(int i, std::int64_t row_number, std::int64_t column, std::int64_t row_size) {
    if constexpr (kIsIn<Operand, Place::kColumn>) load(i, column, row_size);
    if constexpr (kIsIn<Operand, Place::kRow>) row = of_row(tensor, row_number);
  }
  KJIT_DEVICE void store(int i, std::int64_t table_at, std::int64_t row_at) const {
    if constexpr (Operand::kIsWritten) {
      device::row::store_streaming(vectors[i], tensor.data + (kIsTable ? table_at : row_at));
    }
  }
  KJIT_DEVICE Slot<Operand, Element> slot(int i, int j) {
    if constexpr (kIsIn<Operand, Place::kRow>) return {&row, 0};
    return {vectors[i].data(), j};
  }

 private:
  /// Loads the vector that begins at element `at` of the `size` elements of the tensor.
  KJIT_DEVICE void load(int i, std::int64_t at, std::int64_t size) {
    if constexpr (kIsAligned) {
      device::row::load<false, Operand::kIsOptional>(vectors[i], tensor.data, at);
    } else if (Operand::kIsOptional && tensor.data == nullptr) {
      vectors[i].fill(Element{});
    } else {
      device::row::load_unaligned(vectors[i], tensor.data, at, size);
    }
  }
};

/// The work of a thread: the `kParts` vectors that `piece_of` returns, with all loads issued before the first store. If
/// an index is out of range, zeros are read, or with a table that is written, the row is skipped.
template <int kVec, int kParts, typename PieceOf, typename Math, typename T, typename... Held>
KJIT_DEVICE void gather_vectors(const Math& math, const PieceOf& piece_of, std::int64_t row_size,
                                std::int64_t table_size, const Index<T>& index, Held... held) {
  constexpr bool kScatters = (Held::kIsScattered || ...);
  const std::int64_t numel = table_size * row_size;
  device::row::Piece piece[kParts];
  std::int64_t wanted[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    piece[i] = piece_of(i);
    wanted[i] = piece[i].there ? index.data[piece[i].row] : -1;
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const bool is_there = has_row(wanted[i], table_size);
    const std::int64_t table_at = wanted[i] * row_size + piece[i].at;
    const std::int64_t row_at = piece[i].row * row_size + piece[i].at;
    (held.template load_first<kScatters>(i, piece[i].there, is_there, table_at, row_at, numel), ...);
    if constexpr (kScatters) piece[i].there = is_there;  // after the loads, which therefore do not wait for the index
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (!piece[i].there) continue;
    (held.load_shared(i, piece[i].row, piece[i].at, row_size), ...);
#pragma unroll
    for (int j = 0; j < kVec; ++j) call_element(math, held.slot(i, j)...);
    (held.store(i, wanted[i] * row_size + piece[i].at, piece[i].row * row_size + piece[i].at), ...);
  }
}

/// The same for aligned rows.
template <int kVec, int kParts, typename Math, typename T, typename... Operands>
KJIT_DEVICE void gather_aligned(const Math& math, const host::row::Pieces& pieces, std::int64_t table_size,
                                const Index<T>& index, const Operands&... tensors) {
  const unsigned first = blockIdx.x * (kGatherBlock * kParts) + threadIdx.x;
  const auto piece_of = [&](int i) { return device::row::piece<kVec>(pieces, first + i * kGatherBlock); };
  gather_vectors<kVec, kParts>(math, piece_of, pieces.row_size, table_size, index,
                               GatheredVectors<Operands, kVec, kParts>{.tensor = tensors}...);
}

/// Consecutive rows as one run of elements; `head` of them are before the first aligned vector.
struct RowRun {
  unsigned row_size;
  std::int64_t numel;
  std::int64_t head;
  std::int64_t vectors;
  host::row::Division by_size;
};

/// The part of a run that one block processes: a vector for each thread.
template <int kVec>
struct BlockRun {
  const RowRun& run;
  std::int64_t first;  // its first element
  std::int64_t row;    // the row of that element
  unsigned column;
  int vectors;

  explicit __device__ BlockRun(const RowRun& of) : run(of) {
    const std::int64_t begin = std::int64_t{blockIdx.x} * kGatherBlock, left = run.vectors - begin;
    first = run.head + begin * kVec;
    row = first < std::int64_t{1} << 31 ? run.by_size(static_cast<unsigned>(first)) : first / run.row_size;
    column = static_cast<unsigned>(first - row * run.row_size);
    vectors = left < kGatherBlock ? static_cast<int>(left) : kGatherBlock;
  }

  /// A vector, by its number in the block; not `there` if it extends into the next row.
  KJIT_DEVICE device::row::Piece piece(int number) const {
    device::row::Piece piece = element(static_cast<unsigned>(number * kVec));
    piece.there = number < vectors && piece.at + kVec <= run.row_size;
    return piece;
  }
  /// An element, by its number in the block.
  KJIT_DEVICE device::row::Piece element(unsigned number) const {
    const unsigned rows = run.by_size(column + number);
    return {row + rows, column + number - rows * run.row_size, true};
  }
  /// The number of rows that end in the block.
  KJIT_DEVICE unsigned ends() const {
    return vectors <= 0 ? 0 : run.by_size(column + static_cast<unsigned>(vectors * kVec) - 1);
  }
};

/// One element of a run of rows.
template <typename Math, typename T, typename... Operands>
KJIT_DEVICE void gather_element(const Math& math, const device::row::Piece& piece, std::int64_t row_size,
                                std::int64_t table_size, const Index<T>& index, const Operands&... tensors) {
  gather_vectors<1, 1>(
      math, [&](int) { return piece; }, row_size, table_size, index,
      GatheredVectors<Operands, 1, 1>{.tensor = tensors}...);
}

/// The work of a thread on unaligned rows: one aligned vector of results. Vectors that cross the end of a row, and the
/// elements before the first vector and after the last, are processed one element at a time.
template <int kVec, typename Math, typename T, typename... Operands>
KJIT_DEVICE void gather_unaligned(const Math& math, const RowRun& run, std::int64_t table_size, const Index<T>& index,
                                  const Operands&... tensors) {
  const BlockRun<kVec> block(run);
  const auto piece_of = [&](int) { return block.piece(static_cast<int>(threadIdx.x)); };
  gather_vectors<kVec, 1>(math, piece_of, run.row_size, table_size, index,
                          GatheredVectors<Operands, kVec, 1, false>{.tensor = tensors}...);
  const unsigned ends = block.ends() * kVec;
  for (unsigned i = threadIdx.x; i < ends; i += kGatherBlock) {
    const unsigned end =
        (i / kVec + 1) * run.row_size - block.column;  // the end of a row, relative to the block's first element
    if (end % kVec == 0) continue;
    gather_element(math, block.element(end / kVec * kVec + i % kVec), run.row_size, table_size, index, tensors...);
  }
  if (blockIdx.x > 0) return;
  std::int64_t at = threadIdx.x;
  if (at >= run.head) at += run.vectors * kVec;
  if (at >= run.numel) return;
  const std::int64_t row = at / run.row_size;
  gather_element(math, {row, at - row * run.row_size, true}, run.row_size, table_size, index, tensors...);
}

}  // namespace details

namespace kernels {

template <typename Math, int kVec, int kParts, typename T, typename... Operands>
__global__ void __launch_bounds__(details::kGatherBlock)
    gather(const Math math, const __grid_constant__ host::row::Pieces pieces, const std::int64_t table_size,
           const Index<T> index, Operands... tensors) {
  device::PDLBegin();  // the previous kernel has ended: before this, nothing is read or written
  details::gather_aligned<kVec, kParts>(math, pieces, table_size, index, tensors...);
}

template <typename Math, int kVec, int kParts, typename T, typename... Operands>
__global__ void __launch_bounds__(details::kGatherBlock)
    scatter(const Math math, const __grid_constant__ host::row::Pieces pieces, const std::int64_t table_size,
            const Index<T> index, Operands... tensors) {
  device::PDLBegin();
  details::gather_aligned<kVec, kParts>(math, pieces, table_size, index, tensors...);
}

/// The same as `gather` for unaligned rows.
template <typename Math, int kVec, typename T, typename... Operands>
__global__ void __launch_bounds__(details::kGatherBlock)
    gather_unaligned(const Math math, const __grid_constant__ details::RowRun run, const std::int64_t table_size,
                     const Index<T> index, Operands... tensors) {
  device::PDLBegin();
  details::gather_unaligned<kVec>(math, run, table_size, index, tensors...);
}

}  // namespace kernels

}  // namespace kjit
