// Elements of tensors in the loops of the CPU's kernels: staged, computed, and stored.

#pragma once

#include <kjit/cpu.h>
#include <kjit/patterns/operands.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>

#include <cstdint>
#include <type_traits>

namespace kjit::details {

constexpr std::int64_t kOneThread = 32768;  // up to so many elements, one thread is faster than several

/// The type in which elements are staged: float where half types are converted in vectors, and math wants floats.
template <typename Operand, typename Stored = typename Operand::Stored>
using StagedAs =
    std::conditional_t<std::is_same_v<typename Operand::Value, typename Operand::Element>, Stored, staged_t<Stored>>;

/// What holds some elements of a tensor.
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

/// The math of `size` elements, which lie where `data` says.
template <typename Math, typename Size, typename... Operands, typename... Data>
[[gnu::always_inline]] inline void loop_over_elements(const Math math, Size size, Types<Operands...>, Data*... data) {
#ifndef __CUDACC__  // which does not know it
#pragma omp simd
#endif
  for (std::int64_t i = 0; i < size; ++i) call_element(math, Slot<Operands, Data>(data, i)...);
}

}  // namespace kjit::details
