// Pattern elementwise on the CPU, multithreaded and vectorised.

#pragma once

#include <kjit/cpu.h>
#include <kjit/patterns/operands.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>
#include <kjit/detail/element_cpu.h>

#include <cstdint>

namespace kjit::details {

/// Whether a write-only tensor begins at a cache line, as streaming needs.
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

/// A tensor from a given row on.
template <typename Operand>
[[gnu::always_inline]] inline Operand from_row(Operand tensor, std::int64_t row, std::int64_t row_size) {
  if constexpr (Operand::kIsStrided) row_size = tensor.stride;
  if (tensor.data != nullptr) tensor.data += row * row_size;
  return tensor;
}

/// The same for strided rows.
template <typename Math, typename... Operands>
void run_elementwise_rows(const Math& math, std::int64_t num_rows, std::int64_t row_size, DLDevice,
                          const Operands&... tensors) {
  constexpr std::int64_t kPart = 16 * kStaged;  // of a row, so that threads can share one
  const std::int64_t parts = (row_size + kPart - 1) / kPart;
  parallel_ranges(num_rows * parts, 1, num_rows * row_size > kOneThread, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n < last; ++n) {
      const std::int64_t row = n / parts, from = n % parts * kPart;
      const std::int64_t to = from + kPart < row_size ? from + kPart : row_size;
      for_staged<typename Operands::Element...>(from, to, false, [=]<typename Size>(std::int64_t at, Size size) {
        do_elements(math, size, Types<Operands...>(), stage(from_row(tensors, row, row_size), at, size, false)...);
      });
    }
  });
}

}  // namespace kjit::details
