// The kernels of patterns gather and scatter, on a GPU: what a thread does. Device code alone; <kjit/patterns/gather.h>
// and <kjit/patterns/scatter.h> launch it.

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

/// Vectors of a thread whose rows begin anywhere: each of a table is cut out of up to four.
template <typename... Operands>
constexpr int kAnywhereParts = (0 + ... + static_cast<int>(kIsIn<Operands, Place::kTable>)) <= 2 ? 2 : 1;

/// Whether a table of so many rows has that one.
KJIT_DEVICE bool has_row(std::int64_t row, std::int64_t table_size) {
  return static_cast<std::uint64_t>(row) < static_cast<std::uint64_t>(table_size);  // nor below 0
}

/// The element of a row in a tensor that has one for each; zero where it is absent.
template <typename Operand>
KJIT_DEVICE typename Operand::Element of_row(const Operand& tensor, std::int64_t row) {
  if (Operand::kIsOptional && tensor.data == nullptr) return typename Operand::Element{};
  return tensor.data[row];
}

/// What a thread holds of a tensor: `kCount` vectors of `kVec` elements, or a row's element.
template <typename Operand, int kVec, int kCount>
struct GatheredVectors {
  using Element = typename Operand::Element;
  static constexpr bool kIsTable = kIsIn<Operand, Place::kTable>;
  static constexpr bool kIsScattered = kIsTable && Operand::kIsWritten;

  Operand tensor;
  device::AlignedVector<Element, kVec> vectors[kCount];
  Element row;

  /// Reads what comes from a table, or lies at the row's own place, as the thread's `i`-th vector. `kOnce`: the latter
  /// is read by no other thread and not written either.
  template <bool kOnce>
  KJIT_DEVICE void load_first(int i, bool there, bool has_row, std::int64_t table_at, std::int64_t row_at) {
    if constexpr (kIsTable && Operand::kIsRead) {
      if (has_row) {
        device::row::load<false, Operand::kIsOptional>(vectors[i], tensor.data, table_at);
      } else {
        vectors[i].fill(Element{});
      }
    } else if constexpr (kIsIn<Operand, Place::kElement> && Operand::kIsRead) {
      if (there) device::row::load<kOnce, Operand::kIsOptional>(vectors[i], tensor.data, row_at);
    }
  }
  /// Reads what many rows or columns share.
  KJIT_DEVICE void load_shared(int i, std::int64_t row_number, std::int64_t column) {
    if constexpr (kIsIn<Operand, Place::kColumn>)
      device::row::load<false, Operand::kIsOptional>(vectors[i], tensor.data, column);
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
};

/// What one thread does: kParts vectors, all of whose loads go out before the first store. A row that the table does
/// not have is read as zeros; where rows of a table are written, it is skipped.
template <int kVec, int kParts, typename Math, typename T, typename... Held>
KJIT_DEVICE void gather_vectors(const Math& math, const host::row::Pieces& pieces, std::int64_t table_size,
                                const Index<T>& index, Held... held) {
  constexpr bool kScatters = (Held::kIsScattered || ...);
  const unsigned first = blockIdx.x * (kGatherBlock * kParts) + threadIdx.x;
  device::row::Piece piece[kParts];
  std::int64_t wanted[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    piece[i] = device::row::piece<kVec>(pieces, first + i * kGatherBlock);
    wanted[i] = piece[i].there ? index.data[piece[i].row] : -1;
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const bool is_there = has_row(wanted[i], table_size);
    const std::int64_t table_at = wanted[i] * pieces.row_size + piece[i].at;
    const std::int64_t row_at = piece[i].row * pieces.row_size + piece[i].at;
    (held.template load_first<kScatters>(i, piece[i].there, is_there, table_at, row_at), ...);
    if constexpr (kScatters) piece[i].there = is_there;  // only now: what is read does not wait for the index
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (!piece[i].there) continue;
    (held.load_shared(i, piece[i].row, piece[i].at), ...);
#pragma unroll
    for (int j = 0; j < kVec; ++j) call_element(math, held.slot(i, j)...);
    const std::int64_t table_at = wanted[i] * pieces.row_size + piece[i].at;
    (held.store(i, table_at, piece[i].row * pieces.row_size + piece[i].at), ...);
  }
}

/// Rows that follow each other, as one run of elements: `head` of them lie before the first aligned vector.
struct RowRun {
  std::int64_t row_size;
  std::int64_t numel;
  std::int64_t head;
  std::int64_t vectors;
  host::row::Division by_size;

  /// The row of an element.
  KJIT_DEVICE std::int64_t row_of(std::int64_t at) const {
    return at < std::int64_t{1} << 31 ? by_size(static_cast<unsigned>(at)) : at / row_size;
  }
};

/// Where a vector begins, and how many of its elements are of that row: the others are of the next one.
struct Span {
  std::int64_t row;
  int column;
  int count;
};

/// What a thread holds of a tensor where rows begin anywhere.
template <typename Operand, int kVec, int kCount>
struct SpannedVectors {
  using Element = typename Operand::Element;

  Operand tensor;
  device::row::JoinedLoad<Element, kVec> loads[kCount];
  device::AlignedVector<Element, kVec> vector;
  Element here, next;

  /// Begins to read the thread's `i`-th vector from rows of a table. False where it lies at the table's edge.
  KJIT_DEVICE bool begin(int i, const Span& span, std::int64_t row_size, std::int64_t table_size,
                         const std::int64_t (&rows)[2]) {
    if constexpr (kIsIn<Operand, Place::kTable>) {
      const std::int64_t end = rows[0] * row_size + span.column + span.count;
      const std::int64_t at[] = {has_row(rows[0], table_size) ? end - kVec : -1,
                                 span.count < kVec && has_row(rows[1], table_size) ? rows[1] * row_size : -1};
      return loads[i].begin(tensor.data, table_size * row_size, at);
    } else {
      return true;
    }
  }
  /// Has all of it in `vector`.
  KJIT_DEVICE void finish(int i, const Span& span, std::int64_t at) {
    if constexpr (kIsIn<Operand, Place::kTable>) {
      loads[i].finish(vector, span.count);
    } else if constexpr (kIsIn<Operand, Place::kColumn>) {
      vector.fill(Element{});
      if (Operand::kIsOptional && tensor.data == nullptr) return;
#pragma unroll
      for (int j = 0; j < kVec; ++j) vector[j] = tensor.data[j < span.count ? span.column + j : j - span.count];
    } else if constexpr (kIsIn<Operand, Place::kRow>) {
      here = of_row(tensor, span.row);
      next = span.count < kVec ? of_row(tensor, span.row + 1) : here;
    } else if constexpr (Operand::kIsRead) {
      device::row::load<true, Operand::kIsOptional>(vector, tensor.data, at);
    }
  }
  KJIT_DEVICE void store(std::int64_t at) const {
    if constexpr (Operand::kIsWritten) device::row::store_streaming(vector, tensor.data + at);
  }
  KJIT_DEVICE GatheredVectors<Operand, 1, 1> single() const { return {.tensor = tensor}; }
  KJIT_DEVICE Slot<Operand, Element> slot(int j, int count) {
    if constexpr (kIsIn<Operand, Place::kRow>) return {j < count ? &here : &next, 0};
    return {vector.data(), j};
  }
};

/// One element of a run of rows.
template <typename Math, typename T, typename... Held>
KJIT_DEVICE void gather_element(const Math& math, const RowRun& run, std::int64_t at, std::int64_t table_size,
                                const Index<T>& index, Held... held) {
  const std::int64_t row = run.row_of(at), column = at - row * run.row_size, wanted = index.data[row];
  (held.template load_first<false>(0, true, has_row(wanted, table_size), wanted * run.row_size + column, at), ...);
  (held.load_shared(0, row, column), ...);
  call_element(math, held.slot(0, 0)...);
  (held.store(0, 0, at), ...);
}

/// What one thread does where rows begin anywhere: results are written in aligned vectors, each of up to two rows.
template <int kVec, int kParts, typename Math, typename T, typename... Held>
KJIT_DEVICE void gather_spans(const Math& math, const RowRun& run, std::int64_t table_size, const Index<T>& index,
                              Held... held) {
  const std::int64_t block = std::int64_t{blockIdx.x} * (kGatherBlock * kParts), first = run.head + block * kVec;
  const std::int64_t row = run.row_of(first), behind = run.vectors - block;
  const int column = static_cast<int>(first - row * run.row_size), row_size = static_cast<int>(run.row_size);
  const int end = behind < kGatherBlock * kParts ? static_cast<int>(behind) : kGatherBlock * kParts;
  Span spans[kParts];
  std::int64_t wanted[kParts][2];
  unsigned at_edge = 0;  // a bit for each vector that is done element by element
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int number = static_cast<int>(threadIdx.x) + i * kGatherBlock;
    if (number >= end) break;
    const int at = column + number * kVec, rows = static_cast<int>(run.by_size(static_cast<unsigned>(at)));
    const int left = (rows + 1) * row_size - at;
    spans[i] = {row + rows, at - rows * row_size, left < kVec ? left : kVec};
    wanted[i][0] = index.data[spans[i].row];
    wanted[i][1] = left < kVec ? index.data[spans[i].row + 1] : 0;
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (static_cast<int>(threadIdx.x) + i * kGatherBlock >= end) break;
    if (!(held.begin(i, spans[i], run.row_size, table_size, wanted[i]) && ...)) at_edge |= 1u << i;
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int number = static_cast<int>(threadIdx.x) + i * kGatherBlock;
    if (number >= end) break;
    if (at_edge >> i & 1u) continue;
    const std::int64_t at = first + number * kVec;
    (held.finish(i, spans[i], at), ...);
#pragma unroll
    for (int j = 0; j < kVec; ++j) call_element(math, held.slot(j, spans[i].count)...);
    (held.store(at), ...);
  }
#pragma unroll 1
  for (int number = static_cast<int>(threadIdx.x); at_edge != 0; number += kGatherBlock, at_edge /= 2) {
    const std::int64_t at = first + number * kVec;
#pragma unroll 1
    for (int j = 0; j < kVec && at_edge % 2 != 0; ++j) {
      gather_element(math, run, at + j, table_size, index, held.single()...);
    }
  }
}

}  // namespace details

namespace kernels {

template <typename Math, int kVec, int kParts, typename T, typename... Operands>
__global__ void __launch_bounds__(details::kGatherBlock)
    gather(const Math math, const __grid_constant__ host::row::Pieces pieces, const std::int64_t table_size,
           const Index<T> index, Operands... tensors) {
  device::PDLBegin();  // what ran before has ended: nothing is read or written ahead of this
  details::gather_vectors<kVec, kParts>(math, pieces, table_size, index,
                                        details::GatheredVectors<Operands, kVec, kParts>{.tensor = tensors}...);
}

template <typename Math, int kVec, int kParts, typename T, typename... Operands>
__global__ void __launch_bounds__(details::kGatherBlock)
    scatter(const Math math, const __grid_constant__ host::row::Pieces pieces, const std::int64_t table_size,
            const Index<T> index, Operands... tensors) {
  device::PDLBegin();
  details::gather_vectors<kVec, kParts>(math, pieces, table_size, index,
                                        details::GatheredVectors<Operands, kVec, kParts>{.tensor = tensors}...);
}

/// Rows that begin anywhere, of at least kVec elements. The first threads take the single elements as well.
template <typename Math, int kVec, typename T, typename... Operands>
__global__ void __launch_bounds__(details::kGatherBlock)
    gather_anywhere(const Math math, const __grid_constant__ details::RowRun run, const std::int64_t table_size,
                    const Index<T> index, Operands... tensors) {
  using namespace details;
  constexpr int kParts = kAnywhereParts<Operands...>;
  device::PDLBegin();
  gather_spans<kVec, kParts>(math, run, table_size, index,
                             SpannedVectors<Operands, kVec, kParts>{.tensor = tensors}...);
  std::int64_t at = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (at >= run.head) at += run.vectors * kVec;
  if (at < run.numel && blockIdx.x == 0) {
    gather_element(math, run, at, table_size, index, GatheredVectors<Operands, 1, 1>{.tensor = tensors}...);
  }
}

}  // namespace kernels

}  // namespace kjit
