// Kernels that test kjit/row_packed.cuh: `test_row_packed.py` calls them.

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/row_packed.cuh>

#include <cstdint>

namespace {

using namespace kjit;
using namespace kjit::host;

constexpr int kVec = 4, kParts = 3;

/// In `sums` the sum of each row of `x`; in `next` each element and, added to it, that of `column` and ten times the
/// number of its row.
template <bool kAligned, bool kFull>
KJIT_DEVICE void rows_of_block(int32_t* sums, int32_t* next, const int32_t* x, const int32_t* column,
                               const row::Packed& params) {
  const device::row::PackedRows<kVec, kAligned, kFull> packing(params);
  device::row::SharedArrays arrays;
  int32_t* const of_vector = arrays.take<int32_t>(packing.vector_slots());
  int32_t* const of_row = arrays.take<int32_t>(packing.row_slots());
  int32_t* const of_lead = arrays.take<int32_t>(packing.row_slots());
  device::AlignedVector<int32_t, kVec> vec[kParts], column_vec;
  if (packing.works()) packing.load_column_or_zero(column_vec, column);
  for (int i = 0; i < kParts && packing.has(i); ++i) {
    packing.load_or_zero(vec[i], x, i);
    int32_t sum = 0, next_sum = 0;
    for (int j = 0; j < kVec; ++j) (packing.is_of_row(j) ? sum : next_sum) += vec[i][j];
    of_vector[packing.vector(i)] = sum;
    if (packing.splits()) of_lead[packing.row(i) + 1] = next_sum;
  }
  if (packing.tail() > 0) of_vector[packing.tail_vector()] = 0;
  for (int j = 0; j < packing.tail(); ++j) of_vector[packing.tail_vector()] += x[packing.tail_at() + j];
  __syncthreads();
  for (int first = 0; first < packing.count(); first += packing.at_a_time()) {
    const int row = first + packing.of_thread();
    const int32_t sum = packing.sum(of_vector, of_lead, row);
    if (!packing.owns(row)) continue;
    sums[packing.first_row() + row] = sum;
    of_row[row] = 10 * static_cast<int32_t>(packing.first_row() + row);
  }
  __syncthreads();
  for (int i = 0; i < kParts && packing.has(i); ++i) {
    for (int j = 0; j < kVec; ++j) {
      vec[i][j] += column_vec[j] + of_row[packing.row(i) + (packing.is_of_row(j) ? 0 : 1)];
    }
    packing.store(vec[i], next, i);
  }
  for (int j = 0; j < packing.tail(); ++j) {
    next[packing.tail_at() + j] =
        x[packing.tail_at() + j] + column[packing.tail_column() + j] + of_row[packing.count() - 1];
  }
}

template <bool kAligned>
__global__ void rows_kernel(int32_t* sums, int32_t* next, const int32_t* x, const int32_t* column,
                            const __grid_constant__ row::Packed params) {
  device::row::is_full(params) ? rows_of_block<kAligned, true>(sums, next, x, column, params)
                               : rows_of_block<kAligned, false>(sums, next, x, column, params);
}

void rows(TensorView sums, TensorView next, TensorView x, TensorView column) {
  const bool aligned = x.size(1) % kVec == 0;
  const row::Packed params = row::packed(x.size(0), x.size(1), kVec, kParts, aligned, 4, x.device());
  LaunchKernel(params.grid, params.block, x.device(), params.shared_bytes)(
      aligned ? rows_kernel<true> : rows_kernel<false>, sums.data_ptr(), next.data_ptr(), x.data_ptr(),
      column.data_ptr(), params);
}

/// Threads of the largest block, or the vectors of rows that are packed only because lanes would be idle.
int64_t limit(bool few) {
  return few ? row::kFewVectors : row::kMaxPackedBlock;
}

bool worth_packing(int64_t rows, int64_t row_size, int64_t vec, int64_t most) {
  return row::worth_packing(rows, row_size, static_cast<int>(vec), static_cast<int>(most));
}

/// How rows are packed: threads of a block, those with vectors, the rows of a group and of a chunk, lanes that add up a
/// row.
int64_t packed(int64_t rows, int64_t row_size, int64_t vec, bool aligned, int64_t what, TensorView on) {
  const row::Packed packed = row::packed(rows, row_size, static_cast<int>(vec), 4, aligned, 4, on.device());
  const int64_t lanes = int64_t{1} << packed.lane_bits;
  const int64_t numbers[] = {packed.block, packed.group_vectors, packed.group_rows, packed.chunk_rows, lanes};
  return numbers[what];
}

}  // namespace
