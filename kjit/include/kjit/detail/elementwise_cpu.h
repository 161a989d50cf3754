// Pattern elementwise on the CPU: on its cores and vector units.

#pragma once

#include <kjit/cpu.h>
#include <kjit/patterns/operands.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>

#include <cstdint>
#include <type_traits>

namespace kjit::details {

constexpr std::int64_t kOneThread = 32768;  // up to so many elements, one thread is faster than several

/// What holds some elements of a tensor: where half types are converted in vectors, as floats.
template <typename Operand, typename Stored = typename Operand::Stored>
using StageOf = std::conditional_t<Operand::kIsOptional, StagedOptional<Stored>, Staged<Stored, Operand::kIsRead>>;

template <typename Operand, typename Size>
StageOf<Operand> stage(const Operand& tensor, std::int64_t at, Size size, bool streams) {
  if constexpr (Operand::kIsOptional) {
    return {tensor.data == nullptr ? nullptr : tensor.data + at, size};
  } else if constexpr (Operand::kIsRead) {
    return {tensor.data + at, size};
  } else {
    return {tensor.data + at, size, streams};
  }
}

template <typename Operand>
void store_stage(StageOf<Operand>& stage) {
  if constexpr (Operand::kIsWritten) stage.store();
}

template <typename Operand>
constexpr bool kIsOnlyWritten = Operand::kIsWritten && !Operand::kIsRead;

/// Whether a tensor that is only written begins where a line of the caches does, as what goes past them has to.
template <typename Operand>
bool may_stream(const Operand& tensor) {
  if constexpr (kIsOnlyWritten<Operand>) return begin_lines(tensor.data);
  return true;
}

template <typename Math, typename Size, typename... Operands, typename... Data>
inline void loop_over_elements(const Math math, Size size, Types<Operands...>, Data*... data) {
#ifndef __CUDACC__  // which does not know it
#pragma omp simd
#endif
  for (std::int64_t i = 0; i < size; ++i) call_element(math, Slot<Operands, Data>(data, i)...);
}

template <typename Math, typename Size, typename... Operands>
inline void do_elements(const Math& math, Size size, Types<Operands...> operands, StageOf<Operands>... stages) {
  loop_over_elements(math, size, operands, stages.data()...);
  (store_stage<Operands>(stages), ...);
}

/// Calls `math.element` for each of `numel` elements.
template <typename Math, typename... Operands>
void run_elementwise(const Math& math, std::int64_t numel, DLDevice, const Operands&... tensors) {
  bool streams = false;
  if constexpr ((kIsOnlyWritten<Operands> || ...)) {
    streams = exceeds_caches<typename Operands::Element...>(numel) && (may_stream(tensors) && ...);
  }
  parallel_ranges(numel, kStaged, numel > kOneThread, [=](std::int64_t first, std::int64_t last) {
    for_staged<typename Operands::Element...>(first, last, streams, [=]<typename Size>(std::int64_t at, Size size) {
      do_elements(math, size, Types<Operands...>(), stage(tensors, at, size, streams)...);
    });
  });
}

}  // namespace kjit::details
