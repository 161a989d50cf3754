// Pattern gather on the CPU, multithreaded and vectorised.

#pragma once

#include <kjit/cpu_rows.h>
#include <kjit/patterns/operands.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>
#include <kjit/detail/element_cpu.h>
#include <kjit/detail/vectors.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

namespace kjit::details {

/// A placeholder for full tensors among the operands of `RowRuns`: they are addressed by the index of the result.
struct NoRow {
  struct Data {
    std::nullptr_t from(std::int64_t) const { return nullptr; }
  };
  struct Reader {
    [[gnu::always_inline]] Data operator()(std::int64_t) const { return {}; }
  };
  template <bool kStreams, typename Runs>
  Reader reader(const Runs&) const {
    return {};
  }
  template <typename Runs>
  void hold(const row_details::Packed&, const Runs&) const {}
  template <typename Runs>
  Data held(const row_details::Packed&, const Runs&) const {
    return {};
  }
};

template <typename Operand, typename Index, Place kPlace = Operand::kPlace>
struct RowsOf {
  using type = NoRow;
};
template <typename Operand, typename Index>
struct RowsOf<Operand, Index, Place::kTable> {
  using type = TableRow<typename Operand::Element, Index>;
};
template <typename Operand, typename Index>
struct RowsOf<Operand, Index, Place::kColumn> {
  using type = ColumnRow<typename Operand::Element>;
};
template <typename Operand, typename Index>
struct RowsOf<Operand, Index, Place::kRow> {
  using type = NumberRow<typename Operand::Element, std::remove_const_t<StagedAs<Operand>>>;
};

/// The rows of a tensor that match the rows of the results.
template <typename Operand, typename T, typename Rows = typename RowsOf<Operand, T>::type>
Rows rows_of(const Operand& tensor, std::int64_t table_size, const Index<T>& index) {
  if constexpr (kIsIn<Operand, Place::kTable>) {
    return Rows(tensor.data, table_size, index.data);
  } else if constexpr (kIsIn<Operand, Place::kColumn, Place::kRow>) {
    return Rows(tensor.data);
  } else {
    return Rows();
  }
}

/// Elements that are read in place.
template <typename T>
struct Unstaged {
  T* first;
  T* data() const { return first; }
};

/// The elements of a tensor for a part of a row: of a full tensor those from `at` on, of others those at `data`. The
/// parts of the tensor that is written last (`kIsLast`) begin at cache lines.
template <bool kIsLast, typename Operand, typename Size, typename Beside, typename Data>
[[gnu::always_inline]] inline auto stage_beside(const Operand& tensor, std::int64_t at, Size size, const Beside& beside,
                                                Data* data) {
  if constexpr (kIsIn<Operand, Place::kElement>) {
    if constexpr (kIsLast) {
      return stage(tensor, at, size, beside.whole_lines);
    } else {
      return stage(tensor, at, size, beside.streams);
    }
  } else if constexpr (kIsIn<Operand, Place::kRow> || std::is_same_v<ValueOf<Operand>, typename Operand::Element>) {
    return Unstaged<Data>{data};
  } else {
    return StageOf<Operand>(data, size);
  }
}
template <bool kIsLast, typename Operand, typename Size, typename Beside>
[[gnu::always_inline]] inline auto stage_beside(const Operand& tensor, std::int64_t at, Size size, const Beside& beside,
                                                std::nullptr_t) {
  return stage_beside<kIsLast>(tensor, at, size, beside, static_cast<const void*>(nullptr));
}

template <typename Math, typename Size, typename... Operands, typename... Stages>
[[gnu::always_inline]] inline void do_part(const Math& math, Size size, Types<Operands...> operands,
                                           Stages&&... stages) {
  loop_over_elements(math, size, operands, stages.data()...);
  (store_stage<Operands>(stages), ...);
}

/// The position of the last tensor that is written.
template <typename... Operands>
constexpr std::size_t last_written() {
  std::size_t at = 0, last = 0;
  ((last = Operands::kIsWritten ? at : last, ++at), ...);
  return last;
}

template <std::size_t kWanted, std::size_t kAt = 0, typename Operand, typename... Operands>
const auto& tensor_at(const Operand& tensor, const Operands&... others) {
  if constexpr (kAt == kWanted) {
    return tensor;
  } else {
    return tensor_at<kWanted, kAt + 1>(others...);
  }
}

/// Whether the tensors allow results to be unchanged rows of the table: one table and one result of the same type.
template <typename... Operands>
constexpr bool kMayMove = false;
template <typename T, typename U>
constexpr bool kMayMove<T, U> =
    std::is_same_v<typename T::Element, typename U::Element> &&
    ((kIsIn<T, Place::kTable> && kIsOnlyWritten<U>) || (kIsIn<U, Place::kTable> && kIsOnlyWritten<T>));

/// Calls math without members for one element of the table.
template <typename Math, typename First, typename Second>
inline void move_element(const typename First::Element& from, typename First::Element& to) {
  if constexpr (kIsIn<First, Place::kTable>) {
    call_element(Math{}, Slot<First, const typename First::Element>(&from, 0),
                 Slot<Second, typename First::Element>(&to, 0));
  } else {
    call_element(Math{}, Slot<First, typename First::Element>(&to, 0),
                 Slot<Second, const typename First::Element>(&from, 0));
  }
}
template <typename Math, typename... Operands>
[[gnu::always_inline]] inline bool only_moves() {
  if constexpr (std::is_empty_v<Math>) {
    using Element = typename std::tuple_element_t<0, std::tuple<Operands...>>::Element;
    return only_copies<Element, move_element<Math, Operands...>>();
  }
  return false;
}

/// A tensor, and its rows that match the rows of the results.
template <typename Operand, typename T>
struct GatheredRows {
  Operand tensor;
  typename RowsOf<Operand, T>::type rows;
};

/// The rows from `first` to `last`.
template <std::size_t... kAt, typename Math, typename Streams, typename T, typename... Operands>
[[gnu::always_inline]] inline void gather_range(std::index_sequence<kAt...>, const Math& math, std::int64_t first,
                                                std::int64_t last, std::int64_t row_size, Streams streams,
                                                GatheredRows<Operands, T>... gathered) {
  constexpr std::size_t kLast = last_written<Operands...>();
  constexpr bool kOnlyWrites = ((!kIsIn<Operands, Place::kElement> || kIsOnlyWritten<Operands>) && ...);
  RowRuns runs(first, last, row_size, tensor_at<kLast>(gathered.tensor...).data, streams, gathered.rows...);
  const auto part = [&]<typename Size, typename Beside>(std::int64_t at, Size size, const Beside& beside) {
    do_part(math, size, Types<Operands...>(),
            stage_beside<kAt == kLast>(gathered.tensor, at, size, beside, std::get<kAt>(beside.data))...);
  };
  if constexpr (kOnlyWrites) {
    runs.write_parts(part);
  } else {
    runs.for_parts(part);
  }
}

/// The bytes that are read and written for an element of the results, without per-column and per-row tensors.
template <typename... Operands>
constexpr std::size_t kMovedBytes =
    (0 + ... + (kIsIn<Operands, Place::kElement, Place::kTable> ? sizeof(typename Operands::Element) : 0));

/// Calls `math.element` for each element of the rows.
template <typename Math, typename Sizes, typename T, typename... Operands>
void run_gather(const Math& math, const Sizes& sizes, DLDevice, const Index<T>& index, const Operands&... tensors) {
  constexpr bool kStreams = (kIsOnlyWritten<Operands> || ...);
  std::conditional_t<kStreams, bool, std::false_type> streams{};
  if constexpr (kStreams) streams = exceeds_caches<char[kMovedBytes<Operands...>]>(sizes.num_rows * sizes.row_size);
  const std::int64_t num_rows = sizes.num_rows, row_size = sizes.row_size, table_size = sizes.table_size;
  parallel_ranges(num_rows, 1, num_rows * row_size > kOneThread, [=](std::int64_t first, std::int64_t last) {
    if constexpr (kMayMove<Operands...>) {
      // If the math only copies, and results are not streamed, whole rows are copied.
      if (only_moves<Math, Operands...>() && !static_cast<bool>(streams)) {
        constexpr std::size_t kTable = kIsIn<std::tuple_element_t<0, std::tuple<Operands...>>, Place::kTable> ? 0 : 1;
        auto rows = rows_of(tensor_at<kTable>(tensors...), table_size, index);
        RowRuns runs(first, last, row_size, tensor_at<1 - kTable>(tensors...).data, streams, rows);
        return runs.move_parts(true, [](auto, auto, const auto&) {});
      }
    }
    gather_range(std::index_sequence_for<Operands...>(), math, first, last, row_size, streams,
                 GatheredRows<Operands, T>{tensors, rows_of(tensors, table_size, index)}...);
  });
}

}  // namespace kjit::details
