// Pattern rowwise on the CPU, multithreaded and vectorised.

#pragma once

#include <kjit/cpu.h>
#include <kjit/patterns/operands.h>
#include <kjit/patterns/totals.h>
#include <kjit/streaming.h>

#include <kjit/detail/element.h>
#include <kjit/detail/element_cpu.h>
#include <kjit/detail/row_math.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace kjit::details {

constexpr std::int64_t kOneThreadOfRows = 24576;  // up to this number of elements, one thread is faster than several

/// The elements of a row, for the loops over it.
template <typename Operand, typename Stored>
struct RowElements {
  Stored* first;
  [[gnu::always_inline]] Slot<Operand, Stored> at(std::int64_t column) const { return {first, column}; }
};

/// One element that is read for the whole row.
template <typename Operand>
struct SameElement {
  ValueOf<Operand> value;
  [[gnu::always_inline]] Slot<Operand, const ValueOf<Operand>> at(std::int64_t) const { return {&value, 0}; }
};

/// The data of a tensor for one row after another: `elements()` for the loops over the row, and for per-row tensors
/// `of_row()`. Changed elements are in the tensor after `store()`.
template <typename Operand, Place kPlace = Operand::kPlace>
class RowCursor {
 public:
  RowCursor(const Operand& tensor, std::int64_t row_size, bool streams)
      : tensor_(tensor), stride_(row_size), stage_(row_size, streams) {
    if constexpr (Operand::kIsStrided) stride_ = tensor.stride;
  }
  void move(std::int64_t row) {
    data_ = stage_.move(Operand::kIsOptional && tensor_.data == nullptr ? nullptr : tensor_.data + row * stride_);
  }
  RowElements<Operand, StagedAs<Operand>> elements() const { return {data_}; }
  void store() {
    if constexpr (Operand::kIsWritten) stage_.store();
  }

 private:
  Operand tensor_;
  std::int64_t stride_;
  StagedRow<typename Operand::Stored, Operand::kIsRead> stage_;
  StagedAs<Operand>* data_ = nullptr;
};

template <typename Operand>
class RowCursor<Operand, Place::kColumn> {
 public:
  RowCursor(const Operand& tensor, std::int64_t row_size, bool) : stage_(row_size), data_(stage_.move(tensor.data)) {}
  void move(std::int64_t) {}
  RowElements<Operand, StagedAs<Operand>> elements() const { return {data_}; }
  void store() {}

 private:
  StagedRow<typename Operand::Stored, true> stage_;
  StagedAs<Operand>* data_;
};

template <typename Operand>
class RowCursor<Operand, Place::kRow> {
 public:
  RowCursor(const Operand& tensor, std::int64_t, bool) : tensor_(tensor) {}
  void move(std::int64_t row) { row_ = row; }
  Slot<Operand, typename Operand::Stored> of_row() const { return {tensor_.data, row_}; }
  SameElement<Operand> elements() const { return {of_row().value}; }
  void store() {}

 private:
  Operand tensor_;
  std::int64_t row_ = 0;
};

template <typename Rules, typename Math, typename... Elements>
[[gnu::always_inline]] inline typename Rules::Total term_at(const Math& math, std::int64_t column,
                                                            const Elements&... elements) {
  return call_term<Rules>(math, column, elements.at(column)...);
}

/// Whether a total consists of one number.
template <typename Total>
constexpr bool kIsOneNumber = sizeof(Total) == alignof(Total);

#ifdef __clang__  // it does not vectorise user-declared reductions
constexpr bool kHasReductions = false;
#else
constexpr bool kHasReductions = true;
#endif

/// Combines the terms of at most `kCount` elements at once.
template <typename Rules, int kCount, typename Size, typename Math, typename... Elements>
inline typename Rules::Total total_of_part(const Math& math, std::int64_t first, Size count,
                                           const Elements&... elements) {
  typename Rules::Total terms[kCount];
  for (std::int64_t i = 0; i < count; ++i) terms[i] = term_at<Rules>(math, first + i, elements...);
  return Rules::Total::combine_all(terms);
}

/// The total of the elements from `first` to `last`: accumulated in several independent lanes, combined at the end.
template <typename Rules, typename Math, typename... Elements>
[[gnu::always_inline]] inline typename Rules::Total total_of_chunk(const Math& math, std::int64_t first,
                                                                   std::int64_t last, const Elements&... elements) {
  using Total = typename Rules::Total;
  constexpr int kLanes = kIsOneNumber<Total> ? 32 : 8;  // 32 numbers are vectorised
  Total totals[kLanes];
  for (; first + kLanes <= last; first += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      totals[lane] = totals[lane].combine(term_at<Rules>(math, first + lane, elements...));
    }
  }
  for (int lane = 0; lane < last - first; ++lane) {
    totals[lane] = totals[lane].combine(term_at<Rules>(math, first + lane, elements...));
  }
  return combined_in_halves<kLanes>(totals, [](const Total& one, const Total& other) { return one.combine(other); });
}

/// The total of `row_size` elements.
template <typename Rules, typename Math, typename... Elements>
[[gnu::always_inline]] inline typename Rules::Total total_of_row(const Math math, std::int64_t row_size,
                                                                 const Elements... elements) {
  using Total = typename Rules::Total;
  if constexpr (std::is_arithmetic_v<Total>) {
    Total total{};
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < row_size; ++i) total = combined(total, term_at<Rules>(math, i, elements...));
    return total;
  } else if constexpr (kIsOneNumber<Total> && kHasReductions) {
    Total total{};
#pragma omp declare reduction(combine:Total : omp_out = omp_out.combine(omp_in)) initializer(omp_priv = Total{})
#pragma omp simd reduction(combine : total)
    for (std::int64_t i = 0; i < row_size; ++i) total = total.combine(term_at<Rules>(math, i, elements...));
    return total;
  } else if constexpr (CombinesAll<Total>) {
    constexpr std::int64_t kPart = 128, kSmaller = 32;
    constexpr int kParts = 16;  // parts in a group: adding few elements to the total of many loses digits
    Total total{}, group{};
    std::int64_t first = 0;
    for (int parts = 0; first + kPart <= row_size; first += kPart) {
      const std::integral_constant<std::int64_t, kPart> size;
      group = group.combine(total_of_part<Rules, kPart>(math, first, size, elements...));
      if (++parts == kParts) {
        total = total.combine(group);
        group = Total{};
        parts = 0;
      }
    }
    total = total.combine(group);
    const std::int64_t left = row_size - first;
    if (left > kSmaller) {
      total = total.combine(total_of_part<Rules, kPart>(math, first, left, elements...));
    } else if (left > 0) {
      total = total.combine(total_of_part<Rules, kSmaller>(math, first, left, elements...));
    }
    return total;
  } else {
    constexpr std::int64_t kChunk = 2048;  // elements: adding few of them to the total of many loses digits
    Total total{};
    for (std::int64_t first = 0; first < row_size; first += kChunk) {
      const std::int64_t last = first + kChunk < row_size ? first + kChunk : row_size;
      total = total.combine(total_of_chunk<Rules>(math, first, last, elements...));
    }
    return total;
  }
}

/// Calls `math.element` for `row_size` elements.
template <typename Rules, typename Math, typename... Elements>
[[gnu::always_inline]] inline void do_row_elements(const Math math, const typename Rules::Result of_row,
                                                   std::int64_t row_size, const Elements... elements) {
#pragma omp simd
  for (std::int64_t i = 0; i < row_size; ++i) call_row_element<Rules>(math, of_row, i, elements.at(i)...);
}

template <typename Rules, typename Math, std::size_t... kAll, std::size_t... kTerm, std::size_t... kRow,
          std::size_t... kElement, typename... Operands>
void do_rows(const Math& math, std::int64_t first, std::int64_t last, std::int64_t row_size, bool streams,
             std::index_sequence<kAll...>, std::index_sequence<kTerm...>, std::index_sequence<kRow...>,
             std::index_sequence<kElement...>, const Operands&... tensors) {
  Pack<RowCursor<Operands>...> cursors{{RowCursor<Operands>(tensors, row_size, streams)}...};
  for (std::int64_t row = first; row < last; ++row) {
    (get<kAll>(cursors).move(row), ...);
    const typename Rules::Total total = total_of_row<Rules>(math, row_size, get<kTerm>(cursors).elements()...);
    [[maybe_unused]] const typename Rules::Result of_row =
        call_row<Rules>(math, total, row_size, get<kRow>(cursors).of_row()...);
    if constexpr (Rules::kHasElement) {
      do_row_elements<Rules>(math, of_row, row_size, get<kElement>(cursors).elements()...);
      (get<kAll>(cursors).store(), ...);
    }
  }
}

/// The bytes that are read and written for an element of a row, without per-column and per-row tensors.
template <typename... Operands>
constexpr std::size_t kBytesOfElement =
    (0 + ... + (Operands::kPlace == Place::kElement ? sizeof(typename Operands::Element) : 0));

/// Reduces each of `num_rows` rows of `row_size` elements to a total, and computes the results.
template <typename Math, typename... Operands>
void run_rowwise(const Math& math, std::int64_t num_rows, std::int64_t row_size, DLDevice, const Operands&... tensors) {
  using Rules = RowMath<Math, Operands...>;
  constexpr bool kStreams = ((kIsOnlyWritten<Operands> && !kIsOfRow<Operands>) || ...);
  const std::int64_t numel = num_rows * row_size;
  bool streams = false;
  if constexpr (kStreams) streams = exceeds_caches<char[kBytesOfElement<Operands...>]>(numel);
  parallel_ranges(num_rows, 1, numel > kOneThreadOfRows, [=](std::int64_t first, std::int64_t last) {
    do_rows<Rules>(math, first, last, row_size, streams, std::index_sequence_for<Operands...>(),
                   typename Rules::OfTerm(), typename Rules::OfRow(), typename Rules::OfElement(), tensors...);
  });
}

}  // namespace kjit::details
