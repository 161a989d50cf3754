// Kernels that add up rows which are no power of two of vectors, or not aligned: rows are packed, one behind another as
// they lie in memory, and a block takes their vectors as they come. No lane is idle, and no vector is cut.
//
//   params.packed = row::packed(num_rows, row_size, kVec, kParts, aligned, sizeof(S), sizeof(T) * kVec, device);
//   LaunchKernel(params.packed.grid, params.packed.block, device, params.packed.shared_bytes)(kernel, params);
//   ...
//   const device::row::PackedRows<kVec, kAligned> rows(params.packed);                  // in the kernel
//   for (int i = 0; i < kParts && rows.has(i); ++i) rows.load(x_vec[i], params.x, i);   // the thread's i-th vector
//
// What a vector adds to the row in which it begins, and what to the next one, a thread tells in shared memory, and a
// few lanes add up each row. All vectors of a thread begin in the same column, so that it knows once for all of them
// which elements are of the next row. How they are read and written is in kjit/row_memory.cuh. Nearly free to compile.

#pragma once

#include <cuda_runtime_api.h>
#include <kjit/launch.h>
#include <kjit/utils.h>
#include <kjit/device.cuh>
#include <kjit/row_memory.cuh>
#include <kjit/row_pieces.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kjit {

namespace host::row {

/// Threads of the largest block whose rows are packed.
inline constexpr int kMaxPackedBlock = 384;

/// Vectors of rows that are packed where others would do as well, but for idle lanes.
inline constexpr int kFewVectors = 192;

/// How rows are packed. A block has a chunk of rows, which begins with a vector, in one or several groups; each thread
/// has a vector of each group.
struct Packed {
  std::int64_t num_rows;  // in all
  int row_size;           // elements
  int chunk_rows;
  int group_rows;
  int group_vectors;
  int lane_bits;     // of the number of a lane among those, up to 32, that add up a row's vectors
  Division by_size;  // by `row_size`, of numbers of elements in a group
  int vector_slots;  // in an array that has one for each vector of a chunk, and a multiple of 16
  int row_slots;     // the same for the rows, and the one behind them
  unsigned block;
  std::int64_t grid;
  std::int64_t full_blocks;  // the first ones, in which each thread that has vectors has as many as it may have
  std::size_t shared_bytes;  // of dynamic shared memory
};

namespace details {

/// After how many rows of `row_size` elements, at the latest, one begins with a vector of `vec` elements again.
constexpr std::int64_t period_rows(std::int64_t row_size, int vec) {
  std::int64_t rows = vec;
  while (rows > 1 && row_size * (rows / 2) % vec == 0) rows /= 2;
  return rows;
}

/// How many periods of `vectors` vectors are a group: in a small block such that at least `percent` of its lanes have a
/// vector, or a larger one where there is none.
constexpr std::int64_t group_periods(std::int64_t vectors, std::int64_t percent) {
  constexpr std::int64_t kWarp = 32, kSmall = 128;
  const auto lanes = [&](std::int64_t periods) { return div_ceil(periods * vectors, kWarp) * kWarp; };
  std::int64_t best = 1;
  const auto is_enough = [&] { return 100 * best * vectors >= percent * lanes(best); };
  for (std::int64_t periods = 1; periods * vectors <= (is_enough() ? kSmall : kMaxPackedBlock); ++periods) {
    if (lanes(periods) * best <= lanes(best) * periods) best = periods;
  }
  return best;
}

}  // namespace details

/// Whether `rows` rows of `row_size` elements should be packed: where they begin with a vector again after at most
/// `most` vectors, which is up to `kMaxPackedBlock`, and there are so many rows that it does not matter how long a
/// block takes.
constexpr bool worth_packing(std::int64_t rows, std::int64_t row_size, int vec, int most) {
  using namespace details;
  constexpr std::int64_t kMany = 524288, kLeast = 8;  // vectors, in all and of a row
  return row_size >= kLeast * vec && rows * row_size >= kMany * vec &&
         period_rows(row_size, vec) * row_size <= std::int64_t{most} * vec;
}

/// Packs `num_rows` rows of `row_size` elements, cut into vectors of `vec`, of which a thread has up to `parts`. Idle
/// lanes cost time where vectors are of two rows and have many elements: rows that are all `aligned` may have more. In
/// shared memory there is room for three arrays of sums, of `sum_bytes` bytes each: one for each vector, and two for
/// each row.
inline Packed packed(std::int64_t num_rows, std::int64_t row_size, int vec, int parts, bool aligned,
                     std::size_t sum_bytes, DLDevice device) {
  using namespace details;
  constexpr std::int64_t kWarp = 32, kBlocksPerSm = 4, kSerial = 8;  // kSerial: vectors that a lane adds up
  const std::int64_t period = period_rows(row_size, vec), of_period = period * row_size / vec;
  const std::int64_t periods = group_periods(of_period, aligned || vec < 8 ? 75 : 85);
  const std::int64_t group_rows = periods * period, group_vectors = periods * of_period;
  int sms = 0;
  RuntimeDeviceCheck(::cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.device_id));
  std::int64_t groups = num_rows / (group_rows * sms * kBlocksPerSm);
  groups = groups < 1 ? 1 : groups < parts ? groups : parts;
  const std::int64_t chunk_rows = groups * group_rows;
  const auto slots = [](std::int64_t least) { return div_ceil(least, std::int64_t{16}) * 16; };
  const std::int64_t vector_slots = slots(groups * group_vectors), row_slots = slots(chunk_rows + 1);
  const std::int64_t block = div_ceil(group_vectors, kWarp) * kWarp;
  const auto is_long = [&](int lane_bits) { return row_size > (kSerial << lane_bits) * vec; };
  int lane_bits = 0;  // more than that where threads would be idle
  while (lane_bits < 5 && (is_long(lane_bits) || chunk_rows << (lane_bits + 1) <= block)) ++lane_bits;
  return {num_rows,
          static_cast<int>(row_size),
          static_cast<int>(chunk_rows),
          static_cast<int>(group_rows),
          static_cast<int>(group_vectors),
          lane_bits,
          Division::by(row_size),
          static_cast<int>(vector_slots),
          static_cast<int>(row_slots),
          static_cast<unsigned>(block),
          div_ceil(num_rows, chunk_rows),
          groups == parts ? num_rows / chunk_rows : 0,
          static_cast<std::size_t>(vector_slots + 2 * row_slots) * sum_bytes};
}

}  // namespace host::row

namespace device::row {

/// Arrays in the block's dynamic shared memory, one behind another.
class SharedArrays {
 public:
  /// The next one, of `count` values: a multiple of 16, so that each begins aligned.
  template <typename V>
  __device__ V* take(int count) {
    using namespace details;
    V* const array = reinterpret_cast<V*>(dynamic_shared() + used_);
    used_ += count * static_cast<int>(sizeof(V));
    return array;
  }

 private:
  int used_ = 0;
};

/// Whether the threads of this block that have vectors all have as many as a thread may have.
KJIT_DEVICE bool is_full(const host::row::Packed& packed) {
  return blockIdx.x < packed.full_blocks;
}

/// The rows of a block, and what a thread has of them: one vector of each group, from the same column on. Rows and
/// vectors are counted from the start of the block's chunk. Where the block `is_full`, `kFull` spares the threads to
/// ask for each vector whether it is there.
template <int kVec, bool kAligned, bool kFull = false>
class PackedRows {
 public:
  explicit __device__ PackedRows(const host::row::Packed& packed) : packed_(packed) {
    const unsigned at = threadIdx.x * kVec;
    row_ = static_cast<int>(packed.by_size(at));
    column_ = static_cast<int>(at) - row_ * packed.row_size;
    first_row_ = std::int64_t{blockIdx.x} * packed.chunk_rows;
    first_ = first_row_ * packed.row_size;
    const std::int64_t left = packed.num_rows - first_row_;
    count_ = !kFull && left < packed.chunk_rows ? static_cast<int>(left) : packed.chunk_rows;
    vectors_ = works() ? count_ * packed.row_size / kVec : 0;
  }

  /// Whether the thread has vectors, in a full group.
  __device__ bool works() const { return static_cast<int>(threadIdx.x) < packed_.group_vectors; }
  /// Whether its `i`-th vector is there. Of the last row, some elements may lie behind the last vector: `tail`.
  __device__ bool has(int i) const { return kFull ? works() : vector(i) < vectors_; }
  /// The number of that vector.
  __device__ int vector(int i) const { return i * packed_.group_vectors + static_cast<int>(threadIdx.x); }
  /// The row in which it begins.
  __device__ int row(int i) const { return i * packed_.group_rows + row_; }
  /// Whether its element `j` is of that row; else it is of the next.
  __device__ bool is_of_row(int j) const { return kAligned || column_ + j < packed_.row_size; }
  /// Whether it has elements of the next row.
  __device__ bool splits() const { return !is_of_row(kVec - 1); }

  /// How many rows there are, and the number of the first one in all.
  __device__ int count() const { return count_; }
  __device__ std::int64_t first_row() const { return first_row_; }
  /// Of an array with something for each vector, or for each row and the one behind the last.
  __device__ int vector_slots() const { return packed_.vector_slots; }
  __device__ int row_slots() const { return packed_.row_slots; }

  /// The thread's `i`-th vector of a tensor, by way of the SM's cache: warps share lines with their neighbours.
  template <typename T>
  __device__ void load(AlignedVector<T, kVec>& vec, const T* data, int i) const {
    row::load(vec, data + first_, vector(i) * kVec);
  }
  template <typename T>
  __device__ void store(const AlignedVector<T, kVec>& vec, T* data, int i) const {
    store_streaming(vec, data + first_ + vector(i) * kVec);
  }
  /// Zeros where `data` is null.
  template <typename T>
  __device__ void load_or_zero(AlignedVector<T, kVec>& vec, const T* data, int i) const {
    data == nullptr ? vec.fill(T{}) : load(vec, data, i);
  }

  /// What a tensor of one row has beside each of its vectors.
  template <typename T>
  __device__ void load_column(AlignedVector<T, kVec>& vec, const T* data) const {
    if constexpr (kAligned) {
      row::load(vec, data, column_);
    } else {
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const unsigned at = static_cast<unsigned>(column_ + j);
        const unsigned of_next = at - static_cast<unsigned>(packed_.row_size);  // a large number where it is not
        vec[j] = data[at < of_next ? at : of_next];
      }
    }
  }
  template <typename T>
  __device__ void load_column_or_zero(AlignedVector<T, kVec>& vec, const T* data) const {
    data == nullptr ? vec.fill(T{}) : load_column(vec, data);
  }

  /// A few lanes add up a row: so many rows at a time, which of them this one, and whether it goes on with the sum.
  __device__ int at_a_time() const { return static_cast<int>(blockDim.x >> packed_.lane_bits); }
  __device__ int of_thread() const { return static_cast<int>(threadIdx.x >> packed_.lane_bits); }
  __device__ bool owns(int row) const { return row < count_ && lane() == 0; }

  /// The sum of `row`, in all lanes that add it up: of what the vectors that begin in it have told `of_vector`, and of
  /// what the one ahead of them, where it has elements of this row, has told `of_lead`, which may be null for aligned
  /// rows. All threads of a warp call.
  template <typename S>
  __device__ S sum(const S* of_vector, const std::type_identity_t<S>* of_lead, int row) const {
    S part = 0;
    if (row < count_) {
      const unsigned begin = static_cast<unsigned>(row * packed_.row_size) + (kVec - 1);
      const unsigned end = (begin + static_cast<unsigned>(packed_.row_size)) / kVec;
      for (unsigned i = begin / kVec + lane(); i < end; i += lanes()) part += of_vector[i];
      if (!kAligned && lane() == 0 && begin % kVec != kVec - 1) part += of_lead[row];
    }
    for (unsigned offset = lanes() / 2; offset > 0; offset /= 2) part += __shfl_xor_sync(0xffffffffu, part, offset);
    return part;
  }

  /// How many elements of the last row are in no vector, for one thread; none for all others.
  __device__ int tail() const { return !kAligned && !kFull && threadIdx.x == 0 ? count_ * packed_.row_size % kVec : 0; }
  /// The number of the first of them in all, and its column; and of the vector that they would be, a place in
  /// `of_vector`.
  __device__ std::int64_t tail_at() const { return first_ + count_ * packed_.row_size - tail(); }
  __device__ int tail_column() const { return packed_.row_size - tail(); }
  __device__ int tail_vector() const { return vectors_; }

 private:
  /// How many lanes add up a row, and which of them this thread is.
  __device__ unsigned lanes() const { return 1u << packed_.lane_bits; }
  __device__ unsigned lane() const { return threadIdx.x & (lanes() - 1); }

  const host::row::Packed& packed_;
  std::int64_t first_row_, first_;
  int row_, column_, count_, vectors_;
};

}  // namespace device::row

}  // namespace kjit
