// The GPU kernel of pattern elementwise.
//
// A thread moves as many vectors of every tensor as make up the widest one, and issues all loads before it uses the
// first. Device code only; <kjit/patterns/elementwise.h> launches it.

#pragma once

#include <kjit/detail/element.h>
#include <kjit/detail/vectors.h>
#include <kjit/patterns/operands.h>
#include <kjit/detail/row_pieces.cuh>
#include <kjit/device.cuh>

#include <cstdint>

namespace kjit {

namespace details {

constexpr int kElementBlock = 128;  // threads in a block

/// A partition of the elements: `head` of them before the first aligned vector, then `vectors` vectors, then the tail.
struct ElementRange {
  std::int64_t numel, head, vectors;
};

/// The registers of a thread for a tensor: `kCount` vectors of `kVec` elements.
template <typename Operand, int kVec, int kCount>
struct HeldVectors {
  using Element = typename Operand::Element;

  Operand tensor;
  device::AlignedVector<Element, kVec> vectors[kCount];

  /// Reads vector `at` after the head as the thread's vector `i`.
  KJIT_DEVICE void load(int i, std::int64_t head, std::int64_t at) {
    if constexpr (Operand::kIsOptional) {
      if (tensor.data == nullptr) return vectors[i].fill(Element{});
    }
    if constexpr (Operand::kIsRead) vectors[i].load(tensor.data + head, at);
  }
  KJIT_DEVICE void store(int i, std::int64_t head, std::int64_t at) const {
    if constexpr (Operand::kIsWritten) vectors[i].store(tensor.data + head, at);
  }

  /// The index of a vector of a row, for `load` and `store`.
  KJIT_DEVICE std::int64_t place(const device::row::Piece& piece, std::int64_t row_size) const {
    if constexpr (Operand::kIsStrided) return piece.row * tensor.stride + piece.at;
    return piece.row * row_size + piece.at;
  }

  KJIT_DEVICE Slot<Operand, Element> slot(int i, int j) { return {vectors[i].data(), j}; }
};

/// Element `at` of every tensor.
template <typename Math, typename... Operands>
KJIT_DEVICE void do_element(const Math& math, std::int64_t at, const Operands&... tensors) {
  call_element(math, Slot<Operands, typename Operands::Stored>(tensors.data, at)...);
}

/// Vector `at` after the head of every tensor.
template <int kVec, typename Math, typename... Held>
KJIT_DEVICE void do_vector(const Math& math, std::int64_t head, std::int64_t at, Held... held) {
  (held.load(0, head, at), ...);
#pragma unroll
  for (int j = 0; j < kVec; ++j) call_element(math, held.slot(0, j)...);
  (held.store(0, head, at), ...);
}

/// Up to `kCount` elements of every tensor, from `first` on with a stride of kElementBlock.
template <int kCount, typename Math, typename... Held>
KJIT_DEVICE void do_elements(const Math& math, std::int64_t first, std::int64_t numel, Held... held) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const std::int64_t at = first + i * kElementBlock;
    if (at >= numel) break;
    (held.load(i, 0, at), ...);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const std::int64_t at = first + i * kElementBlock;
    if (at >= numel) break;
    call_element(math, held.slot(i, 0)...);
    (held.store(i, 0, at), ...);
  }
}

/// Up to `kCount` vectors of every tensor, from strided rows.
template <int kVec, int kCount, typename Math, typename... Held>
KJIT_DEVICE void do_row_vectors(const Math& math, const host::row::Pieces& pieces, Held... held) {
  const unsigned first = blockIdx.x * (kElementBlock * kCount) + threadIdx.x;
  device::row::Piece piece[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    piece[i] = device::row::piece<kVec>(pieces, first + i * kElementBlock);
    if (piece[i].there) (held.load(i, held.place(piece[i], pieces.row_size), 0), ...);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (!piece[i].there) continue;
#pragma unroll
    for (int j = 0; j < kVec; ++j) call_element(math, held.slot(i, j)...);
    (held.store(i, held.place(piece[i], pieces.row_size), 0), ...);
  }
}

}  // namespace details

namespace kernels {

template <typename Math, int kVec, int kCount, typename... Operands>
__global__ void __launch_bounds__(details::kElementBlock)
    elementwise_rows(const Math math, const __grid_constant__ host::row::Pieces pieces, Operands... tensors) {
  device::PDLBegin();  // no access to memory before this
  details::do_row_vectors<kVec, kCount>(math, pieces, details::HeldVectors<Operands, kVec, kCount>{tensors}...);
}

/// A thread has a vector of every tensor; threads beyond the last vector process one element each of the head and the
/// tail. Without vectors (`kVec` is 1) a thread has as many scalars as the widest vector has, and issues all loads
/// before it uses the first.
template <typename Math, int kVec, typename... Operands>
__global__ void __launch_bounds__(details::kElementBlock)
    elementwise(const Math math, const details::ElementRange range, Operands... tensors) {
  using namespace details;
  device::PDLBegin();  // no access to memory before this
  if constexpr (kVec > 1) {
    std::int64_t at = std::int64_t{blockIdx.x} * kElementBlock + threadIdx.x;
    if (at < range.vectors) return do_vector<kVec>(math, range.head, at, HeldVectors<Operands, kVec, 1>{tensors}...);
    at -= range.vectors;
    if (at >= range.head) at += range.vectors * kVec;
    if (at < range.numel) do_element(math, at, tensors...);
  } else {
    constexpr int kCount = elements_in<Operands...>(device::kMaxVecBytes);
    const std::int64_t first = std::int64_t{blockIdx.x} * (kElementBlock * kCount) + threadIdx.x;
    do_elements<kCount>(math, first, range.numel, HeldVectors<Operands, 1, kCount>{tensors}...);
  }
}

}  // namespace kernels

}  // namespace kjit
