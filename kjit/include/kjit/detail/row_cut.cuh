// Kernels that take rows from anywhere and write them one behind another, where rows are not aligned: a block brings
// what it needs of them to shared memory as it lies, and cuts vectors out of it there. What is written, or lies beside
// it, goes in whole vectors.
//
//   params.cutting = row::cutting(num_rows, row_size, kVec, head, kBlock * kParts);               // host
//   LaunchKernel(params.cutting.blocks, kBlock, device)(kernel, params);
//   ...
//   using Rows = device::row::CutRows<kVec, kBlock, kParts>;                                      // in the kernel
//   __shared__ device::row::TableSlots<Rows, T> slots;
//   const Rows rows(params.cutting);
//   rows.find(slots, table, table_size, index);           // row r is the table's row index[r]; zeros where it has none
//   rows.await_found();
//   rows.fetch(slots, table, table_size);
//   rows.await_fetched();
//   for (int i = 0; i < Rows::kTurns; ++i) {
//     const device::row::Cut cut = rows.cut(i);           // the thread's i-th vector
//     if (cut.there) rows.take(table_vec, slots, cut);
//   }
//
// In the last turn, vectors that have elements of two rows are done, by as many threads side by side: few would be done
// in each turn, and all others wait. Nearly free to compile.

#pragma once

#include <kjit/utils.h>
#include <kjit/detail/row_memory.cuh>
#include <kjit/detail/row_pieces.cuh>
#include <kjit/device.cuh>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace kjit {

namespace host::row {

/// How rows that are written one behind another are cut into vectors, and these given to blocks.
struct Cutting {
  std::int64_t total;  // elements of all rows
  int row_size;
  int row_vectors;  // in which a row lies at most, wherever it begins
  int lead;         // elements that the first vector has before the first row
  Division by_size;
  Division by_vectors;
  std::int64_t blocks;
};

/// Whether rows can be cut: none fits into fewer than four vectors, and numbers of elements have 31 bits. `head`: as of
/// `cutting`; below 0 where no vector is aligned.
constexpr bool can_cut(std::int64_t row_size, int vec, std::int64_t head) {
  return head >= 0 && row_size >= std::int64_t{4} * vec && row_size < std::int64_t{1} << 30;
}

/// Cuts `num_rows` rows of `row_size` elements into vectors of `vec` elements, `of_block` for each block. The first
/// vector that is whole starts `head` elements, fewer than `vec`, behind the first row's start.
inline Cutting cutting(std::int64_t num_rows, std::int64_t row_size, int vec, std::int64_t head,
                       std::int64_t of_block) {
  const std::int64_t total = num_rows * row_size, lead = head == 0 ? 0 : vec - head;
  const std::int64_t row_vectors = div_ceil(row_size, std::int64_t{vec}) + 1;
  return {total,
          static_cast<int>(row_size),
          static_cast<int>(row_vectors),
          static_cast<int>(lead),
          Division::by(row_size),
          Division::by(row_vectors),
          total == 0 ? 0 : div_ceil(total + lead, of_block * vec)};
}

}  // namespace host::row

namespace device::row {

namespace details {

/// Copies a vector to shared memory, by way of the SM's cache: neighbours read parts of its line. `await_copies`
/// waits.
template <typename T, std::size_t N>
KJIT_DEVICE void copy_to_shared(AlignedVector<T, N>* to, const T* from) {
#if !KJIT_SIM
  constexpr int kBytes = static_cast<int>(sizeof(T) * N);
  if constexpr (kHasAsyncCopies && (kBytes == 4 || kBytes == 8 || kBytes == 16)) {
    return copy_async<kBytes, true>(to, from);
  }
#endif
  AlignedVector<T, N> vector;
  vector.load(from);
  *to = vector;
}

}  // namespace details

/// A vector of what is written: its first element lies in `row`, in `column`; where the vector begins before the first
/// row, that is below 0.
struct Cut {
  std::int64_t row;
  int column;
  std::int64_t at;  // the number of that element in all
  bool there;       // else there is no such vector
  bool whole;       // else some of its elements are of no row
  bool splits;      // whether it ends in the next row
};

/// What a block has of a table in shared memory, for `CutRows`: the vectors of its rows as they lie, and where.
template <typename Rows, typename T>
struct TableSlots {
  AlignedVector<T, Rows::kVecSize> vectors[Rows::kSlots];
  struct alignas(16) Row {
    const T* first;         // in memory the vector in which it begins; null where the table has no such row
    unsigned begin;         // its first element in `vectors`
    unsigned vectors : 31;  // that the block needs, from the first one on
    unsigned is_edge : 1;   // whether these may reach beyond the table, or there are none
  } rows[Rows::kRows];
};

/// The rows of a block, cut into kBlock * kParts vectors.
template <int kVec, int kBlock, int kParts>
class CutRows {
  static constexpr int kVectors = kBlock * kParts;
  static_assert(kParts <= 4);  // so that in the last turn each vector has a thread

 public:
  static constexpr int kVecSize = kVec;
  /// Vectors of shared memory that a table takes. A row of four vectors lies in six; of the first row and the last, the
  /// block needs parts; and what is cut may begin a vector early.
  static constexpr int kSlots = kVectors + kVectors / 2 + 8;
  /// Rows in which the block's vectors lie at most.
  static constexpr int kRows = kVectors / 4 + 1;
  /// How often each thread has a vector to do.
  static constexpr int kTurns = kParts + 1;

  explicit __device__ CutRows(const host::row::Cutting& cutting) : cutting_(cutting) {
    const std::int64_t begin = std::int64_t{blockIdx.x} * (kVectors * kVec) - cutting.lead;
    first_ = begin < 0 ? 0 : begin;
    skipped_ = static_cast<int>(first_ - begin);
    const bool is_short = first_ <= std::numeric_limits<std::int32_t>::max();  // which takes less to divide
    row_ = is_short ? cutting.by_size(static_cast<unsigned>(first_)) : first_ / cutting.row_size;
    column_ = static_cast<int>(first_ - row_ * cutting.row_size);
    const std::int64_t left = cutting.total - begin;
    end_ = (left < kVectors * kVec ? static_cast<int>(left) : kVectors * kVec) - skipped_;
    count_ = static_cast<int>(cutting.by_size(static_cast<unsigned>(column_ + end_ - 1))) + 1;
  }

  /// Finds where a table has the rows that the block needs, for `fetch`. Row r is the table's row `index[r]`.
  template <typename T, typename Index>
  __device__ void find(TableSlots<CutRows, T>& slots, const T* table, std::int64_t table_size,
                       const Index* index) const {
    const std::int64_t size = table_size * cutting_.row_size;
    for (int row = static_cast<int>(threadIdx.x); row < count_; row += kBlock) {
      const std::int64_t wanted = __ldg(index + row_ + row);
      const bool has_row =
          table != nullptr && static_cast<std::uint64_t>(wanted) < static_cast<std::uint64_t>(table_size);
      const std::int64_t from = has_row ? wanted * cutting_.row_size : 0;
      const bool is_last = row == count_ - 1;
      const int needed = is_last ? column_ + end_ - row * cutting_.row_size : cutting_.row_size;
      const unsigned of_table = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(table) / sizeof(T));
      // How many elements of the vector in which the row begins lie before the row.
      const unsigned shift = has_row ? (of_table + static_cast<unsigned>(from)) % kVec : 0;
      const unsigned vectors = div_ceil(shift + static_cast<unsigned>(needed), unsigned{kVec});
      const int slot = 1 + row * cutting_.row_vectors - first_vector();
      const std::int64_t begin = from - shift;
      const bool is_edge = !has_row || begin < 0 || begin + vectors * kVec > size;
      slots.rows[row] = {has_row ? table + begin : nullptr, static_cast<unsigned>(slot) * kVec + shift, vectors,
                         is_edge};
    }
  }

  /// Waits until all threads of the block have found rows.
  __device__ void await_found() const { __syncthreads(); }

  /// Begins to copy what the block needs of the rows that were found; `await_fetched` waits for it. Zeros where the
  /// table has no such row, or is null.
  template <typename T>
  __device__ void fetch(TableSlots<CutRows, T>& slots, const T* table, std::int64_t table_size) const {
    using namespace details;
#if KJIT_SIM  // whose checks would say that what lies beside a row, and is cut off, was never written
    for (int i = static_cast<int>(threadIdx.x); i < kSlots; i += kBlock) slots.vectors[i].fill(T{});
    __syncthreads();
#endif
    const unsigned behind = static_cast<unsigned>(count_) * cutting_.row_vectors - first_vector();
    const unsigned end = behind < kSlots ? behind : kSlots;
    for (unsigned slot = threadIdx.x; slot < end; slot += kBlock) {
      const unsigned number = first_vector() + slot, row = cutting_.by_vectors(number);
      const unsigned at = number - row * cutting_.row_vectors;
      const typename TableSlots<CutRows, T>::Row& of_row = slots.rows[row];
      if (at >= of_row.vectors) continue;
      const T* const from = of_row.first + std::int64_t{at} * kVec;
      if (!of_row.is_edge) {
        copy_to_shared(&slots.vectors[1 + slot], from);
      } else {  // beside what is read of the table's first row or last, nothing may be
        AlignedVector<T, kVec> vector;
        const bool has_row = of_row.first != nullptr;
        load_part(vector, has_row ? table : nullptr, has_row ? from - table : 0, table_size * cutting_.row_size);
        slots.vectors[1 + slot] = vector;
      }
    }
  }

  /// Waits until what all threads of the block fetched is there.
  __device__ void await_fetched() const {
    await_copies();
    __syncthreads();
  }

  /// The thread's vector in turn `i`, which is known when the kernel is compiled.
  __device__ Cut cut(int i) const {
    const bool is_last = i == kParts;
    int vector = static_cast<int>(threadIdx.x) + i * kBlock;
    if (is_last) {  // the one in which a row ends
      const int number = static_cast<int>(threadIdx.x);
      vector = number < count_ - 1 ? ((number + 1) * cutting_.row_size - column_ + skipped_) / kVec : kVectors;
    }
    const int from = vector * kVec - skipped_;
    const int row = static_cast<int>(cutting_.by_size(static_cast<unsigned>(from < 0 ? 0 : column_ + from)));
    const int column = column_ + from - row * cutting_.row_size;
    const bool whole = from >= 0 && from + kVec <= end_;
    const bool has_both = whole && column + kVec > cutting_.row_size;
    return {row_ + row, column, first_ + from, from < end_ && has_both == is_last, whole, is_last};
  }

  /// What a table has of that vector.
  template <typename T>
  __device__ void take(AlignedVector<T, kVec>& vector, const TableSlots<CutRows, T>& slots, const Cut& cut) const {
    const int row = static_cast<int>(cut.row - row_);
    take_of_row(vector, slots, row, cut.column);
    if (!cut.splits) return;
    AlignedVector<T, kVec> next;
    take_of_row(next, slots, row + 1, cut.column - cutting_.row_size);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      if (!is_of_row(cut, j)) vector[j] = next[j];
    }
  }

  /// Whether element `j` of a vector is of the row in which the vector begins, and not of the next.
  __device__ bool is_of_row(const Cut& cut, int j) const { return !cut.splits || cut.column + j < cutting_.row_size; }
  /// Whether element `j` of a vector that is not whole is there.
  __device__ bool has(const Cut& cut, int j) const { return cut.at + j >= first_ && cut.at + j < cutting_.total; }

  /// What a tensor of one row has beside that vector; zeros where `data` is null.
  template <typename T>
  __device__ void load_column(AlignedVector<T, kVec>& vector, const T* data, const Cut& cut) const {
    if (data != nullptr && cut.column >= 0 && cut.column + 2 * kVec <= cutting_.row_size) {
      UnalignedLoad<T, kVec> column;
      column.begin(data + cut.column);
      return column.finish(vector, data + cut.column);
    }
    load_part(vector, data, cut.column, cutting_.row_size);
    if (!cut.splits || data == nullptr) return;
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      if (!is_of_row(cut, j)) vector[j] = data[cut.column + j - cutting_.row_size];
    }
  }

 private:
  /// The first vector of the first row that may be needed.
  __device__ int first_vector() const { return static_cast<int>(static_cast<unsigned>(column_) / kVec); }

  template <typename T>
  __device__ void take_of_row(AlignedVector<T, kVec>& vector, const TableSlots<CutRows, T>& slots, int row,
                              int column) const {
    using namespace details;
    const unsigned at = slots.rows[row].begin + static_cast<unsigned>(column), slot = at / kVec;
    if constexpr (kCanCut<T, kVec>) {
      const AlignedVector<T, kVec> pieces[2] = {slots.vectors[slot], slots.vectors[slot + 1]};
      Offset(at % kVec * static_cast<unsigned>(sizeof(T))).cut(vector, pieces);
    } else {
#pragma unroll
      for (unsigned j = 0; j < kVec; ++j) vector[j] = slots.vectors[(at + j) / kVec][(at + j) % kVec];
    }
  }

  const host::row::Cutting& cutting_;
  std::int64_t first_;  // the block's first element, and the row and the column in which it is
  std::int64_t row_;
  int column_;
  int skipped_;  // elements of the block's first vector that lie before it
  int end_;      // how many elements the block has
  int count_;    // and in how many rows they are
};

}  // namespace device::row

}  // namespace kjit
