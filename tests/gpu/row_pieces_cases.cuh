// Kernels that test kjit/detail/row_pieces.cuh: `test_row_pieces.py` calls them.

#include <kjit/launch.h>
#include <kjit/tensor.h>
#include <kjit/detail/row_pieces.cuh>

#include <cstdint>

namespace {

using namespace kjit;

constexpr int kBlock = 64, kParts = 2;

/// Counts in `visits`, as many numbers as the rows have elements, how often each is in a piece; in `[rows * size]` the
/// elements of pieces that lie outside of their rows.
template <int kVec>
__global__ void visit_kernel(int32_t* visits, const host::row::Pieces pieces) {
  const unsigned first = blockIdx.x * (kBlock * kParts) + threadIdx.x;
  for (int i = 0; i < kParts; ++i) {
    const device::row::Piece piece = device::row::piece<kVec>(pieces, first + i * kBlock);
    if (!piece.there) continue;
    for (int j = 0; j < kVec; ++j) {
      const int64_t at = piece.at + j;
      const bool outside = at < 0 || at >= pieces.row_size;
      atomicAdd(&visits[outside ? pieces.num_rows * pieces.row_size : piece.row * pieces.row_size + at], 1);
    }
  }
}

/// `most` above 0: at most `most` pieces are side by side in x.
template <int kVec>
void visit(TensorView visits, int64_t rows, int64_t size, int64_t most) {
  using namespace host;
  const row::Pieces pieces = most > 0 ? row::pieces(rows, size, kVec, most) : row::pieces(rows, size, kVec);
  LaunchKernel(row::grid(pieces, kBlock * kParts), kBlock, visits.device())(visit_kernel<kVec>, visits.data_ptr(),
                                                                            pieces);
}

__global__ void divide_kernel(int64_t* rows, const int64_t* numbers, int64_t count, const host::row::Pieces pieces) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    rows[i] = device::row::piece<1>(pieces, static_cast<unsigned>(numbers[i])).row;
  }
}

/// In `rows` the row of each of the pieces in `numbers`, where each row has `of_row`.
void divide(TensorView rows, TensorView numbers, int64_t of_row) {
  using namespace host;
  const row::Pieces pieces = row::pieces(INT64_MAX / of_row, of_row, 1);
  LaunchKernel(1, kBlock, rows.device())(divide_kernel, rows.data_ptr(), numbers.data_ptr(), numbers.size(0), pieces);
}

/// How large the grid is, in x, y and z.
int64_t grid(int64_t rows, int64_t size, int64_t dimension) {
  const host::Extent grid = host::row::grid(host::row::pieces(rows, size, 8), 256);
  return dimension == 0 ? grid.x : dimension == 1 ? grid.y : grid.z;
}

}  // namespace
