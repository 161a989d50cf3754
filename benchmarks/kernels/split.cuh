// How the elements of an array fall into vectors of 16 bytes, with single elements before the first and after the
// last.

#pragma once

#include <kjit/utils.h>

#include <cstdint>

namespace {

/// Work item `i` is vector `i` for `i < vectors`, else the single element `element(i)`; there are `items()` of them.
struct Split {
  int64_t numel;
  int64_t head;     // elements before the first vector
  int64_t vectors;  // vectors of `vec` elements
  int64_t vec;

  /// Vectors of `vec` elements of `element_size` bytes that are aligned in the array at `data`.
  static Split of(const void* data, int64_t numel, int64_t element_size, int64_t vec) {
    const auto bytes = static_cast<uintptr_t>(vec * element_size);
    const int64_t to_go =
        static_cast<int64_t>((bytes - reinterpret_cast<uintptr_t>(data) % bytes) % bytes) / element_size;
    const int64_t head = to_go < numel ? to_go : numel;
    return {numel, head, (numel - head) / vec, vec};
  }

  __host__ __device__ int64_t items() const { return numel - vectors * (vec - 1); }

  __host__ __device__ int64_t element(int64_t item) const {
    const int64_t single = item - vectors;
    return single < head ? single : single + vectors * vec;
  }
};

}  // namespace
