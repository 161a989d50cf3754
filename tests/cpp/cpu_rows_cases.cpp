// Exports for test_cpu_rows.py: the parts of kjit/cpu_rows.h.
#include <kjit/cpu_rows.h>
#include <kjit/ffi.h>
#include <kjit/tensor.h>

namespace {

using namespace kjit;

/// The parts of the rows from `first` to `last` of `out`, two numbers for each: its start, and its size, negative if
/// not a compile-time constant. Returns their number. With `may_repeat`, those of `write_parts`.
template <typename T>
int64_t parts(TensorView out, int64_t first, int64_t last, bool streams, bool may_repeat, TensorView found) {
  auto* to = host::data_of<int64_t>(found);
  RowRuns runs(first, last, out.size(1), host::data_of<T>(out), streams);
  int64_t count = 0;
  const auto note = [&]<typename Size>(int64_t at, Size size, const auto& beside) {
    if (beside.streams != streams) throw host::PanicError(host::Message() << "it streams, or does not");
    *to++ = at;
    *to++ = std::is_same_v<Size, int64_t> ? -size : int64_t{size};
    ++count;
  };
  if (may_repeat) {
    runs.write_parts(note);
  } else {
    runs.for_parts(note);
  }
  return count;
}

/// out[n, d] = src[index[n], d] + numbers[n] + column[d], for the rows from `first` to `last`; zeros for out-of-range
/// rows of `src`, and for absent tensors. Adds to `out` by `for_parts`, or writes it by `write_parts`.
template <typename T, typename Index, typename Held = T>
void take(TensorView src, TensorView index, Optional<TensorView> numbers, Optional<TensorView> column, TensorView out,
          int64_t first, int64_t last, bool streams, int64_t way) {
  const auto data_of = [](const Optional<TensorView>& given) {
    return given.has_value() ? static_cast<const T*>(given.value().data_ptr()) : nullptr;
  };
  auto* out_ptr = host::data_of<T>(out);
  TableRow src_rows(host::data_of<const T>(src), src.size(0), host::data_of<const Index>(index));
  NumberRow<T, Held> number_rows(data_of(numbers));
  ColumnRow column_rows(data_of(column));
  RowRuns runs(first, last, out.size(1), out_ptr, streams, src_rows, number_rows, column_rows);
  const auto sum = [](T src, Held number, const T* column, int64_t i) {
    return static_cast<T>(src + static_cast<T>(number) + (column == nullptr ? T{} : column[i]));
  };
  if (way == 0) {
    runs.for_parts([&](int64_t at, auto size, const auto& beside) {
      const auto [src_row, number_row, column_row] = beside.data;
      for (int64_t i = 0; i < size; ++i) {
        out_ptr[at + i] = static_cast<T>(out_ptr[at + i] + sum(src_row[i], number_row[i], column_row, i));
      }
    });
  } else {
    runs.write_parts([&](int64_t at, auto size, const auto& beside) {
      const auto [src_row, number_row, column_row] = beside.data;
      using Beside = std::remove_reference_t<decltype(beside)>;
      static_assert(Beside::whole_lines == Beside::streams);
      Streamed<T> out_part(out_ptr + at, size, beside.whole_lines);
      for (int64_t i = 0; i < size; ++i) out_part.data()[i] = sum(src_row[i], number_row[i], column_row, i);
      out_part.store();
    });
  }
  stream_fence();
}

template <typename T>
void copy_element(const T& from, T& to) {
  to = from;
}

template <typename T>
void double_element(const T& from, T& to) {
  to = static_cast<T>(from + from);
}

/// Not a copy, for a single value only.
template <typename T>
void clear_sevens(const T& from, T& to) {
  to = from == T{7} ? T{} : from;
}

template <typename T>
void leave_element(const T&, T&) {}

/// A mask of these functions for which the compiler sees that they only copy.
template <typename T>
int64_t copying() {
  return only_copies<T, copy_element<T>>() | only_copies<T, double_element<T>>() << 1 |
         only_copies<T, clear_sevens<T>>() << 2 | only_copies<T, leave_element<T>>() << 3;
}

/// out[n, d] = src[index[n], d], for the rows from `first` to `last`; zeros for out-of-range rows of `src`. Returns the
/// number of parts. `only_copies` is as for `move_parts`.
template <typename T>
int64_t move(TensorView src, TensorView index, TensorView out, int64_t first, int64_t last, bool streams,
             bool only_copies) {
  auto* out_ptr = host::data_of<T>(out);
  TableRow src_rows(host::data_of<const T>(src), src.size(0), host::data_of<const int64_t>(index));
  RowRuns runs(first, last, out.size(1), out_ptr, streams, src_rows);
  int64_t count = 0;
  runs.move_parts(only_copies, [&](int64_t at, auto size, const auto& beside) {
    Streamed<T> out_part(out_ptr + at, size, beside.whole_lines);
    for (int64_t i = 0; i < size; ++i) copy_element(std::get<0>(beside.data)[i], out_part.data()[i]);
    out_part.store();
    ++count;
  });
  stream_fence();
  return count;
}

/// Adds rows to `out` that are never streamed.
void add(TensorView src, TensorView index, TensorView out) {
  auto* out_ptr = host::data_of<int64_t>(out);
  TableRow src_rows(host::data_of<const int64_t>(src), src.size(0), host::data_of<const int64_t>(index));
  RowRuns runs(0, out.size(0), out.size(1), out_ptr, std::false_type(), src_rows);
  runs.for_parts([&](int64_t at, auto size, const auto& beside) {
    static_assert(!std::remove_reference_t<decltype(beside)>::streams);
    for (int64_t i = 0; i < size; ++i) out_ptr[at + i] += std::get<0>(beside.data)[i];
  });
}

}  // namespace

KJIT_EXPORT(parts_uint8, parts<uint8_t>)
KJIT_EXPORT(parts_int32, parts<int32_t>)
KJIT_EXPORT(parts_int64, parts<int64_t>)
KJIT_EXPORT(take_uint8_int64, take<uint8_t, int64_t>)
KJIT_EXPORT(take_int16_int64, take<int16_t, int64_t>)
KJIT_EXPORT(take_int32_int32, take<int32_t, int32_t, double>)
KJIT_EXPORT(take_int64_int32, take<int64_t, int32_t>)
KJIT_EXPORT(move_uint8, move<uint8_t>)
KJIT_EXPORT(move_int64, move<int64_t>)
KJIT_EXPORT(copying_uint8, copying<uint8_t>)
KJIT_EXPORT(copying_int16, copying<int16_t>)
KJIT_EXPORT(copying_float, copying<float>)
KJIT_EXPORT(copying_fp16, copying<fp16_t>)
KJIT_EXPORT(copying_double, copying<double>)
