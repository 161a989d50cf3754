// Kernels that test kjit/detail/row_cut.cuh: `test_row_cut.py` calls them.

#include <kjit/launch.h>
#include <kjit/patterns/gather.h>
#include <kjit/tensor.h>
#include <kjit/detail/row_cut.cuh>

#include <cstdint>
#include <utility>

namespace {

using namespace kjit;

constexpr int kBlock = 32, kParts = 3;

template <typename T, typename Index>
struct Params {
  const T* table;
  std::int64_t table_size;
  const Index* index;
  const T* column;
  T* out;
  T* visits;
  host::row::Cutting cutting;
};

/// The sum of the row that the index names and the column, in `out`. Counts in `visits` how often each element is done;
/// one that is said to be of a row of which it is not counts twice.
template <typename T, int kVec, typename Index>
__global__ void __launch_bounds__(kBlock) take_kernel(const __grid_constant__ Params<T, Index> params) {
  using Rows = device::row::CutRows<kVec, kBlock, kParts>;
  __shared__ device::row::TableSlots<Rows, T> slots;
  const Rows rows(params.cutting);
  rows.find(slots, params.table, params.table_size, params.index);
  rows.await_found();
  rows.fetch(slots, params.table, params.table_size);
  rows.await_fetched();
#pragma unroll
  for (int i = 0; i < Rows::kTurns; ++i) {
    const device::row::Cut cut = rows.cut(i);
    if (!cut.there) continue;
    device::AlignedVector<T, kVec> vector, column;
    rows.take(vector, slots, cut);
    rows.load_column(column, params.column, cut);
    for (int j = 0; j < kVec; ++j) {
      if (!cut.whole && !rows.has(cut, j)) continue;
      const std::int64_t at = cut.at + j, row = rows.is_of_row(cut, j) ? cut.row : cut.row + 1;
      params.out[at] = static_cast<T>(vector[j] + column[j]);
      params.visits[at] = static_cast<T>(params.visits[at] + (row == at / params.cutting.row_size ? 1 : 2));
    }
  }
}

template <typename T, int kVec, typename Index>
void take(TensorView table, TensorView index, tvm::ffi::Optional<TensorView> column, TensorView out, TensorView visits,
          int64_t head) {
  using namespace host;
  const int64_t rows = index.size(0), size = table.size(1);
  const Params<T, Index> params{
      .table = static_cast<const T*>(table.data_ptr()),
      .table_size = table.size(0),
      .index = static_cast<const Index*>(index.data_ptr()),
      .column = column.has_value() ? static_cast<const T*>(column.value().data_ptr()) : nullptr,
      .out = static_cast<T*>(out.data_ptr()),
      .visits = static_cast<T*>(visits.data_ptr()),
      .cutting = row::cutting(rows, size, kVec, head, kBlock * kParts),
  };
  LaunchKernel(params.cutting.blocks, kBlock, out.device())(take_kernel<T, kVec, Index>, params);
}

/// A table that is absent is read as zeros.
void take_nothing(TensorView index, TensorView column, TensorView out, TensorView visits) {
  using namespace host;
  const Params<int32_t, int64_t> params{
      .table = nullptr,
      .table_size = 5,
      .index = static_cast<const int64_t*>(index.data_ptr()),
      .column = static_cast<const int32_t*>(column.data_ptr()),
      .out = static_cast<int32_t*>(out.data_ptr()),
      .visits = static_cast<int32_t*>(visits.data_ptr()),
      .cutting = row::cutting(index.size(0), column.size(0), 4, 0, kBlock * kParts),
  };
  LaunchKernel(params.cutting.blocks, kBlock, out.device())(take_kernel<int32_t, 4, int64_t>, params);
}

bool can_cut(int64_t row_size, int64_t vec, int64_t head) {
  return host::row::can_cut(row_size, static_cast<int>(vec), head);
}

/// In `out` every vector of eight 16-bit numbers that begins in the first one of `pieces`, which are two.
__global__ void cut_kernel(int16_t* out, const int16_t* pieces) {
  device::AlignedVector<int16_t, 8> both[2], vector;
  both[0].load(pieces);
  both[1].load(pieces, 1);
  device::row::Offset(2 * threadIdx.x).cut(vector, both);
  vector.store(out, threadIdx.x);
}

void cut_everywhere(TensorView out, TensorView pieces) {
  static_assert(device::row::kCanCut<int16_t, 8> && device::row::kCanCut<int8_t, 4>);
  static_assert(!device::row::kCanCut<int8_t, 2> && !device::row::kCanCut<int32_t, 1> &&
                !device::row::kCanCut<float, 8>);
  host::LaunchKernel(1, 8, out.device())(cut_kernel, out.data_ptr(), pieces.data_ptr());
}

/// Bytes of shared memory for a table of vectors of 16 bytes, whose rows `block` threads cut, `parts` vectors each.
template <int kThreads, int kTheirParts>
constexpr int64_t kTableBytes =
    sizeof(device::row::TableSlots<device::row::CutRows<8, kThreads, kTheirParts>, int16_t>);

template <typename Sequence>
struct Tables;
template <std::size_t... kAt>
struct Tables<std::index_sequence<kAt...>> {
  template <std::size_t>
  struct Each : Table<int16_t> {};
  static constexpr int kThreads = details::kCutBlock<Each<kAt>...>;
  static constexpr int kTheirParts = details::kCutParts<Each<kAt>...>;
};

/// Bytes of shared memory that pattern gather takes for so many tables.
template <int kCount>
int64_t bytes_of_tables() {
  using Chosen = Tables<std::make_index_sequence<kCount>>;
  return kCount * kTableBytes<Chosen::kThreads, Chosen::kTheirParts>;
}

__global__ void divide_kernel(int64_t* quotients, const int64_t* numbers, int64_t count,
                              const host::row::Division division) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    quotients[i] = division(static_cast<unsigned>(numbers[i]));
  }
}

void divide(TensorView quotients, TensorView numbers, int64_t divisor) {
  using namespace host;
  LaunchKernel(1, kBlock, quotients.device())(divide_kernel, quotients.data_ptr(), numbers.data_ptr(), numbers.size(0),
                                              row::Division::by(divisor));
}

}  // namespace
