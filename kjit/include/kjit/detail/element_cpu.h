// Elements of tensors in loops of CPU kernels: staged, computed, and stored.

#pragma once

#include <kjit/cpu.h>
#include <kjit/patterns/operands.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>

#include <cstdint>
#include <type_traits>

namespace kjit::details {

constexpr std::int64_t kOneThread = 32768;  // up to this many elements, one thread is fastest

/// The staging type of an element: float if half types are converted in vectors, and math takes floats.
template <typename Operand, typename Stored = typename Operand::Stored>
using StagedAs =
    std::conditional_t<std::is_same_v<typename Operand::Value, typename Operand::Element>, Stored, staged_t<Stored>>;

/// A stage for some elements of a tensor.
template <typename Operand, typename Stored = typename Operand::Stored>
using StageOf = std::conditional_t<Operand::kIsOptional, StagedOptional<Stored, StagedAs<Operand>>,
                                   Staged<Stored, Operand::kIsRead, StagedAs<Operand>>>;

template <typename Operand, typename Size, typename Streams>
[[gnu::always_inline]] inline StageOf<Operand> stage(const Operand& tensor, std::int64_t at, Size size,
                                                     Streams streams) {
  if constexpr (Operand::kIsOptional) {
    return {tensor.data == nullptr ? nullptr : tensor.data + at, size};
  } else if constexpr (Operand::kIsRead) {
    return {tensor.data + at, size};
  } else {
    return {tensor.data + at, size, streams};
  }
}

template <typename Operand, typename Stage>
[[gnu::always_inline]] inline void store_stage(Stage& stage) {
  if constexpr (Operand::kIsWritten) stage.store();
}

template <typename Operand>
constexpr bool kIsOnlyWritten = Operand::kIsWritten && !Operand::kIsRead;

/// Calls math for `size` elements in `data`.
template <typename Math, typename Size, typename... Operands, typename... Data>
[[gnu::always_inline]] inline void loop_over_elements(const Math math, Size size, Types<Operands...>, Data*... data) {
#ifndef __CUDACC__  // nvcc does not know the pragma
#pragma omp simd
#endif
  for (std::int64_t i = 0; i < size; ++i) call_element(math, Slot<Operands, Data>(data, i)...);
}

}  // namespace kjit::details
