// Pattern scatter on the CPU, multithreaded and vectorised.

#pragma once

#include <kjit/cpu.h>
#include <kjit/patterns/operands.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>
#include <kjit/detail/element_cpu.h>

#include <cstdint>
#include <type_traits>

namespace kjit::details {

/// A row of a tensor, staged in parts: the row's own, a table row, or the row of a per-column tensor.
template <typename Operand, Place kPlace = Operand::kPlace>
class RowStages {
 public:
  explicit RowStages(const Operand& tensor) : tensor_(tensor) {}

  [[gnu::always_inline]] void find(std::int64_t row, std::int64_t table_row, std::int64_t row_size) {
    begin_ = kPlace == Place::kTable ? table_row * row_size : kPlace == Place::kElement ? row * row_size : 0;
  }
  template <typename Size>
  [[gnu::always_inline]] StageOf<Operand> part(std::int64_t at, Size size, bool streams) const {
    return stage(tensor_, begin_ + at, size, streams);
  }

 private:
  Operand tensor_;
  std::int64_t begin_ = 0;
};

/// A per-row number, repeated for the elements of a part.
template <typename Operand>
class RowStages<Operand, Place::kRow> {
  using Held = std::remove_const_t<StagedAs<Operand>>;

 public:
  explicit RowStages(const Operand& tensor) : numbers_(tensor.data) {}

  [[gnu::always_inline]] void find(std::int64_t row, std::int64_t, std::int64_t row_size) {
    const Held number = numbers_ == nullptr ? Held{} : static_cast<Held>(numbers_[row]);
    for (std::int64_t i = 0; i < kStaged && i < row_size; ++i) held_[i] = number;
  }
  template <typename Size>
  [[gnu::always_inline]] RowStages& part(std::int64_t, Size, bool) {
    return *this;
  }
  const Held* data() const { return held_; }

 private:
  const typename Operand::Element* numbers_;
  alignas(64) Held held_[kStaged];
};

template <typename Math, typename Size, typename... Operands, typename... Stages>
[[gnu::always_inline]] inline void scatter_part(const Math& math, Size size, Types<Operands...> operands,
                                                Stages&&... stages) {
  loop_over_elements(math, size, operands, stages.data()...);
  (store_stage<Operands>(stages), ...);
}

/// The rows from `first` to `last`.
template <typename Math, typename Sizes, typename T, typename... Operands>
inline void scatter_range(const Math& math, const Sizes& sizes, std::int64_t first, std::int64_t last, bool streams,
                          const Index<T>& index, RowStages<Operands>... rows) {
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t wanted = index.data[row];
    if (static_cast<std::uint64_t>(wanted) >= static_cast<std::uint64_t>(sizes.table_size)) continue;  // or below 0
    (rows.find(row, wanted, sizes.row_size), ...);
    for_parts<kStaged, 16>(0, sizes.row_size, [&]<typename Size>(std::int64_t at, Size size) {
      scatter_part(math, size, Types<Operands...>(), rows.part(at, size, streams)...);
    });
  }
}

/// Calls `math.element` for each element of the rows whose index is in range.
template <typename Math, typename Sizes, typename T, typename... Operands>
void run_scatter(const Math& math, const Sizes& sizes, DLDevice, const Index<T>& index, const Operands&... tensors) {
  const std::int64_t numel = sizes.num_rows * sizes.row_size;
  bool streams = false;
  if constexpr ((kIsOnlyWritten<Operands> || ...)) streams = exceeds_caches<typename Operands::Element...>(numel);
  parallel_ranges(sizes.num_rows, 1, numel > kOneThread, [=](std::int64_t first, std::int64_t last) {
    scatter_range(math, sizes, first, last, streams, index, RowStages<Operands>(tensors)...);
  });
}

}  // namespace kjit::details
