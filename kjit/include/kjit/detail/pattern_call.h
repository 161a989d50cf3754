// A call of a pattern: its device and place, and the check of its tensors: an output that overlaps another tensor in
// memory is an error, because elements would be read after they were overwritten, or written twice.

#pragma once

#include <kjit/tensor.h>
#include <kjit/utils.h>

#include <kjit/detail/element.h>

#include <cstdint>

namespace kjit::details {

/// The device of a call, and the call's place in the source, for errors.
struct CallDevice {
  DLDevice value;
  host::DebugInfo where;

  CallDevice(const host::SymbolicDevice& device, host::DebugInfo here = {}) : value(device.unwrap(here)), where(here) {}
};

/// The sizes of a call; a pattern without tables has `table_size` 0.
struct CallSizes {
  std::int64_t num_rows;
  std::int64_t row_size;
  std::int64_t table_size = 0;
};

/// What is known of a tensor when its pattern is compiled.
struct OperandTraits {
  int element_bytes;
  Place place;
  bool is_written;
};

/// Throws if a tensor that is written shares memory with another one, unless one of the two is only read, and all
/// elements of both are at the same places. Rows with different strides are not compared.
///
/// @param strides  elements from a row of a tensor to the next; null if all are contiguous
void check_memory(const CallDevice& device, const char* pattern, const CallSizes& sizes, int count,
                  const OperandTraits* traits, const void* const* data, const std::int64_t* strides);

/// Elements from a row of a tensor to the next.
template <typename Operand>
std::int64_t stride_of(const Operand& tensor, std::int64_t row_size) {
  if constexpr (Operand::kIsStrided) return tensor.stride;
  return row_size;
}

/// The same for the operands of a call, in order.
template <typename... Operands>
void check_overlap(const CallDevice& device, const char* pattern, const CallSizes& sizes, const Operands&... tensors) {
  static constexpr OperandTraits kTraits[] = {
      {int{sizeof(typename Operands::Element)}, Operands::kPlace, Operands::kIsWritten}...};
  const void* const data[] = {tensors.data...};
  if constexpr ((Operands::kIsStrided || ...)) {
    const std::int64_t strides[] = {stride_of(tensors, sizes.row_size)...};
    check_memory(device, pattern, sizes, sizeof...(Operands), kTraits, data, strides);
  } else {
    check_memory(device, pattern, sizes, sizeof...(Operands), kTraits, data, nullptr);
  }
}

}  // namespace kjit::details

#ifndef KJIT_PRECOMPILED
#include <kjit/detail/pattern_call.cpp>
#endif
