// Rows that an index chooses, for kernels on the CPU. Results lie one row behind the other, so that they are made as if
// there were no rows: in parts of one size, which begin with a line of the caches. Short rows are laid side by side for
// that; long ones are read where they are.
//
//   TableRow src_row(src_ptr, table_size, index_ptr);
//   RowRuns runs(first, last, row_size, out_ptr, streams, src_row);  // of what one thread does
//   while (runs.next(src_row)) {
//     runs.for_parts([&]<typename Size>(int64_t at, Size size) {
//       const float* src_data = src_row.data(at);               // the first of `size` elements, for out_ptr[at] and on
//       ...
//     });
//   }
//
// What is done once a run is always inline: where it stands in a function for one kind of CPU (kjit/highway.h), it has
// that one's instructions.

#pragma once

#include <kjit/cpu.h>
#include <kjit/streaming.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace kjit {

namespace row_details {

using details::kLineBytes;

constexpr std::int64_t kRun = 5 * kStaged;  // elements of a run of several rows, at most

}  // namespace row_details

using namespace row_details;

/// The rows from `first` up to `last` of a tensor in memory from `written` on, each with `row_size` elements, in runs
/// of elements: of a long row, or of some short ones. With `streams`, what is written goes past the caches. Which rows
/// count as short is what measurements say: beside `tables` (each a `TableRow`) that are near, more do, since the ends
/// of rows cost more than copying them once more does; farther away memory waits for that, unless a row ends amid a
/// line. With `streams`, lines that two rows share would be read first.
template <typename T>
class RowRuns {
 public:
  template <typename... Tables>
  RowRuns(std::int64_t first, std::int64_t last, std::int64_t row_size, const T* written, bool streams,
          const Tables&... tables)
      : row_(first), last_(row_size == 0 ? first : last), row_size_(row_size), begin_(first * row_size), end_(begin_) {
    constexpr std::int64_t kBytes = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t row_bytes = row_size * kBytes;
    if (streams) {
      packs_ = row_bytes < 768;
    } else if ((tables.is_near(row_size) && ...)) {
      packs_ = row_bytes < 512;
    } else {
      packs_ = row_bytes < 128 || (row_bytes < 256 && row_bytes % kLineBytes != 0);
    }
    packs_ = packs_ && row_size <= kRun - kStaged;
    streams_ = streams;
    if (!packs_ && !streams) return;
    line_ = kLineBytes % kBytes == 0 ? kLineBytes / kBytes : 1;
    aligned_ = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(written) % kLineBytes) / kBytes;
  }

  /// Goes to the next run, and lets `rows` have theirs of it; false behind the last.
  template <typename... Rows>
  [[gnu::always_inline]] bool next(Rows&... rows) {
    row_ += count_;
    if (row_ == last_) return false;
    kept_from_ = end_ - begin_;
    begin_ = end_;
    kept_ = row_ * row_size_ - begin_;
    head_ = (aligned_ - begin_) & (line_ - 1);
    if (packs_) {
      const std::int64_t fit = (kRun - kept_) / row_size_;
      count_ = fit < last_ - row_ ? fit : last_ - row_;
    } else {
      count_ = 1;
    }
    end_ = (row_ + count_) * row_size_;
    if (packs_ && row_ + count_ < last_) end_ -= (end_ - begin_ - head_) % kStaged;
    (rows.take(*this), ...);
    return true;
  }

  /// Calls `work(at, size)` for the run's elements, whose first is the tensor's element `at`: as `kjit::for_parts`,
  /// from the first line of the caches on.
  template <typename Work>
  void for_parts(const Work& work) const {
    if (head() > 0) work(begin_, head());
    kjit::for_parts<32>(begin_ + head(), end_, work);
  }

  /// The run's elements.
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  /// How many of them come before the first line of the caches.
  std::int64_t head() const { return head_ < end_ - begin_ ? head_ : end_ - begin_; }
  /// Whether it may be of several rows: those from `row()` on, `count()` of them, behind `kept()` elements of the run
  /// before, which were `kept_from()` elements behind that one's first.
  bool packs() const { return packs_; }
  std::int64_t row() const { return row_; }
  std::int64_t count() const { return count_; }
  std::int64_t kept() const { return kept_; }
  std::int64_t kept_from() const { return kept_from_; }
  std::int64_t last() const { return last_; }
  std::int64_t row_size() const { return row_size_; }
  bool streams() const { return streams_; }

 private:
  std::int64_t row_, last_, row_size_, begin_, end_;
  std::int64_t count_ = 0, kept_ = 0, kept_from_ = 0, head_ = 0;
  std::int64_t line_ = 1, aligned_ = 0;
  bool packs_, streams_;
};

namespace row_details {

constexpr std::size_t kLargest = 64;  // of the vectors in which rows are copied

/// `std::memcpy` without a call: `bytes` are at least `kVector`, and fewer than twice as many unless that is kLargest.
template <std::size_t kVector>
[[gnu::always_inline]] inline void copy_bytes(char* to, const char* from, std::size_t bytes) {
  if constexpr (kVector == kLargest) {
    for (std::size_t at = 0; at + kVector < bytes; at += kVector) std::memcpy(to + at, from + at, kVector);
    std::memcpy(to + bytes - kVector, from + bytes - kVector, kVector);
  } else {  // both ends, which may overlap
    char first[kVector], last[kVector];
    std::memcpy(first, from, kVector);
    std::memcpy(last, from + bytes - kVector, kVector);
    std::memcpy(to, first, kVector);
    std::memcpy(to + bytes - kVector, last, kVector);
  }
}

/// How many rows ahead of its use a row is asked for: more where rows are short, since each is done sooner.
template <typename T>
constexpr std::int64_t rows_ahead(std::int64_t row_size) {
  constexpr std::int64_t kMost = 16, kLeast = 4, kBytes = 4608;
  const std::int64_t rows = kBytes / (row_size * static_cast<std::int64_t>(sizeof(T)) + 1);
  return rows < kLeast ? kLeast : rows > kMost ? kMost : rows;
}

/// Where rows come from: a cache so near that none is asked for ahead of time; anywhere; or anywhere, while results go
/// past the caches.
enum class Source { kNear, kFar, kStreamed };

/// Asks for a row that will be read soon, or the first bytes of it: the hardware follows one that goes on. While
/// results go past the caches, it comes as far as the second level of these, to which more rows can be on their way.
/// Were it not inline, g++ would take it for a function without effect, and leave its call out.
template <Source kSource, typename T>
[[gnu::always_inline]] inline void fetch_row(const T* row, std::int64_t row_size) {
  constexpr std::int64_t kMost = 16 * kLineBytes;
  constexpr int kLocality = kSource == Source::kStreamed ? 2 : 3;
  const std::int64_t bytes = row_size * static_cast<std::int64_t>(sizeof(T));
  const char* from = reinterpret_cast<const char*>(row);
  const char* last = from + (bytes < kMost ? bytes : kMost);
  from -= reinterpret_cast<std::uintptr_t>(from) % kLineBytes;  // a row may begin amid a line
  for (; from < last; from += kLineBytes) __builtin_prefetch(from, 0, kLocality);
}

/// Moves what a run has left to the front.
template <typename T, typename Runs>
[[gnu::always_inline]] inline void keep(T* held, const Runs& runs) {
  if (runs.kept() == 0) return;
  std::memmove(static_cast<void*>(held), held + runs.kept_from(), static_cast<std::size_t>(runs.kept()) * sizeof(T));
}

}  // namespace row_details

/// Rows of a table with `table_size` of them: `index` has the number of one for each row of a `RowRuns`. Zeros where
/// the table has no such row.
template <typename T, typename Index>
class TableRow {
 public:
  TableRow(const T* table, std::int64_t table_size, const Index* index)
      : table_(table), table_size_(table_size), index_(index) {}
  TableRow(const TableRow&) = delete;
  TableRow& operator=(const TableRow&) = delete;

  /// Whether all of the table is in a near cache soon.
  bool is_near(std::int64_t row_size) const {
    constexpr std::int64_t kNearBytes = 1 << 20;  // what the second level of most CPUs' caches has, or less
    return table_size_ * row_size * static_cast<std::int64_t>(sizeof(T)) <= kNearBytes;
  }

  /// Goes to the next run, which `RowRuns::next` says.
  template <typename Runs>
  [[gnu::always_inline]] void take(const Runs& runs) {
    begin_ = runs.begin();
    if (ahead_ == 0) {  // what takes a division is found once
      ahead_ = rows_ahead<T>(runs.row_size());
      is_near_ = is_near(runs.row_size());
    }
    if (is_near_) {
      take_from<Source::kNear>(runs);
    } else if (!runs.streams()) {
      take_from<Source::kFar>(runs);
    } else {
      take_from<Source::kStreamed>(runs);
    }
  }

  /// What belongs to the result's elements from `at` on, as far as the run goes.
  const T* data(std::int64_t at) const { return data_ + (at - begin_); }

 private:
  [[gnu::always_inline]] const T* find(std::int64_t row, std::int64_t row_size) const {
    const std::int64_t wanted = index_[row];
    return 0 <= wanted && wanted < table_size_ ? table_ + wanted * row_size : nullptr;
  }

  template <Source kSource, typename Runs>
  [[gnu::always_inline]] void take_from(const Runs& runs) {
    if (runs.packs()) {
      hold<kSource>(runs);
    } else {
      find_one<kSource>(runs);
    }
  }

  /// The row that will be needed some rows later.
  template <Source kSource, typename Runs>
  [[gnu::always_inline]] void fetch(const Runs& runs, std::int64_t row) const {
    if constexpr (kSource == Source::kNear) return;
    const T* later = find(row + ahead_ < runs.last() ? row + ahead_ : runs.last() - 1, runs.row_size());
    if (later != nullptr) fetch_row<kSource>(later, runs.row_size());
  }

  /// A long row, where it is.
  template <Source kSource, typename Runs>
  [[gnu::always_inline]] void find_one(const Runs& runs) {
    fetch<kSource>(runs, runs.row());
    data_ = find(runs.row(), runs.row_size());
    if (data_ != nullptr) return;
    if (zeros_ == nullptr) zeros_.reset(new T[static_cast<std::size_t>(runs.row_size())]());
    data_ = zeros_.get();
  }

  /// Short rows, behind what is left of the run before.
  template <Source kSource, typename Runs>
  [[gnu::always_inline]] void hold(const Runs& runs) {
    keep(held_, runs);
    data_ = held_;
    hold_rows<kSource, kLargest>(runs);
  }

  /// A loop for each size of the vectors that rows are copied in: `kVector`, or smaller where a row has less.
  template <Source kSource, std::size_t kVector, typename Runs>
  [[gnu::always_inline]] void hold_rows(const Runs& runs) {
    const std::int64_t row_size = runs.row_size(), last = runs.row() + runs.count();
    const std::size_t bytes = static_cast<std::size_t>(row_size) * sizeof(T);
    if constexpr (kVector > sizeof(T)) {
      if (bytes < kVector) return hold_rows<kSource, kVector / 2>(runs);
    }
    char* to = reinterpret_cast<char*>(held_ + runs.kept());
    for (std::int64_t row = runs.row(); row < last; ++row, to += bytes) {
      fetch<kSource>(runs, row);
      const T* from = find(row, row_size);
      if (from == nullptr) {
        std::memset(to, 0, bytes);
      } else {
        copy_bytes<kVector>(to, reinterpret_cast<const char*>(from), bytes);
      }
    }
  }

  const T* table_;
  std::int64_t table_size_;
  const Index* index_;
  std::int64_t ahead_ = 0;
  bool is_near_ = false;
  const T* data_ = nullptr;
  std::int64_t begin_ = 0;
  std::unique_ptr<T[]> zeros_;
  alignas(64) T held_[kRun];
};

/// A row that is the same beside every row of a `RowRuns`.
template <typename T>
class ColumnRow {
 public:
  explicit ColumnRow(const T* column) : column_(column) {}
  ColumnRow(const ColumnRow&) = delete;
  ColumnRow& operator=(const ColumnRow&) = delete;

  /// As that of `TableRow`.
  template <typename Runs>
  [[gnu::always_inline]] void take(const Runs& runs) {
    const std::int64_t row_size = runs.row_size();
    begin_ = runs.begin();
    data_ = column_;
    if (!runs.packs() || column_ == nullptr) return;
    if (!is_held_) {
      for (std::int64_t i = 0; i < kMost; ++i) held_[i] = i < row_size ? column_[i] : held_[i - row_size];
      is_held_ = true;
    }
    data_ = held_ + begin_ % row_size;
  }

  /// As that of `TableRow`; null where there is no column.
  const T* data(std::int64_t at) const { return data_ == nullptr ? nullptr : data_ + (at - begin_); }

 private:
  static constexpr std::int64_t kMost = 2 * kRun;  // a run may begin with any column

  const T* column_;
  const T* data_ = nullptr;
  std::int64_t begin_ = 0;
  bool is_held_ = false;
  alignas(64) T held_[kMost];
};

/// A number for each row of a `RowRuns`, converted to `Held`, as many times as the row has elements; zeros where there
/// are no numbers. Of a long row, `most` are used at once.
template <typename T, typename Held = T>
class NumberRow {
 public:
  explicit NumberRow(const T* numbers, std::int64_t most = kStaged) : numbers_(numbers), most_(most) {}
  NumberRow(const NumberRow&) = delete;
  NumberRow& operator=(const NumberRow&) = delete;

  /// As that of `TableRow`.
  template <typename Runs>
  [[gnu::always_inline]] void take(const Runs& runs) {
    begin_ = runs.begin();
    packs_ = runs.packs();
    if (packs_) keep(held_, runs);
    const std::int64_t size = packs_ ? runs.row_size() : most_;
    Held* to = held_ + (packs_ ? runs.kept() : 0);
    for (std::int64_t row = runs.row(); row < runs.row() + runs.count(); ++row, to += size) {
      const Held number = numbers_ == nullptr ? Held{} : static_cast<Held>(numbers_[row]);
      for (std::int64_t i = 0; i < size; ++i) to[i] = number;
    }
  }

  /// What belongs to the result's elements from `at` on: `most`, or as many as `RowRuns::for_parts` says.
  const Held* data(std::int64_t at) const { return held_ + (packs_ ? at - begin_ : 0); }

 private:
  const T* numbers_;
  std::int64_t most_;
  std::int64_t begin_ = 0;
  bool packs_ = false;
  alignas(64) Held held_[kRun];
};

/// The same of numbers whose type is to be deduced.
template <typename Held, typename T>
NumberRow<T, Held> number_row(const T* numbers, std::int64_t most = kStaged) {
  return NumberRow<T, Held>(numbers, most);
}

}  // namespace kjit
