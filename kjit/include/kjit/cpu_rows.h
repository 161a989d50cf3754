// Rows for CPU kernels: a range of result rows processed in parts, each with the matching data of a table row selected
// by an index, of a per-column tensor, or of a per-row number.
//
//   TableRow src_rows(src_ptr, table_size, index_ptr);
//   RowRuns runs(first, last, row_size, out_ptr, streams, src_rows);  // the rows of one thread
//   runs.write_parts([&]<typename Size>(int64_t at, Size size, const auto& beside) {
//     const float* src_row = std::get<0>(beside.data);
//     ...                                                             // src_row[i] matches out_ptr[at + i]
//   });
//
// Per-row code is always inline, so that it is compiled for the instruction set of its caller.

#pragma once

#include <kjit/cpu.h>
#include <kjit/streaming.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace kjit {

namespace row_details {

using details::kLineBytes;

constexpr std::int64_t kRun = 5 * kStaged;  // the most elements in a run of several rows

/// The number of elements of type `T` in `bytes` bytes.
template <typename T>
constexpr std::int64_t count_in(std::int64_t bytes) {
  return bytes / static_cast<std::int64_t>(sizeof(T));
}

/// Input data of a run: a pointer to its first element, and to the one at an offset.
template <typename T>
struct RunData {
  const T* first;
  const T* from(std::int64_t offset) const { return first + offset; }
};

/// The same for a tensor that may be absent.
template <typename T>
struct MaybeData {
  const T* first;
  const T* from(std::int64_t offset) const { return first == nullptr ? nullptr : first + offset; }
};

/// The same for data that is equal for all elements.
template <typename T>
struct SameData {
  const T* first;
  const T* from(std::int64_t) const { return first; }
};

/// The positions of cache lines in the written memory.
template <typename T>
class CacheLines {
 public:
  explicit CacheLines(const T* written)
      : first_(count_in<T>(static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(written) % kLineBytes))) {}

  /// The number of elements from element `at` to the next line.
  std::int64_t head(std::int64_t at) const { return (first_ - at) & (kCount - 1); }

 private:
  static constexpr std::int64_t kCount = kLineBytes % sizeof(T) == 0 ? count_in<T>(kLineBytes) : 1;

  std::int64_t first_;
};

/// Consecutive elements of one row, or of several short ones, and their input data.
template <bool kStreams, typename... Data>
struct Run {
  static constexpr bool streams = kStreams;  // results are written by streaming stores

  std::int64_t first;  // index in the tensor
  std::int64_t head;   // elements before the first cache line, if that matters
  std::int64_t size;   // number of elements
  std::tuple<Data...> data;
};

/// The input data of a part of a run: one pointer for each operand.
template <bool kStreams, typename... Data>
struct Beside {
  static constexpr bool streams = kStreams;                     // results are written by streaming stores
  static constexpr std::bool_constant<kStreams> whole_lines{};  // the same, for the tensor of known lines

  std::tuple<Data...> data;
};

template <bool kStreams, typename... Data>
Run<kStreams, Data...> run(std::int64_t first, std::int64_t head, std::int64_t size, Data... data) {
  return {.first = first, .head = head, .size = size, .data = {data...}};
}

template <bool kStreams, typename... Data>
Beside<kStreams, Data...> beside(Data... data) {
  return {.data = {data...}};
}

/// Calls `work` for `size` elements of a run, from its element `at` on (see `RowRuns::for_parts`).
template <typename Work, bool kStreams, typename... Data>
class RunParts {
 public:
  RunParts(const Work& work, const Run<kStreams, Data...>& run) : work_(work), run_(run) {}

  template <typename Size>
  [[gnu::always_inline]] void operator()(std::int64_t at, Size size) const {
    call(at, size, std::index_sequence_for<Data...>());
  }

 private:
  template <typename Size, std::size_t... kRows>
  [[gnu::always_inline]] void call(std::int64_t at, Size size, std::index_sequence<kRows...>) const {
    work_(run_.first + at, size, beside<kStreams>(std::get<kRows>(run_.data).from(at)...));
  }

  const Work& work_;
  const Run<kStreams, Data...> run_;  // a copy: stays in registers although stores may alias
};

constexpr std::size_t kLargest = 64;  // bytes in the widest vector for copying rows
constexpr std::size_t kMany = 4;      // vectors in a step of a longer copy

/// Copies one vector for each index in `kAt`.
template <std::size_t kVector, std::size_t... kAt>
[[gnu::always_inline]] inline void copy_vectors(char* to, const char* from, std::index_sequence<kAt...>) {
  (std::memcpy(to + kAt * kVector, from + kAt * kVector, kVector), ...);
}

/// Copies `kMany` vectors from `at` on and advances `at`; false if the last of the `bytes` bytes would be among them.
template <std::size_t kVector>
[[gnu::always_inline]] inline bool copy_step(char* to, const char* from, std::size_t& at, std::size_t bytes) {
  if (at + kMany * kVector >= bytes) return false;
  copy_vectors<kVector>(to + at, from + at, std::make_index_sequence<kMany>());
  at += kMany * kVector;
  return true;
}

/// All remaining steps, at most one for each index in `kStep`.
template <std::size_t kVector, std::size_t... kStep>
[[gnu::always_inline]] inline void copy_steps(char* to, const char* from, std::size_t& at, std::size_t bytes,
                                              std::index_sequence<kStep...>) {
  static_cast<void>((... && (static_cast<void>(kStep), copy_step<kVector>(to, from, at, bytes))));
}

/// `std::memcpy` without a call. `bytes` is at least `kVector`, and less than twice that unless kVector is kLargest.
/// Takes at most `kSteps` steps; 0: any number, in a loop.
template <std::size_t kVector, std::size_t kSteps = 0>
[[gnu::always_inline]] inline void copy_bytes(char* to, const char* from, std::size_t bytes) {
  if constexpr (kVector == kLargest) {
    std::size_t at = 0;
    if (bytes > kMany * kVector) {  // long enough for aligning the stores to pay off
      std::memcpy(to, from, kVector);
      at = kVector - reinterpret_cast<std::uintptr_t>(to) % kVector;
      if constexpr (kSteps > 0) {
        copy_steps<kVector>(to, from, at, bytes, std::make_index_sequence<kSteps>());
      } else {
        while (copy_step<kVector>(to, from, at, bytes)) continue;
      }
    }
    for (; at + kVector < bytes; at += kVector) std::memcpy(to + at, from + at, kVector);
    std::memcpy(to + bytes - kVector, from + bytes - kVector, kVector);
  } else {  // the first and last vector, which may overlap
    char first[kVector], last[kVector];
    std::memcpy(first, from, kVector);
    std::memcpy(last, from + bytes - kVector, kVector);
    std::memcpy(to, first, kVector);
    std::memcpy(to + bytes - kVector, last, kVector);
  }
}

/// A run of several rows, packed contiguously.
struct Packed {
  std::int64_t row;        // the first row
  std::int64_t count;      // the number of rows
  std::int64_t kept;       // elements left over from the previous run
  std::int64_t kept_from;  // their offset in that run
  std::int64_t begin;      // index of the first element
};

}  // namespace row_details

using namespace row_details;

/// Whether the compiler proves that `kElement(from, to)` only copies an element of type `T`.
template <typename T, auto kElement>
[[gnu::always_inline]] inline bool only_copies() {
  T from{}, to{};
  details::forget(from);
  kElement(from, to);
  return details::are_known_same(from, to);
}

/// The rows from `first` to `last` of a tensor at `written`, each with `row_size` elements, and their operands `rows`:
/// each a `TableRow`, `ColumnRow` or `NumberRow`. With `streams`, results are written by streaming stores;
/// `std::false_type` means never.
///
/// Rows are read and written in place, except short rows that are streamed and are not whole cache lines: these are
/// packed in the first-level cache, some hundred elements at a time, since a line shared by two rows would otherwise be
/// read from memory first. Without streaming, packing costs more than handling the tails of rows: the packed data is
/// read with other access widths than it was written with, so store-to-load forwarding fails, and the loads wait until
/// all earlier stores have reached the cache.
template <typename T, typename Streams, typename... Rows>
class RowRuns {
 public:
  RowRuns(std::int64_t first, std::int64_t last, std::int64_t row_size, T* written, Streams streams, Rows&... rows)
      : first_(first),
        last_(row_size == 0 ? first : last),
        row_size_(row_size),
        written_(written),
        lines_(written),
        streams_(streams),
        rows_(rows...) {}

  /// Calls `work(at, size, beside)` for parts of the elements, the first of which is element `at` of the tensor; `size`
  /// is as for `kjit::for_parts`. The tuple `beside.data` has a pointer to the matching data of each of `rows`, and
  /// `beside.streams` says whether results are streamed. `beside.whole_lines` is the same as a type: the parts of the
  /// results are aligned as `Streamed` needs.
  template <typename Work>
  [[gnu::always_inline]] void for_parts(const Work& work) {
    parts<false>(work, std::index_sequence_for<Rows...>());
  }

  /// The same for results that are only written, and not read in `work`: the last elements of a row may be computed
  /// twice, so that all sizes are compile-time constants.
  template <typename Work>
  [[gnu::always_inline]] void write_parts(const Work& work) {
    parts<true>(work, std::index_sequence_for<Rows...>());
  }

  /// The same with a single `TableRow`. If `only_copies`, `work` only copies table rows: unless streamed, they are
  /// copied directly, without calling `work`.
  template <typename Work>
  [[gnu::always_inline]] void move_parts(bool only_copies, const Work& work) {
    if (!move_rows(only_copies)) write_parts(work);
  }

  std::int64_t last() const { return last_; }
  std::int64_t row_size() const { return row_size_; }

 private:
  // The largest compile-time part below kStaged, in elements: a cache line, and a power of two.
  static constexpr std::int64_t kLine = count_in<T>(kLineBytes) < 32 ? count_in<T>(kLineBytes) : 32;
  static constexpr bool kMayStream = std::is_same_v<Streams, bool>;

  // The longest row that is copied without a loop, and the number of steps for it.
  static constexpr std::size_t kShortRow = 2048, kSteps = kShortRow / (kMany * kLargest) - 1;

  // Elements in streamed parts: one line, and two.
  static constexpr std::int64_t kStreamedLine = count_in<T>(kLineBytes);
  static constexpr std::int64_t kStreamed = 2 * kStreamedLine;

  /// Whether streamed rows are packed: short ones, unless they consist of several whole lines.
  bool packs() const {
    const std::int64_t bytes = row_size_ * static_cast<std::int64_t>(sizeof(T));
    const bool of_lines = lines_.head(0) == 0 && bytes % kLineBytes == 0;
    return bytes < 768 && row_size_ <= kRun - kStaged && !(of_lines && bytes > kLineBytes);
  }

  template <bool kTwice, typename Work, std::size_t... kRows>
  [[gnu::always_inline]] void parts(const Work& work, std::index_sequence<kRows...> rows) {
    if constexpr (kMayStream) {
      if (streams_) {
        return streamed_runs(
            [&]<typename Streaming>(const Streaming& run) {
              const RunParts part(work, run);
              if (run.head > 0) part(0, run.head);
              kjit::for_parts<kStreamed, kStreamedLine>(run.head, run.size, part);
            },
            rows);
      }
    }
    sized_parts<kTwice, kLine>(work, std::get<kRows>(rows_).template reader<false>(*this)...);
  }

  /// Copies the rows, if they are only copied and not streamed; returns whether it did.
  [[gnu::always_inline]] bool move_rows(bool only_copies) {
    static_assert(sizeof...(Rows) == 1);
    if (!only_copies || static_cast<bool>(streams_)) return false;
    std::size_t bytes = static_cast<std::size_t>(row_size_) * sizeof(T);
    if (is_call_faster(bytes)) {
      copy_rows([bytes](char* to, const char* from) { std::memcpy(to, from, bytes); });
    } else if (bytes > kShortRow) {
      // Otherwise the compiler, knowing the maximum number of steps, would unroll the loop.
      details::forget(bytes);
      copy_rows([bytes](char* to, const char* from) { copy_bytes<kLargest>(to, from, bytes); });
    } else {
      copy_short_rows<kLargest>(bytes);
    }
    return true;
  }

  /// Whether calling `memcpy` for rows of this size is faster than a loop: for long rows, and for shorter ones in a
  /// table that only fits a large, distant last-level cache.
  bool is_call_faster(std::size_t bytes) const {
    constexpr std::size_t kLongRow = 3072, kLongFarRow = 512;
    constexpr std::int64_t kFarTable = 64 << 20;
    return bytes >= kLongRow || (bytes >= kLongFarRow && std::get<0>(rows_).table_bytes(*this) >= kFarTable);
  }

  /// Straight-line code for each vector size: its branches are predictable, unlike the exit of a loop.
  template <std::size_t kVector>
  [[gnu::always_inline]] void copy_short_rows(std::size_t bytes) {
    if constexpr (kVector > sizeof(T)) {
      if (bytes < kVector) return copy_short_rows<kVector / 2>(bytes);
    }
    copy_rows([bytes](char* to, const char* from) { copy_bytes<kVector, kSteps>(to, from, bytes); });
  }

  template <typename Copy>
  [[gnu::always_inline]] void copy_rows(const Copy& copy) {
    row_runs<false>(
        [&]<typename Single>(const Single& run) {
          char* to = reinterpret_cast<char*>(written_ + run.first);
          copy(to, reinterpret_cast<const char*>(std::get<0>(run.data).from(0)));
        },
        std::get<0>(rows_).template reader<false>(*this));
  }

  /// A loop for each part size: `kPart`, or smaller if a row has fewer elements.
  template <bool kTwice, std::int64_t kPart, typename Work, typename... Readers>
  [[gnu::always_inline]] void sized_parts(const Work& work, Readers... readers) {
    if constexpr (kTwice && kPart > 1) {
      if (row_size_ < kPart) return sized_parts<kTwice, kPart / 2>(work, readers...);
    }
    row_runs<false>(
        [&]<typename Single>(const Single& run) { parts_of_row<kTwice, kPart>(RunParts(work, run), run.size); },
        readers...);
  }

  template <bool kTwice, std::int64_t kPart, typename Part>
  [[gnu::always_inline]] static void parts_of_row(const Part& part, std::int64_t row_size) {
    std::int64_t at = 0;
    if constexpr (kPart == kLine) {  // otherwise rows are shorter
      for (; at + kStaged <= row_size; at += kStaged) part(at, std::integral_constant<std::int64_t, kStaged>());
    }
    for (; at + kPart <= row_size; at += kPart) part(at, std::integral_constant<std::int64_t, kPart>());
    if constexpr (kTwice) {
      if (at < row_size) part(row_size - kPart, std::integral_constant<std::int64_t, kPart>());
    } else {
      last_parts<kPart / 2>(part, at, row_size - at);
    }
  }

  /// The `count` elements from `at` on, fewer than twice `kPart`, in parts that halve in size.
  template <std::int64_t kPart, typename Part>
  [[gnu::always_inline]] static void last_parts(const Part& part, std::int64_t at, std::int64_t count) {
    if constexpr (kPart > 0) {
      if ((count & kPart) != 0) part(at, std::integral_constant<std::int64_t, kPart>());
      last_parts<kPart / 2>(part, at + (count & kPart), count);
    }
  }

  /// Calls `work(run)` for all elements, one run at a time, with streaming stores.
  template <typename Work, std::size_t... kRows>
  [[gnu::always_inline]] void streamed_runs(const Work& work, std::index_sequence<kRows...> rows) {
    if (packs()) {
      for_packed(work, rows);
    } else {
      row_runs<true>(work, std::get<kRows>(rows_).template reader<true>(*this)...);
    }
  }

  /// The same for rows in place.
  template <bool kStreams, typename Work, typename... Readers>
  [[gnu::always_inline]] void row_runs(const Work& work, Readers... readers) {
    const std::int64_t row_size = row_size_, last = last_;
    std::int64_t begin = first_ * row_size;
    for (std::int64_t row = first_; row < last; ++row, begin += row_size) {
      std::int64_t head = 0;
      if constexpr (kStreams) {
        head = lines_.head(begin);
        if (head > row_size) head = row_size;
      }
      work(run<kStreams>(begin, head, row_size, readers(row)...));
    }
  }

  /// The same for packed rows: all runs but the last consist of whole parts, the first after a head.
  template <typename Work, std::size_t... kRows>
  [[gnu::always_inline]] void for_packed(const Work& work, std::index_sequence<kRows...>) {
    Packed packed{.row = first_, .count = 0, .kept = 0, .kept_from = 0, .begin = first_ * row_size_};
    while (packed.row < last_) {
      const std::int64_t fit = (kRun - packed.kept) / row_size_, left = last_ - packed.row;
      packed.count = fit < left ? fit : left;
      const std::int64_t begin = packed.begin, head = lines_.head(begin);
      const std::int64_t next = (packed.row + packed.count) * row_size_;
      const std::int64_t end = packed.count < left ? next - (next - begin - head) % kStaged : next;
      (std::get<kRows>(rows_).hold(packed, *this), ...);
      const std::int64_t size = end - begin;
      work(run<true>(begin, head < size ? head : size, size, std::get<kRows>(rows_).held(packed, *this)...));
      packed = {
          .row = packed.row + packed.count, .count = 0, .kept = next - end, .kept_from = end - begin, .begin = end};
    }
  }

  std::int64_t first_, last_, row_size_;
  T* written_;
  CacheLines<T> lines_;
  Streams streams_;
  std::tuple<Rows&...> rows_;
};

namespace row_details {

/// The prefetch distance for a table.
struct Ahead {
  std::int64_t rows;   // in rows; 0: no prefetch
  std::int64_t bytes;  // prefetched in each row; the hardware prefetcher continues
};

/// Further ahead for short rows, which are processed sooner; less of long rows, as a core has few misses in flight.
/// More of a row if results are streamed, as the hardware prefetcher is late then. None if the table soon fits a near
/// cache.
template <bool kStreams>
constexpr Ahead ask_ahead(std::int64_t row_bytes, std::int64_t table_bytes) {
  constexpr std::int64_t kNearBytes = 1 << 20;  // at most the second-level cache of most CPUs
  constexpr std::int64_t kMostRows = 16, kLeastRows = 6, kBytes = 3456, kLongBytes = 1536;
  if (table_bytes <= kNearBytes) return {.rows = 0, .bytes = 0};
  if (!kStreams && row_bytes >= kLongBytes) return {.rows = 3, .bytes = 8 * kLineBytes};
  constexpr std::int64_t kMostBytes = (kStreams ? 32 : 16) * kLineBytes;
  const std::int64_t rows = std::clamp(kBytes / (row_bytes + 1), kLeastRows, kMostRows);
  return {.rows = rows, .bytes = std::min(row_bytes, kMostBytes)};
}

/// Prefetches `bytes` bytes of `row`. The number of prefetches is the same for every row of a tensor, whatever its
/// alignment: a mispredicted branch costs more than prefetching a line twice. Always inline, because g++ would treat it
/// as a function without side effects and drop the call.
template <typename T>
[[gnu::always_inline]] inline void fetch_row(const T* row, std::int64_t bytes) {
  const char* from = reinterpret_cast<const char*>(row);
  for (std::int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(from + at);
  __builtin_prefetch(from + bytes - 1);
}

/// Moves what is left over from the previous run to the front.
template <typename T>
[[gnu::always_inline]] inline void keep(T* held, const Packed& packed) {
  if (packed.kept == 0) return;
  std::memmove(static_cast<void*>(held), held + packed.kept_from, static_cast<std::size_t>(packed.kept) * sizeof(T));
}

}  // namespace row_details

/// The rows of a table with `table_size` rows, selected by `index` for each row of a `RowRuns`. Zeros if the index is
/// out of range.
template <typename T, typename Index>
class TableRow {
 public:
  TableRow(const T* table, std::int64_t table_size, const Index* index)
      : table_(table), table_size_(table_size), index_(index) {}
  TableRow(const TableRow&) = delete;
  TableRow& operator=(const TableRow&) = delete;

  /// Returns the table row for a result row, and prefetches a later one; a copy of all that it needs, to stay in
  /// registers.
  template <bool kStreams>
  class Reader {
   public:
    template <typename Runs>
    Reader(TableRow* rows, const Runs& runs)
        : table_(rows->table_),
          table_size_(static_cast<std::uint64_t>(rows->table_size_)),
          index_(rows->index_),
          row_size_(runs.row_size()),
          most_(runs.last() - 1),
          ahead_(ask_ahead<kStreams>(row_bytes(runs), rows->table_bytes(runs))),
          rows_(rows) {}

    [[gnu::always_inline]] RunData<T> operator()(std::int64_t row) const {
      const T* found = find(row);
      return {found == nullptr ? rows_->zeros(row_size_) : found};
    }

    /// The same; null if the index is out of range.
    [[gnu::always_inline]] const T* find(std::int64_t row) const {
      fetch(row);
      const std::uint64_t wanted = static_cast<std::uint64_t>(index_[row]);
      return wanted < table_size_ ? at(wanted) : nullptr;
    }

   private:
    /// Prefetches the row that is needed some rows later.
    [[gnu::always_inline]] void fetch(std::int64_t row) const {
      if (ahead_.rows == 0) return;
      const std::int64_t after = row + ahead_.rows;
      const std::uint64_t later = static_cast<std::uint64_t>(index_[after < most_ ? after : most_]);
      if (later < table_size_) fetch_row(at(later), ahead_.bytes);
    }

    const T* at(std::uint64_t row) const { return table_ + static_cast<std::int64_t>(row) * row_size_; }

    const T* table_;
    std::uint64_t table_size_;
    const Index* index_;
    std::int64_t row_size_, most_;
    Ahead ahead_;
    TableRow* rows_;
  };

  template <bool kStreams, typename Runs>
  Reader<kStreams> reader(const Runs& runs) {
    return Reader<kStreams>(this, runs);
  }

  template <typename Runs>
  static std::int64_t row_bytes(const Runs& runs) {
    return runs.row_size() * static_cast<std::int64_t>(sizeof(T));
  }
  template <typename Runs>
  std::int64_t table_bytes(const Runs& runs) const {
    return table_size_ * row_bytes(runs);
  }

  /// Packs the rows of a run after what is left over from the previous run.
  template <typename Runs>
  [[gnu::always_inline]] void hold(const Packed& packed, const Runs& runs) {
    keep(held_, packed);
    hold_rows<kLargest>(packed, reader<true>(runs), runs.row_size());
  }
  template <typename Runs>
  RunData<T> held(const Packed&, const Runs&) const {
    return {held_};
  }

 private:
  /// A loop for each vector size: `kVector`, or smaller if a row has fewer bytes.
  template <std::size_t kVector>
  [[gnu::always_inline]] void hold_rows(const Packed& packed, Reader<true> read, std::int64_t row_size) {
    const std::size_t bytes = static_cast<std::size_t>(row_size) * sizeof(T);
    if constexpr (kVector > sizeof(T)) {
      if (bytes < kVector) return hold_rows<kVector / 2>(packed, read, row_size);
    }
    char* to = reinterpret_cast<char*>(held_ + packed.kept);
    const std::int64_t last = packed.row + packed.count;
    for (std::int64_t row = packed.row; row < last; ++row, to += bytes) {
      const T* from = read.find(row);
      if (from == nullptr) {
        std::memset(to, 0, bytes);
      } else {
        copy_bytes<kVector>(to, reinterpret_cast<const char*>(from), bytes);
      }
    }
  }

  [[gnu::noinline]] const T* zeros(std::int64_t row_size) {
    if (zeros_ == nullptr) zeros_.reset(new T[static_cast<std::size_t>(row_size)]());
    return zeros_.get();
  }

  const T* table_;
  std::int64_t table_size_;
  const Index* index_;
  std::unique_ptr<T[]> zeros_;
  alignas(64) T held_[kRun];
};

/// One row for every row of a `RowRuns`; null if absent.
template <typename T>
class ColumnRow {
 public:
  explicit ColumnRow(const T* column) : column_(column) {}
  ColumnRow(const ColumnRow&) = delete;
  ColumnRow& operator=(const ColumnRow&) = delete;

  /// See `TableRow::Reader`.
  class Reader {
   public:
    explicit Reader(const T* column) : column_(column) {}
    MaybeData<T> operator()(std::int64_t) const { return {column_}; }

   private:
    const T* column_;
  };
  template <bool kStreams, typename Runs>
  Reader reader(const Runs&) const {
    return Reader(column_);
  }
  template <typename Runs>
  [[gnu::always_inline]] void hold(const Packed&, const Runs& runs) {
    if (column_ == nullptr || is_held_) return;
    const std::int64_t row_size = runs.row_size();
    for (std::int64_t i = 0; i < kMost; ++i) held_[i] = i < row_size ? column_[i] : held_[i - row_size];
    is_held_ = true;
  }
  template <typename Runs>
  MaybeData<T> held(const Packed& packed, const Runs& runs) const {
    return {column_ == nullptr ? nullptr : held_ + packed.begin % runs.row_size()};
  }

 private:
  static constexpr std::int64_t kMost = 2 * kRun;  // a run may begin at any column

  const T* column_;
  bool is_held_ = false;
  alignas(64) T held_[kMost];
};

/// A number for each row of a `RowRuns`, converted to `Held` and repeated for the elements of a part; zero if absent.
template <typename T, typename Held = T>
class NumberRow {
 public:
  explicit NumberRow(const T* numbers) : numbers_(numbers) {}
  NumberRow(const NumberRow&) = delete;
  NumberRow& operator=(const NumberRow&) = delete;

  /// See `TableRow::Reader`.
  class Reader {
   public:
    Reader(NumberRow* rows, std::int64_t size) : numbers_(rows->numbers_), held_(rows->held_), size_(size) {}
    [[gnu::always_inline]] SameData<Held> operator()(std::int64_t row) const {
      fill(held_, size_, row);
      return {held_};
    }

    /// The number of the row, `size` times.
    [[gnu::always_inline]] void fill(Held* to, std::int64_t size, std::int64_t row) const {
      const Held number = numbers_ == nullptr ? Held{} : static_cast<Held>(numbers_[row]);
      for (std::int64_t i = 0; i < size; ++i) to[i] = number;
    }

   private:
    const T* numbers_;
    Held* held_;
    std::int64_t size_;
  };
  template <bool kStreams, typename Runs>
  Reader reader(const Runs& runs) {
    return Reader(this, std::min(runs.row_size(), kStaged));
  }
  template <typename Runs>
  [[gnu::always_inline]] void hold(const Packed& packed, const Runs& runs) {
    keep(held_, packed);
    const Reader read = reader<true>(runs);
    Held* to = held_ + packed.kept;
    for (std::int64_t row = packed.row; row < packed.row + packed.count; ++row, to += runs.row_size()) {
      read.fill(to, runs.row_size(), row);
    }
  }
  template <typename Runs>
  RunData<Held> held(const Packed&, const Runs&) const {
    return {held_};
  }

 private:
  const T* numbers_;
  alignas(64) Held held_[kRun];
};

}  // namespace kjit
