// Kernels that take rows from anywhere and write them one behind another, where rows are not aligned: a block brings
// what it needs of them to shared memory as it lies, and cuts vectors out of it there. What is written, or lies beside
// it, goes in whole vectors.
//
//   params.cutting = row::cutting(num_rows, row_size, kVec, head, kBlock * kParts);               // host
//   LaunchKernel(params.cutting.blocks, kBlock, device)(kernel, params);
//   ...
//   using Rows = device::row::CutRows<kVec, kBlock, kParts>;                                      // in the kernel
//   __shared__ device::AlignedVector<T, kVec> slots[Rows::kSlots];
//   const Rows rows(params.cutting);
//   rows.fetch(slots, table, table_size, index);          // row r is the table's row index[r]; zeros where it has none
//   rows.await();
//   for (int i = 0; i < Rows::kTurns; ++i) {
//     const device::row::Cut cut = rows.cut(i);           // the thread's i-th vector
//     if (cut.there) rows.take(table_vec, slots, table, index, cut);
//   }
//
// In the last turn, vectors that have elements of two rows are done, by as many threads side by side: few would be done
// in each turn, and all others wait. Nearly free to compile.

#pragma once

#include <kjit/utils.h>
#include <kjit/device.cuh>
#include <kjit/row_memory.cuh>
#include <kjit/row_pieces.cuh>

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

/// Copies a vector to shared memory, by way of the SM's cache: neighbours read parts of its line. `await_columns`
/// waits.
template <typename T, std::size_t N>
KJIT_DEVICE void copy_to_shared(AlignedVector<T, N>* to, const T* from) {
#if !KJIT_SIM
  constexpr int kBytes = static_cast<int>(sizeof(T) * N);
  if constexpr (host::row::kAsyncColumns && (kBytes == 4 || kBytes == 8 || kBytes == 16)) {
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

/// The rows of a block, cut into kBlock * kParts vectors.
template <int kVec, int kBlock, int kParts>
class CutRows {
  static constexpr int kVectors = kBlock * kParts;
  static_assert(kParts <= 4);  // so that in the last turn each vector has a thread

 public:
  /// Vectors of shared memory that a table takes. A row of four vectors lies in six; of the first row and the last, the
  /// block needs parts; and what is cut may begin a vector early.
  static constexpr int kSlots = kVectors + kVectors / 2 + 8;
  /// How often each thread has a vector to do.
  static constexpr int kTurns = kParts + 1;

  explicit __device__ CutRows(const host::row::Cutting& cutting) : cutting_(cutting) {
    const std::int64_t begin = std::int64_t{blockIdx.x} * (kVectors * kVec) - cutting.lead;
    first_ = begin < 0 ? 0 : begin;
    skipped_ = static_cast<int>(first_ - begin);
    const bool is_short = first_ <= std::numeric_limits<std::uint32_t>::max();  // which takes less to divide
    row_ = is_short ? static_cast<std::uint32_t>(first_) / static_cast<std::uint32_t>(cutting.row_size)
                    : first_ / cutting.row_size;
    column_ = static_cast<int>(first_ - row_ * cutting.row_size);
    const std::int64_t left = cutting.total - begin;
    end_ = (left < kVectors * kVec ? static_cast<int>(left) : kVectors * kVec) - skipped_;
  }

  /// Begins to copy what the block needs of a table's rows into `slots`, kSlots of them; `await` waits for it. Zeros
  /// where the table has no such row, or is null.
  template <typename T, typename Index>
  __device__ void fetch(AlignedVector<T, kVec>* slots, const T* table, std::int64_t table_size,
                        const Index* index) const {
    using namespace details;
    constexpr int kLoads = (kSlots + kBlock - 1) / kBlock;
    constexpr std::int64_t kZeros = std::numeric_limits<std::int64_t>::min();
    const std::int64_t size = table_size * cutting_.row_size;
    const std::uint64_t readable = size < kVec ? 0 : static_cast<std::uint64_t>(size - kVec) + 1;
    std::int64_t from[kLoads];
    bool needed[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const unsigned number = first_vector() + threadIdx.x + i * kBlock, row = cutting_.by_vectors(number);
      const int left = column_ + end_ - static_cast<int>(row) * cutting_.row_size;
      const std::int64_t wanted = left > 0 ? __ldg(index + row_ + row) : 0;
      const int at = static_cast<int>(number - row * cutting_.row_vectors) * kVec - shift(table, wanted);
      const bool has_row =
          table != nullptr && static_cast<std::uint64_t>(wanted) < static_cast<std::uint64_t>(table_size);
      from[i] = has_row ? wanted * cutting_.row_size + at : kZeros;
      needed[i] = at < left && at < cutting_.row_size;
    }
#if KJIT_SIM  // whose checks would say that what lies beside a row, and is cut off, was never written
    for (int i = static_cast<int>(threadIdx.x); i < kSlots; i += kBlock) slots[i].fill(T{});
    __syncthreads();
#endif
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (!needed[i]) continue;
      AlignedVector<T, kVec>* const slot = slots + 1 + threadIdx.x + i * kBlock;
      if (static_cast<std::uint64_t>(from[i]) < readable) {  // not below 0 either
        copy_to_shared(slot, table + from[i]);
      } else {  // beside what is read of the table's first row or last, nothing may be
        AlignedVector<T, kVec> vector;
        load_part(vector, from[i] == kZeros ? nullptr : table, from[i], size);
        *slot = vector;
      }
    }
  }

  /// Waits until what all threads of the block fetched is there.
  __device__ void await() const {
    await_columns();
    __syncthreads();
  }

  /// The thread's vector in turn `i`, which is known when the kernel is compiled.
  __device__ Cut cut(int i) const {
    const bool is_last = i == kParts;
    int vector = static_cast<int>(threadIdx.x) + i * kBlock;
    if (is_last) {  // the one in which a row ends
      const int number = static_cast<int>(threadIdx.x);
      vector = number < splits() ? ((number + 1) * cutting_.row_size - column_ + skipped_) / kVec : kVectors;
    }
    const int from = vector * kVec - skipped_;
    const int row = from < 0 ? 0 : static_cast<int>(cutting_.by_size(static_cast<unsigned>(column_ + from)));
    const int column = column_ + from - row * cutting_.row_size;
    const bool whole = from >= 0 && from + kVec <= end_;
    const bool has_both = whole && column + kVec > cutting_.row_size;
    return {row_ + row, column, first_ + from, from < end_ && has_both == is_last, whole, is_last};
  }

  /// What a table has of that vector.
  template <typename T, typename Index>
  __device__ void take(AlignedVector<T, kVec>& vector, const AlignedVector<T, kVec>* slots, const T* table,
                       const Index* index, const Cut& cut) const {
    const unsigned row = static_cast<unsigned>(cut.row - row_);
    take_of_row(vector, slots, table, index, row, cut.column);
    if (!cut.splits) return;
    AlignedVector<T, kVec> next;
    take_of_row(next, slots, table, index, row + 1, cut.column - cutting_.row_size);
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
      const Column<T, kVec, false> column(data + cut.column, 0);
      return column.load(vector, 0);
    }
    load_part(vector, data, cut.column, cutting_.row_size);
    if (!cut.splits || data == nullptr) return;
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      if (!is_of_row(cut, j)) vector[j] = data[cut.column + j - cutting_.row_size];
    }
  }

 private:
  /// How many rows end in the block's vectors, but for the last one that it has.
  __device__ int splits() const { return (column_ + end_ - 1) / cutting_.row_size; }
  /// The first vector of the first row that may be needed.
  __device__ unsigned first_vector() const { return static_cast<unsigned>(column_) / kVec; }

  /// How many elements of the vector of memory in which a table's row begins lie before the row.
  template <typename T>
  __device__ int shift(const T* table, std::int64_t wanted) const {
    const unsigned of_table = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(table) / sizeof(T));
    return static_cast<int>((static_cast<unsigned>(wanted) * cutting_.row_size + of_table) % kVec);
  }

  template <typename T, typename Index>
  __device__ void take_of_row(AlignedVector<T, kVec>& vector, const AlignedVector<T, kVec>* slots, const T* table,
                              const Index* index, unsigned row, int column) const {
    const T* const first = reinterpret_cast<const T*>(slots + 1 + row * cutting_.row_vectors - first_vector());
    const Column<T, kVec, false> of_row(first + shift(table, __ldg(index + row_ + row)) + column, 0);
    of_row.load(vector, 0);
  }

  const host::row::Cutting& cutting_;
  std::int64_t first_;  // the block's first element, and the row and the column in which it is
  std::int64_t row_;
  int column_;
  int skipped_;  // elements of the block's first vector that lie before it
  int end_;      // how many elements the block has
};

}  // namespace device::row

}  // namespace kjit
