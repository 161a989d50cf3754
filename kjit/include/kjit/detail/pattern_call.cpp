// The functions of kjit/detail/pattern_call.h that are not templates (see KJIT_PRECOMPILED in kjit/utils.h).

#pragma once

#include <kjit/utils.h>

#include <kjit/detail/pattern_call.h>

#include <cstdint>

namespace kjit::details {

/// The bytes of a tensor: rows that begin `stride` bytes apart. Rows without gaps are one row.
struct ByteRows {
  std::uintptr_t begin;
  std::int64_t rows;
  std::int64_t size;
  std::int64_t stride;

  ByteRows(const void* data, const OperandTraits& traits, const CallSizes& sizes, std::int64_t row_stride)
      : begin(reinterpret_cast<std::uintptr_t>(data)),
        rows(traits.place == Place::kTable    ? sizes.table_size
             : traits.place == Place::kColumn ? 1
                                              : sizes.num_rows),
        size(traits.element_bytes * (traits.place == Place::kRow ? 1 : sizes.row_size)),
        stride(traits.place == Place::kRow ? size : traits.element_bytes * row_stride) {
    if (data == nullptr || size == 0) rows = 0;
    if (rows > 1 && (stride == size || stride == 0)) {
      if (stride != 0) size *= rows;
      rows = 1;
    }
  }

  std::int64_t extent() const { return (rows - 1) * stride + size; }
  bool operator==(const ByteRows& other) const {
    return begin == other.begin && rows == other.rows && size == other.size && (rows == 1 || stride == other.stride);
  }
};

inline bool share_memory(const ByteRows& one, const ByteRows& other) {
  if (one.rows == 0 || other.rows == 0) return false;
  const auto ahead = static_cast<std::int64_t>(other.begin - one.begin);
  if (ahead >= one.extent() || -ahead >= other.extent()) return false;
  if (other.rows == 1) {
    // The first row of `one` that ends after `other` begins.
    const std::int64_t row = ahead < one.size ? 0 : (ahead - one.size) / one.stride + 1;
    return row < one.rows && row * one.stride < ahead + other.size;
  }
  if (one.rows == 1) return share_memory(other, one);
  if (one.stride != other.stride) return false;
  const std::int64_t within = (ahead % one.stride + one.stride) % one.stride;
  return within < one.size || within + other.size > one.stride;
}

KJIT_IMPL void check_memory(const CallDevice& device, const char* pattern, const CallSizes& sizes, int count,
                            const OperandTraits* traits, const void* const* data, const std::int64_t* strides) {
  const auto rows_of = [&](int i) {
    return ByteRows(data[i], traits[i], sizes, strides == nullptr ? sizes.row_size : strides[i]);
  };
  for (int i = 1; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      if (!traits[i].is_written && !traits[j].is_written) continue;
      const ByteRows one = rows_of(i), other = rows_of(j);
      if (!share_memory(one, other)) continue;
      const bool are_written = traits[i].is_written && traits[j].is_written;
      const bool are_same = one == other && traits[i].element_bytes == traits[j].element_bytes &&
                            traits[i].place == traits[j].place && traits[i].place != Place::kTable;
      if (are_same && !are_written) continue;
      host::panic(device.where, are_written ? "two outputs overlap in memory" : "an output overlaps an input in memory",
                  ": tensors ", j + 1, " and ", i + 1, " of ", pattern, "(). ",
                  are_written ? "Give each its own memory."
                              : "Pass an output with memory of its own, or a copy of the input: x.clone().");
    }
  }
}

}  // namespace kjit::details
