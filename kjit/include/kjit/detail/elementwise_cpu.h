// Pattern elementwise on the CPU: on its cores and vector units.

#pragma once

#include <kjit/cpu.h>
#include <kjit/patterns/operands.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>
#include <kjit/detail/element_cpu.h>

#include <cstdint>

namespace kjit::details {

/// Whether a tensor that is only written begins where a line of the caches does, as what goes past them has to.
template <typename Operand>
bool may_stream(const Operand& tensor) {
  if constexpr (kIsOnlyWritten<Operand>) return begin_lines(tensor.data);
  return true;
}

template <typename Math, typename Size, typename... Operands>
inline void do_elements(const Math& math, Size size, Types<Operands...> operands, StageOf<Operands>&&... stages) {
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
