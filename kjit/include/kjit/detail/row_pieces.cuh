// Distribution of rows over a grid by vectors, for kernels without reductions: each thread has a vector, whatever the
// length of the rows.
//
//   params.pieces = row::pieces(num_rows, row_size, kVec);                    // host
//   LaunchKernel(row::grid(params.pieces, kBlock * kParts), kBlock, device)(kernel, params);
//   ...
//   const unsigned first = blockIdx.x * (kBlock * kParts) + threadIdx.x;      // in the kernel
//   const auto piece = device::row::piece<kVec>(pieces, first + i * kBlock);  // the thread's i-th of kParts
//   if (piece.there) ...                                                      // elements from `piece.at` on
//
// A piece is an aligned vector of a row; the size of rows is a multiple of the vector's. Takes little time to compile.

#pragma once

#include <cuda_runtime_api.h>
#include <kjit/launch.h>
#include <kjit/utils.h>
#include <kjit/device.cuh>

#include <cstdint>

namespace kjit {

namespace host::row {

/// Division of numbers below 2^31 by a divisor known before the launch, 1 to 2^30, as a multiplication.
///
/// Granlund, Montgomery: Division by invariant integers using multiplication (PLDI 1994). With bits such that
/// 2^(bits - 1) < divisor <= 2^bits, and the multiplier rounded up, n / divisor is n * multiplier >> (31 + bits).
struct Division {
  unsigned multiplier;
  int shift;

  static Division by(std::int64_t divisor) {
    int bits = 0;
    while ((std::int64_t{1} << bits) < divisor) ++bits;
    const std::uint64_t power = std::uint64_t{1} << (31 + bits);
    return {static_cast<unsigned>(div_ceil(power, static_cast<std::uint64_t>(divisor))), 31 + bits};
  }

  __host__ __device__ unsigned operator()(unsigned number) const {
    return static_cast<unsigned>(std::uint64_t{number} * multiplier >> shift);
  }
};

/// The distribution of rows over a grid. The blocks along x have `rows` rows, and `of_row` pieces of each; blocks along
/// y have the next rows, blocks along z the next pieces.
struct Pieces {
  std::int64_t num_rows;  // in total
  std::int64_t row_size;  // elements
  std::int64_t row_pieces;
  unsigned rows;
  unsigned of_row;
  Division by_row;  // by `of_row`
};

/// Divides `num_rows` rows of `row_size` elements, a multiple of `vec`, into vectors of `vec` elements. At most `most`
/// of them are along x: 2^30, so that indices after the last one fit into 31 bits.
inline Pieces pieces(std::int64_t num_rows, std::int64_t row_size, int vec, std::int64_t most = std::int64_t{1} << 30) {
  const std::int64_t row_pieces = row_size / vec;
  const std::int64_t of_row = row_pieces < 1 ? 1 : row_pieces < most ? row_pieces : most;
  const std::int64_t rows = num_rows < 1 ? 1 : num_rows < most / of_row ? num_rows : most / of_row;
  return {
      num_rows, row_size, row_pieces, static_cast<unsigned>(rows), static_cast<unsigned>(of_row), Division::by(of_row)};
}

/// The grid of a kernel with `of_block` pieces per block.
inline Extent grid(const Pieces& pieces, std::int64_t of_block) {
  const std::int64_t rows = pieces.rows, of_row = pieces.of_row;
  return {div_ceil(rows * of_row, of_block), div_ceil(pieces.num_rows, rows), div_ceil(pieces.row_pieces, of_row)};
}

}  // namespace host::row

namespace device::row {

/// A piece: its row, and its first element in the row.
struct Piece {
  std::int64_t row;
  std::int64_t at;
  bool there;  // false after the last piece
};

/// Piece `number` of those of the blocks along x.
template <int kVec>
KJIT_DEVICE Piece piece(const host::row::Pieces& pieces, unsigned number) {
  const unsigned of_x = pieces.by_row(number);
  const std::int64_t row = std::int64_t{blockIdx.y} * pieces.rows + of_x;
  const std::int64_t at = (std::int64_t{blockIdx.z} * pieces.of_row + (number - of_x * pieces.of_row)) * kVec;
  return {row, at, of_x < pieces.rows && row < pieces.num_rows && at < pieces.row_size};
}

}  // namespace device::row

}  // namespace kjit
