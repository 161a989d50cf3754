// The kernels of pattern rowwise on a GPU: device code only; <kjit/detail/rowwise_gpu.cuh> launches them.
//
// - `rowwise`: a row is read once, in aligned vectors, and held in the registers of the threads that share it.
// - `rowwise_unaligned`: rows of any length and alignment; the part that does not fit into registers is read twice.

#pragma once

#include <kjit/patterns/operands.h>
#include <kjit/patterns/totals.h>
#include <kjit/detail/row_memory.cuh>
#include <kjit/device.cuh>

#include <kjit/detail/element.h>
#include <kjit/detail/row_math.h>
#include <kjit/detail/row_plan.cuh>
#include <kjit/detail/row_reduce.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace kjit {

namespace details {

/// The distance between consecutive rows of a tensor, in elements.
template <typename Operand>
KJIT_DEVICE std::int64_t row_stride(const Operand& tensor, std::int64_t row_size) {
  if constexpr (Operand::kIsStrided) {
    return tensor.stride;
  } else {
    return row_size;
  }
}

/// The registers of a thread for one tensor: `kParts` vectors of an input's row, `kColumns` vectors of a per-column
/// tensor, one vector of a result, or the one element of a per-row tensor.
template <typename Operand, int kVec, int kParts, int kColumns>
struct RowVectors {
  using Element = typename Operand::Element;
  using Stored = typename Operand::Stored;
  static constexpr int kCount = kIsInput<Operand> ? kParts : kIsIn<Operand, Place::kColumn> ? kColumns : 1;
  using Vector = device::AlignedVector<Element, kIsOfRow<Operand> ? 1 : kVec>;

  Stored* data;  // the beginning of the row if the tensor has rows, else of the tensor
  Element number;
  Vector vectors[kCount];

  KJIT_DEVICE void begin(const Operand& tensor, std::int64_t row, std::int64_t row_size) {
    data = tensor.data;
    if constexpr (kIsIn<Operand, Place::kElement>) {
      if (!Operand::kIsOptional || data != nullptr) data += row * row_stride(tensor, row_size);
    }
  }
  /// Loads the element of a per-row tensor.
  KJIT_DEVICE void load_number(std::int64_t row) {
    if constexpr (kIsOfRow<Operand> && Operand::kIsOptional) {
      number = data == nullptr ? Element{} : data[row];
    } else if constexpr (kIsOfRow<Operand> && Operand::kIsRead) {
      number = data[row];
    }
  }
  KJIT_DEVICE void store_number(std::int64_t row) const {
    if constexpr (kIsResultOfRow<Operand>) data[row] = number;
  }

  /// Prefetches the beginning of the row that begins `elements` elements after this one into L2.
  template <int kStaying>
  KJIT_DEVICE void prefetch(const RowPlan& plan, std::int64_t elements, int lane) const {
    if constexpr (kIsInput<Operand>) {
      if (Operand::kIsOptional && data == nullptr) return;
      device::row::fetch_ahead<kVec, kStaying, kParts>(data + elements, plan.row_size, plan.fetched, lane,
                                                       plan.threads);
    }
  }

  /// Loads the `i`-th vector, which begins at element `at` of the row.
  template <bool kStreaming>
  KJIT_DEVICE void load(int i, int at, bool fetched) {
    if constexpr (kIsInput<Operand>) {
      device::row::load<kStreaming, Operand::kIsOptional>(vectors[i], data, at, fetched);
    }
  }
  KJIT_DEVICE void load_column(int i, int at) {
    if constexpr (kIsIn<Operand, Place::kColumn>) {
      device::row::load<false, Operand::kIsOptional>(vectors[i % kCount], data, at);
    }
  }
  KJIT_DEVICE void store(int i, int at) const {
    if constexpr (kIsResultOfElement<Operand>) device::row::store_streaming(vectors[i % kCount], data + at);
  }

  /// Starts an asynchronous copy of a vector of columns to a slot in shared memory; after `await_copies`, `take_column`
  /// loads it from there.
  KJIT_DEVICE void put_column(int slot, int at) const {
    if constexpr (kIsIn<Operand, Place::kColumn>) {
      if (!Operand::kIsOptional || data != nullptr) device::row::SharedSlot<Element, kVec>(slot).begin(data + at);
    }
  }
  KJIT_DEVICE void take_column(int i, int slot) {
    if constexpr (kIsIn<Operand, Place::kColumn>) {
      if (Operand::kIsOptional && data == nullptr) return vectors[i % kCount].fill(Element{});
      device::row::SharedSlot<Element, kVec>(slot).take(vectors[i % kCount]);
    }
  }

  KJIT_DEVICE Slot<Operand, Element> slot(int i, int j) {
    if constexpr (kIsOfRow<Operand>) {
      return {&number, 0};
    } else {
      return {vectors[i % kCount].data(), j};
    }
  }
};

/// The number of per-column tensors before tensor `kAt`, which determines its slots in shared memory.
template <std::size_t kAt, typename... Operands>
constexpr int column_number() {
  constexpr bool kIsColumn[] = {kIsIn<Operands, Place::kColumn>...};
  int number = 0;
  for (std::size_t i = 0; i < kAt; ++i) number += kIsColumn[i] ? 1 : 0;
  return number;
}

/// The total of the elements of a vector.
template <typename Rules, int kVec, typename Math, typename Index, typename... Held>
KJIT_DEVICE typename Rules::Total vector_total(const Math& math, int i, Index at, Held&... held) {
  typename Rules::Total terms[kVec];
#pragma unroll
  for (int j = 0; j < kVec; ++j) terms[j] = call_term<Rules>(math, at + j, held.slot(i, j)...);
  return all_combined(terms);
}

/// Computes the results of the elements of a vector.
template <typename Rules, int kVec, typename Math, typename Index, typename... Held>
KJIT_DEVICE void vector_results(const Math& math, const typename Rules::Result& of_row, int i, Index at,
                                Held&... held) {
#pragma unroll
  for (int j = 0; j < kVec; ++j) call_row_element<Rules>(math, of_row, at + j, held.slot(i, j)...);
}

/// The work of a thread on a row in registers: all loads are issued before the first term. Per-column tensors are held
/// in registers, too, if these suffice; else the last `kLate` vectors of each are copied through shared memory while
/// the total is exchanged, and the others are loaded two at a time.
template <typename Rules, int kVec, int kParts, bool kEven, bool kLong, std::size_t... kAll, std::size_t... kOfTerm,
          std::size_t... kOfRow, std::size_t... kOfElement, typename Math, typename... Operands>
KJIT_DEVICE void row_in_registers(std::index_sequence<kAll...>, std::index_sequence<kOfTerm...>,
                                  std::index_sequence<kOfRow...>, std::index_sequence<kOfElement...>, const Math& math,
                                  const RowPlan& plan, const Operands&... tensors) {
  using Tuning = RowTuning<Rules, Operands...>;
  constexpr bool kHoldsColumns = Tuning::holds_columns(kParts);
  constexpr int kLate = kLong ? Tuning::late_columns(kParts) : 0;
  // Vectors of per-column tensors loaded at a time if they are not held: with a total of several numbers, two of each
  // would not fit into the registers.
  constexpr bool kIsTight = sizeof(typename Rules::Total) > 8 && (kLong || KJIT_CUDA_ARCH >= 1000);
  constexpr int kColumns = kParts > 1 && !kIsTight ? 2 : 1;
  // Short rows share cache lines with their neighbours, so none of them are marked evict-last in L2.
  constexpr bool kIsShort = !kEven && !kLong;
  constexpr bool kStreaming = !kIsShort;
  constexpr int kStaying = kIsShort ? 0 : fetched_parts(kParts, Tuning::kInputs);

  const RowTeam<kLong && (kMaxCluster > 1), typename Rules::Total> team(plan.threads);
  const std::int64_t wanted = team.row;
  const int lane = team.lane;
  // Threads after the last row write nothing, but take part in the warp's reductions.
  const std::int64_t at_row = kLong || wanted < plan.num_rows ? wanted : plan.num_rows - 1;
  Pack<RowVectors<Operands, kVec, kParts, kHoldsColumns ? kParts : kColumns>...> held;
  (get<kAll>(held).begin(tensors, at_row, plan.row_size), ...);
  if (!kIsShort && at_row < plan.ahead) {  // later rows are prefetched while other rows are written
    (get<kAll>(held).template prefetch<kStaying>(plan, 0, lane), ...);
  }
  const int row_size = static_cast<int>(plan.row_size);
  const int next = plan.threads * kVec, first = lane * kVec;

  team.await();
  device::PDLBegin();  // the previous kernel has ended: before this, nothing is read or written
  (get<kAll>(held).load_number(at_row), ...);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int i = kEven ? (part + kStaying) % kParts : part;  // prefetched vectors last: they arrive sooner
    const int at = first + i * next;
    if (!kEven && at >= row_size) break;
    (get<kAll>(held).template load<kStreaming>(i, at, i < kStaying), ...);
    if constexpr (kHoldsColumns) (get<kAll>(held).load_column(i, at), ...);
  }
  typename Rules::Total total{};
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int at = first + i * next;
    if (!kEven && at >= row_size) break;
    total = combined(total, vector_total<Rules, kVec>(math, i, at, get<kOfTerm>(held)...));
  }
  total = team.begin(total);
  const auto fetch_next = [&] {
    if (at_row + plan.ahead >= plan.num_rows) return;
    (get<kAll>(held).template prefetch<kStaying>(plan, plan.ahead * row_stride(tensors, plan.row_size), lane), ...);
  };
  if constexpr (!kIsShort) fetch_next();
#pragma unroll
  for (int i = 0; i < kLate; ++i) {
    const int at = first + (kParts - kLate + i) * next;
    if (!kEven && at >= row_size) break;
    (get<kAll>(held).put_column(column_number<kAll, Operands...>() * kLate + i, at), ...);
  }
  if constexpr (!kHoldsColumns && Rules::kHasElement) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int at = first + i * next;
      if (!kEven && at >= row_size) break;
      (get<kAll>(held).load_column(i, at), ...);
    }
  }
  total = team.finish(total);
  const typename Rules::Result of_row = call_row<Rules>(math, total, row_size, get<kOfRow>(held).slot(0, 0)...);
  if (wanted != at_row) return;
  if (lane == 0) (get<kAll>(held).store_number(at_row), ...);
  if constexpr (Rules::kHasElement) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int at = first + i * next;
      if (!kEven && at >= row_size) break;
      if (kLate > 0 && i >= kParts - kLate) {
        if (i == kParts - kLate) device::row::await_copies();
        (get<kAll>(held).take_column(i, column_number<kAll, Operands...>() * kLate + i - (kParts - kLate)), ...);
      } else if (!kHoldsColumns && i > 0 && i % kColumns == 0) {
#pragma unroll
        for (int k = 0; k < kColumns; ++k) {
          const int other = at + k * next;
          if (!kEven && other >= row_size) break;
          (get<kAll>(held).load_column(i + k, other), ...);
        }
      }
      vector_results<Rules, kVec>(math, of_row, i, at, get<kOfElement>(held)...);
      (get<kAll>(held).store(i, at), ...);
    }
  }
  if constexpr (kIsShort) fetch_next();  // earlier, it would delay the rows after which there is none to prefetch
}

/// The registers of a thread for a tensor with unaligned rows: `kParts` vectors of a chunk of the row, as words, and
/// the vector that it computes with. If vectors were split into elements as they are loaded, the thread would wait for
/// each load.
template <typename Operand, int kVec, int kParts>
struct UnalignedVectors : RowVectors<Operand, kVec, 1, 1> {
  using Base = RowVectors<Operand, kVec, 1, 1>;
  using Base::data;
  using typename Base::Element;
  using Word = device::row::details::Word<sizeof(Element) * kVec>;

  Word words[kIsInput<Operand> ? kParts : 1];
  device::AlignedVector<Element, 1> single;  // an element before the first vector of the row or after the last

  /// Loads the vectors of a chunk that begin at elements `first`, `first + next`, ..., and before `end`. `kIsFull`: all
  /// `kParts` of them do.
  template <bool kIsFull>
  KJIT_DEVICE void load_chunk(int first, int next, int end) {
    if constexpr (kIsInput<Operand>) {
      // Unaligned vectors are copied first, so that the unrolled loop is compiled only once.
      const bool is_missing = Operand::kIsOptional && data == nullptr;
      const Element* from = data + first;
      int step = next;
      Word copies[kParts];
      if (is_missing || reinterpret_cast<std::uintptr_t>(from) % sizeof(Word) != 0) {
#pragma unroll 1
        for (int i = 0; i < kParts; ++i) {
          const int at = first + i * next;
          if (!kIsFull && at >= end) break;
          typename Base::Vector vector;
          vector.fill(Element{});
          if (!is_missing) vector = elements(at);
          std::memcpy(&copies[i], vector.data(), sizeof(Word));
        }
        from = reinterpret_cast<const Element*>(copies);
        step = kVec;
      }
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        if (!kIsFull && first + i * next >= end) break;
        words[i] = *reinterpret_cast<const Word*>(from + i * step);
      }
    }
  }
  KJIT_DEVICE void load_single(int at) {
    if constexpr (kIsInput<Operand> || kIsIn<Operand, Place::kColumn>) {
      device::row::load<false, Operand::kIsOptional>(single, data, at);
    }
  }
  KJIT_DEVICE void store_single(int at) const {
    if constexpr (kIsResultOfElement<Operand>) device::row::store_streaming(single, data + at);
  }
  KJIT_DEVICE Slot<Operand, Element> single_slot() {
    if constexpr (kIsOfRow<Operand>) {
      return this->slot(0, 0);
    } else {
      return {single.data(), 0};
    }
  }
  /// Makes the `i`-th vector of the chunk the one to compute with.
  KJIT_DEVICE void take(int i) {
    if constexpr (kIsInput<Operand>) std::memcpy(this->vectors[0].data(), &words[i], sizeof(Word));
  }
  /// Loads the elements of a per-column tensor for the vector that begins at element `at`.
  KJIT_DEVICE void load_columns(int at) {
    if constexpr (kIsIn<Operand, Place::kColumn>) {
      if (Operand::kIsOptional && data == nullptr) return this->vectors[0].fill(Element{});
      this->vectors[0] = elements(at);
    }
  }
  /// Stores the vector that begins at element `at`. `kMayDiffer`: its alignment may differ from the leading tensor's.
  template <bool kMayDiffer>
  KJIT_DEVICE void store_vector(int at) const {
    if constexpr (kIsResultOfElement<Operand> && kMayDiffer) {
      device::row::store_unaligned(this->vectors[0], data + at);
    } else if constexpr (kIsResultOfElement<Operand>) {
      device::row::store_streaming(this->vectors[0], data + at);
    }
  }

 private:
  KJIT_DEVICE typename Base::Vector elements(int at) const {
    typename Base::Vector vector;
#pragma unroll
    for (int j = 0; j < kVec; ++j) vector[j] = data[at + j];
    return vector;
  }
};

/// The number of elements of a row before the first one that is aligned to a vector in the leading tensor, which is the
/// first result, or the first input if no result has rows.
template <int kVec, typename... Operands, typename... Held>
KJIT_DEVICE int elements_ahead(const Held&... held) {
  constexpr bool kHasResult = (kIsResultOfElement<Operands> || ...);
  std::uintptr_t first = 0;  // the address of its row, in elements
  ((first = first == 0 && (kHasResult ? kIsResultOfElement<Operands> : kIsInput<Operands>)
                ? reinterpret_cast<std::uintptr_t>(held.data) / sizeof(typename Operands::Element)
                : first),
   ...);
  return static_cast<int>(-first & (kVec - 1));
}

/// The work of a thread on unaligned rows: chunks of `kParts` vectors, aligned in the leading tensor, and at most one
/// of the single elements before the row's first vector and after its last. Totals are computed from the first chunk to
/// the last, results in reverse order: the last chunk is still in registers, the others are read again.
template <typename Rules, int kVec, int kParts, std::size_t... kAll, std::size_t... kOfTerm, std::size_t... kOfRow,
          std::size_t... kOfElement, typename Math, typename... Operands>
KJIT_DEVICE void unaligned_row(std::index_sequence<kAll...>, std::index_sequence<kOfTerm...>,
                               std::index_sequence<kOfRow...>, std::index_sequence<kOfElement...>, const Math& math,
                               const RowPlan& plan, const Operands&... tensors) {
  constexpr bool kMayDiffer = (0 + ... + static_cast<int>(kIsResultOfElement<Operands>)) > 1;
  const RowTeam<(kMaxCluster > 1), typename Rules::Total> team(plan.threads);
  const std::int64_t wanted = team.row;
  const int lane = team.lane;
  const std::int64_t at_row = wanted < plan.num_rows ? wanted : plan.num_rows - 1;
  const int row_size = static_cast<int>(plan.row_size);
  Pack<UnalignedVectors<Operands, kVec, kParts>...> held;
  (get<kAll>(held).begin(tensors, at_row, row_size), ...);
  const int head = elements_ahead<kVec, Operands...>(get<kAll>(held)...);
  const int whole = row_size > head ? (row_size - head) & -kVec : 0;
  const int end = head + whole, next = plan.threads * kVec, begin = head + lane * kVec;
  const int single_at = lane < head ? lane : lane + whole;
  const bool has_single = kVec > 1 && single_at < row_size;
  team.await();
  device::PDLBegin();  // the previous kernel has ended: before this, nothing is read or written
  (get<kAll>(held).load_number(at_row), ...);

  typename Rules::Total total{};
  if (has_single) (get<kAll>(held).load_single(single_at), ...);
  int first = begin;
  while (true) {
    (get<kAll>(held).template load_chunk<false>(first, next, end), ...);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int at = first + i * next;
      if (at >= end) break;
      (get<kAll>(held).take(i), ...);
      if constexpr (Rules::kTermReadsColumns) (get<kAll>(held).load_columns(at), ...);
      total = combined(total, vector_total<Rules, kVec>(math, 0, at, get<kOfTerm>(held)...));
    }
    if (first + kParts * next >= end) break;
    first += kParts * next;
  }
  // Per-column elements are loaded before they are needed, those of the first vector while the total is exchanged.
  if (Rules::kHasElement && first < end) (get<kAll>(held).load_columns(first), ...);
  if (has_single) total = combined(total, call_term<Rules>(math, single_at, get<kOfTerm>(held).single_slot()...));
  total = team.begin(total);
  if (at_row + plan.ahead < plan.num_rows) {
    (get<kAll>(held).template prefetch<0>(plan, plan.ahead * row_stride(tensors, row_size), lane), ...);
  }
  total = team.finish(total);
  const typename Rules::Result of_row = call_row<Rules>(math, total, row_size, get<kOfRow>(held).slot(0, 0)...);
  if (wanted != at_row) return;
  if (lane == 0) (get<kAll>(held).store_number(at_row), ...);
  if constexpr (Rules::kHasElement) {
    if (has_single) {
      call_row_element<Rules>(math, of_row, single_at, get<kOfElement>(held).single_slot()...);
      (get<kAll>(held).store_single(single_at), ...);
    }
    while (true) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int at = first + i * next;
        if (at >= end) break;
        if (i > 0) (get<kAll>(held).load_columns(at), ...);
        (get<kAll>(held).take(i), ...);
        vector_results<Rules, kVec>(math, of_row, 0, at, get<kOfElement>(held)...);
        (get<kAll>(held).template store_vector<kMayDiffer>(at), ...);
      }
      if (first == begin) break;
      first -= kParts * next;
      (get<kAll>(held).template load_chunk<true>(first, next, end), ...);
      (get<kAll>(held).load_columns(first), ...);
    }
  }
}

}  // namespace details

namespace kernels {

/// Rows held in registers, up to `kParts` vectors in each thread. `kEven`: all threads hold exactly `kParts`; `kLong`:
/// a cluster may share a row.
template <typename Math, int kParts, bool kEven, bool kLong, typename... Operands>
__global__ void __launch_bounds__(details::RowTuningOf<Math, Operands...>::max_block(!kEven && !kLong),
                                  details::RowTuningOf<Math, Operands...>::min_blocks(!kEven && !kLong))
    rowwise(const Math math, const __grid_constant__ details::RowPlan plan, Operands... tensors) {
  using namespace details;
  using Rules = RowMath<Math, Operands...>;
  constexpr int kVec = elements_in<Operands...>(16);
  row_in_registers<Rules, kVec, kParts, kEven, kLong>(std::index_sequence_for<Operands...>(), typename Rules::OfTerm(),
                                                      typename Rules::OfRow(), typename Rules::OfElement(), math, plan,
                                                      tensors...);
}

/// Rows of any alignment, or longer than registers hold.
template <typename Math, int kParts, typename... Operands>
__global__ void __launch_bounds__(details::RowTuningOf<Math, Operands...>::kUnalignedBlock,
                                  details::RowTuningOf<Math, Operands...>::kUnalignedBlocks)
    rowwise_unaligned(const Math math, const __grid_constant__ details::RowPlan plan, Operands... tensors) {
  using namespace details;
  using Rules = RowMath<Math, Operands...>;
  constexpr int kVec = RowTuningOf<Math, Operands...>::kUnalignedVec;
  unaligned_row<Rules, kVec, kParts>(std::index_sequence_for<Operands...>(), typename Rules::OfTerm(),
                                     typename Rules::OfRow(), typename Rules::OfElement(), math, plan, tensors...);
}

}  // namespace kernels

}  // namespace kjit
