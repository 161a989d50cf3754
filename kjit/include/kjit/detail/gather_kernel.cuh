// The kernels of patterns gather and scatter, on a GPU: what a thread does. Device code alone; <kjit/patterns/gather.h>
// and <kjit/patterns/scatter.h> launch it.

#pragma once

#include <kjit/detail/element.h>
#include <kjit/detail/vectors.h>
#include <kjit/patterns/operands.h>
#include <kjit/detail/row_cut.cuh>
#include <kjit/detail/row_memory.cuh>
#include <kjit/detail/row_pieces.cuh>
#include <kjit/device.cuh>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace kjit {

namespace details {

constexpr int kGatherBlock = 128;  // threads in a block

/// How many tables there are among the tensors.
template <typename... Operands>
constexpr int kTables = (0 + ... + static_cast<int>(kIsIn<Operands, Place::kTable>));

// Threads in a block where rows are not aligned, and how many vectors each of them has then: fewer where there are more
// tables than 48 KiB of shared memory hold of theirs.
template <typename... Operands>
constexpr int kCutBlock = kTables<Operands...> <= 13   ? 128
                          : kTables<Operands...> <= 46 ? 32
                                                       : 16;
template <typename... Operands>
constexpr int kCutParts = kTables<Operands...> <= 4 ? 3 : 1;

/// Reads a vector, of zeros where the tensor is absent.
template <bool kStreaming, typename Operand, typename Vector>
KJIT_DEVICE void load_row(Vector& vector, const Operand& tensor, std::int64_t at) {
  if constexpr (Operand::kIsOptional) {
    device::row::load_or_zero<kStreaming>(vector, tensor.data, at);
  } else {
    device::row::load<kStreaming>(vector, tensor.data, at);
  }
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
        load_row<false>(vectors[i], tensor, table_at);
      } else {
        vectors[i].fill(Element{});
      }
    } else if constexpr (kIsIn<Operand, Place::kElement> && Operand::kIsRead) {
      if (there) load_row<kOnce>(vectors[i], tensor, row_at);
    }
  }
  /// Reads what many rows or columns share.
  KJIT_DEVICE void load_shared(int i, std::int64_t row_number, std::int64_t column) {
    if constexpr (kIsIn<Operand, Place::kColumn>) load_row<false>(vectors[i], tensor, column);
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
    const bool has_row = static_cast<std::uint64_t>(wanted[i]) < static_cast<std::uint64_t>(table_size);  // nor below 0
    const std::int64_t table_at = wanted[i] * pieces.row_size + piece[i].at;
    const std::int64_t row_at = piece[i].row * pieces.row_size + piece[i].at;
    (held.template load_first<kScatters>(i, piece[i].there, has_row, table_at, row_at), ...);
    if constexpr (kScatters) piece[i].there = has_row;  // only now: what is read does not wait for the index
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

/// What a block has of a tensor in shared memory.
template <std::size_t kAt, typename Rows, typename Operand>
struct CutSlots {};
template <std::size_t kAt, typename Rows, typename Operand>
  requires(Operand::kPlace == Place::kTable)
struct CutSlots<kAt, Rows, Operand> {
  device::row::TableSlots<Rows, typename Operand::Element> slots;
};

template <typename Rows, typename Numbers, typename... Operands>
struct AllCutSlots;
template <typename Rows, std::size_t... kAt, typename... Operands>
struct AllCutSlots<Rows, std::index_sequence<kAt...>, Operands...> : CutSlots<kAt, Rows, Operands>... {};

/// What a thread holds of a tensor where rows are not aligned: one vector, which may end in the next row.
template <std::size_t kAt, typename Rows, typename Operand>
struct CutVector {
  using Element = typename Operand::Element;
  using Cut = device::row::Cut;
  static constexpr int kVec = Rows::kVecSize;

  Operand tensor;
  CutSlots<kAt, Rows, Operand>& shared;
  device::AlignedVector<Element, kVec> vector;
  Element row, next;

  template <typename T>
  KJIT_DEVICE void find(const Rows& rows, std::int64_t table_size, const Index<T>& index) {
    if constexpr (kIsIn<Operand, Place::kTable>) rows.find(shared.slots, tensor.data, table_size, index.data);
  }
  KJIT_DEVICE void fetch(const Rows& rows, std::int64_t table_size) {
    if constexpr (kIsIn<Operand, Place::kTable>) rows.fetch(shared.slots, tensor.data, table_size);
  }
  /// Reads what is not at the place where the result goes.
  KJIT_DEVICE void take(const Rows& rows, const Cut& cut) {
    if constexpr (kIsIn<Operand, Place::kTable>) rows.take(vector, shared.slots, cut);
    if constexpr (kIsIn<Operand, Place::kColumn>) rows.load_column(vector, tensor.data, cut);
    if constexpr (kIsIn<Operand, Place::kRow>) row = of_row(tensor, cut.row);
  }
  /// Reads what is, of a vector that is whole, and the element of the next row.
  KJIT_DEVICE void take_whole(const Cut& cut) {
    if constexpr (kIsIn<Operand, Place::kRow>) next = of_row(tensor, cut.splits ? cut.row + 1 : cut.row);
    if constexpr (kIsIn<Operand, Place::kElement> && Operand::kIsRead) load_row<true>(vector, tensor, cut.at);
  }
  KJIT_DEVICE void store(const Cut& cut) const {
    if constexpr (Operand::kIsWritten) device::row::store_streaming(vector, tensor.data + cut.at);
  }
  KJIT_DEVICE Slot<Operand, Element> slot(bool is_next, int j) {
    if constexpr (kIsIn<Operand, Place::kRow>) return {is_next ? &next : &row, 0};
    return {vector.data(), j};
  }
  /// The same where the vector is not whole: what goes where the result does is in memory.
  KJIT_DEVICE auto single(const Cut& cut, int j) {
    if constexpr (kIsIn<Operand, Place::kElement>) {
      return Slot<Operand, typename Operand::Stored>(tensor.data, cut.at + j);
    } else {
      return slot(false, j);
    }
  }
};

/// The same where rows are not aligned: a table's vectors are cut out of what a block has copied.
template <typename Rows, typename Math, typename T, typename... Held>
KJIT_DEVICE void gather_cut_vectors(const Math& math, const host::row::Cutting& cutting, std::int64_t table_size,
                                    const Index<T>& index, Held... held) {
  const Rows rows(cutting);
  (held.find(rows, table_size, index), ...);
  rows.await_found();
  (held.fetch(rows, table_size), ...);
  rows.await_fetched();
#pragma unroll
  for (int i = 0; i < Rows::kTurns; ++i) {
    const device::row::Cut cut = rows.cut(i);
    if (!cut.there) continue;
    (held.take(rows, cut), ...);
    if (cut.whole) {
      (held.take_whole(cut), ...);
#pragma unroll
      for (int j = 0; j < Rows::kVecSize; ++j) call_element(math, held.slot(!rows.is_of_row(cut, j), j)...);
      (held.store(cut), ...);
    } else {  // at the start or the end of all rows
#pragma unroll
      for (int j = 0; j < Rows::kVecSize; ++j) {
        if (rows.has(cut, j)) call_element(math, held.single(cut, j)...);
      }
    }
  }
}

template <typename Rows, std::size_t... kAt, typename Math, typename T, typename... Operands>
KJIT_DEVICE void gather_cut_rows(std::index_sequence<kAt...> numbers, const Math& math,
                                 const host::row::Cutting& cutting, std::int64_t table_size, const Index<T>& index,
                                 const Operands&... tensors) {
  __shared__ AllCutSlots<Rows, decltype(numbers), Operands...> slots;
  gather_cut_vectors<Rows>(math, cutting, table_size, index,
                           CutVector<kAt, Rows, Operands>{.tensor = tensors, .shared = slots}...);
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

template <typename Math, int kVec, typename T, typename... Operands>
__global__ void __launch_bounds__(details::kCutBlock<Operands...>)
    gather_cut(const Math math, const __grid_constant__ host::row::Cutting cutting, const std::int64_t table_size,
               const Index<T> index, Operands... tensors) {
  using namespace details;
  device::PDLBegin();
  using Rows = device::row::CutRows<kVec, kCutBlock<Operands...>, kCutParts<Operands...>>;
  gather_cut_rows<Rows>(std::index_sequence_for<Operands...>(), math, cutting, table_size, index, tensors...);
}

}  // namespace kernels

}  // namespace kjit
