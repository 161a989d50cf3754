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

/// Vectors of a thread whose rows begin anywhere. Rows have as many at least, so that a block has no more rows than
/// threads.
template <typename... Operands>
constexpr int kAnywhereParts = (0 + ... + static_cast<int>(kIsIn<Operands, Place::kTable>)) <= 2 ? 3 : 1;

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
  static constexpr int kHeld = kIsIn<Operand, Place::kRow> ? 1 : kVec;  // a row has one number

  Operand tensor;
  device::AlignedVector<Element, kHeld> vectors[kCount];
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
  unsigned row_size;
  std::int64_t numel;
  std::int64_t head;
  std::int64_t vectors;
  host::row::Division by_size;

  /// The row of an element.
  KJIT_DEVICE std::int64_t row_of(std::int64_t at) const {
    return at < std::int64_t{1} << 31 ? by_size(static_cast<unsigned>(at)) : at / row_size;
  }
};

/// A vector of such a run, by its number in the block: it begins in `row`, at `column`, and has `count` elements of
/// that row, and the others of the next one.
struct Span {
  int number;
  std::int64_t row;
  int column;
  int count;
  bool there;
};

/// The vectors of a block, `kParts` for each thread. Those that have elements of two rows are done in a turn of their
/// own, by as many threads side by side: few would be done in each turn, and all others wait.
template <int kVec, int kParts>
struct BlockRun {
  const RowRun& run;
  std::int64_t first, row;  // the first element, and its row
  int column, row_size;
  int end;   // of the vectors
  int rows;  // that end in the block

  explicit __device__ BlockRun(const RowRun& of) : run(of), row_size(static_cast<int>(of.row_size)) {
    constexpr int kVectors = kGatherBlock * kParts;
    const std::int64_t begin = std::int64_t{blockIdx.x} * kVectors, left = run.vectors - begin;
    first = run.head + begin * kVec;
    row = run.row_of(first);
    column = static_cast<int>(first - row * run.row_size);
    end = left < kVectors ? static_cast<int>(left) : kVectors;
    rows = end <= 0 ? 0 : static_cast<int>(run.by_size(static_cast<unsigned>(column + end * kVec - 1)));
  }

  /// The thread's vector in turn `i`; in turn `kParts` the one in which a row ends, and the next begins.
  KJIT_DEVICE Span span(int i) const {
    const int thread = static_cast<int>(threadIdx.x);
    int number = thread + i * kGatherBlock;
    if (i == kParts) number = thread < rows ? ((thread + 1) * row_size - column) / kVec : end;
    const int at = column + number * kVec, behind = static_cast<int>(run.by_size(static_cast<unsigned>(at)));
    const int left = (behind + 1) * row_size - at;
    return {number, row + behind, at - behind * row_size, left < kVec ? left : kVec,
            number < end && (left < kVec) == (i == kParts)};
  }
};

/// What a thread holds of a tensor where rows begin anywhere.
template <typename Operand, int kVec, int kParts>
struct SpannedVectors {
  using Element = typename Operand::Element;
  static constexpr int kHeld = kIsIn<Operand, Place::kRow> ? 1 : kVec;  // a row has one number
  using Load = device::row::UnalignedLoad<Element, kHeld>;
  using Vector = device::AlignedVector<Element, kHeld>;
  static constexpr bool kIsTable = kIsIn<Operand, Place::kTable>;

  Operand tensor;
  Load loads[kParts + 2];  // the last two: the end of a row, and the start of the next
  const Element* from[kParts + 2];
  bool there[kParts + 2];
  Vector vector;
  Element here, next;

  /// Begins to read from element `at` of a table with `size` elements on; zeros where `at` is below 0. False where
  /// something beside the table would be read, and is not.
  KJIT_DEVICE bool begin(int i, std::int64_t at, std::int64_t size) {
    if constexpr (kIsTable) {
      from[i] = tensor.data + at;
      there[i] = at >= 0;
      const std::int64_t first = at - Load::elements_ahead(from[i]);
      const bool is_inside = first == at || (first >= 0 && first + 2 * kVec <= size);
      if (there[i] && is_inside) loads[i].begin(from[i]);
      return is_inside || !there[i];
    } else {
      return true;
    }
  }
  /// Has all of the vector of turn `i`.
  KJIT_DEVICE void finish(int i, const Span& span, std::int64_t at) {
    if constexpr (kIsTable) {
      finish_load(vector, i);
      if (i == kParts) join(span.count);
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

 private:
  KJIT_DEVICE void finish_load(Vector& to, int i) const {
    to.fill(Element{});
    if (there[i]) loads[i].finish(to, from[i]);
  }
  /// Lets the last `count` elements of `vector` be its first, and those of the next row follow.
  KJIT_DEVICE void join(int count) {
    Vector both[2] = {vector};
    finish_load(both[1], kParts + 1);
    const int skipped = kVec - count;
    if constexpr (device::row::kCanCut<Element, kVec>) {
      device::row::Offset(static_cast<unsigned>(skipped) * sizeof(Element)).cut(vector, both);
    } else {
#pragma unroll
      for (int j = 0; j < kVec; ++j) vector[j] = both[(skipped + j) / kVec][(skipped + j) % kVec];
    }
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

/// What one thread does where rows begin anywhere: results are written in aligned vectors.
template <int kVec, int kParts, typename Math, typename T, typename... Held>
KJIT_DEVICE void gather_spans(const Math& math, const RowRun& run, std::int64_t table_size, const Index<T>& index,
                              Held... held) {
  const BlockRun<kVec, kParts> block(run);
  const std::int64_t size = table_size * run.row_size;
  Span spans[kParts + 1];
  std::int64_t wanted[kParts + 2];
  unsigned at_edge = 0;  // a bit for each vector that is done element by element
#pragma unroll
  for (int i = 0; i <= kParts; ++i) {
    spans[i] = block.span(i);
    if (!spans[i].there) continue;
    wanted[i] = index.data[spans[i].row];
    if (i == kParts) wanted[kParts + 1] = index.data[spans[i].row + 1];
  }
#pragma unroll
  for (int i = 0; i <= kParts; ++i) {
    if (!spans[i].there) continue;
    const std::int64_t column = spans[i].column + spans[i].count - kVec;
    const std::int64_t at = has_row(wanted[i], table_size) ? wanted[i] * run.row_size + column : -1;
    bool is_inside = (held.begin(i, at, size) && ...);
    if (i == kParts) {
      const std::int64_t then = wanted[kParts + 1];
      const std::int64_t next = has_row(then, table_size) ? then * run.row_size : -1;
      is_inside = (held.begin(kParts + 1, next, size) && ...) && is_inside;
    }
    if (!is_inside) at_edge |= 1u << i;
  }
#pragma unroll
  for (int i = 0; i <= kParts; ++i) {
    if (!spans[i].there || (at_edge >> i & 1u) != 0) continue;
    const std::int64_t at = block.first + spans[i].number * kVec;
    (held.finish(i, spans[i], at), ...);
#pragma unroll
    for (int j = 0; j < kVec; ++j) call_element(math, held.slot(j, spans[i].count)...);
    (held.store(at), ...);
  }
#pragma unroll 1
  for (int i = 0; at_edge != 0; ++i, at_edge /= 2) {
    const std::int64_t at = block.first + block.span(i).number * kVec;
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

/// Rows that begin anywhere. The first threads take the single elements as well.
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
