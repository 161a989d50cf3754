// What tests/cpp/test_cpu_rows.py calls: the parts of kjit/cpu_rows.h.
#include <kjit/cpu_rows.h>
#include <kjit/ffi.h>
#include <kjit/tensor.h>

namespace {

using namespace kjit;

/// The runs of the rows of `out` from `first` up to `last`, beside a table of `table_size` rows, four numbers for each:
/// where it begins and ends, its head, and how many rows it takes, negative where these are read where they are.
/// Returns how many runs.
template <typename T>
int64_t runs(TensorView out, int64_t first, int64_t last, int64_t table_size, bool streams, TensorView found) {
  auto* to = static_cast<int64_t*>(found.data_ptr());
  const TableRow<T, int64_t> table(nullptr, table_size, nullptr);
  RowRuns runs(first, last, out.size(1), static_cast<const T*>(out.data_ptr()), streams, table);
  int64_t count = 0;
  while (runs.next()) {
    const int64_t rows = runs.packs() ? runs.count() : -runs.count();
    for (const int64_t number : {runs.begin(), runs.end(), runs.head(), rows}) *to++ = number;
    ++count;
  }
  return count;
}

/// The sizes of the parts of the same rows, negative where the compiler does not know them. Returns how many.
template <typename T>
int64_t parts(TensorView out, int64_t first, int64_t last, bool streams, TensorView sizes) {
  auto* to = static_cast<int64_t*>(sizes.data_ptr());
  RowRuns runs(first, last, out.size(1), static_cast<const T*>(out.data_ptr()), streams);
  int64_t count = 0, expected = first * out.size(1);
  while (runs.next()) {
    runs.for_parts([&]<typename Size>(int64_t at, Size size) {
      if (at != expected) throw host::PanicError(host::Message() << "a part begins at " << at << ", not " << expected);
      expected += size;
      to[count++] = std::is_same_v<Size, int64_t> ? -size : int64_t{size};
    });
  }
  return count;
}

/// out[n, d] = src[index[n], d] + numbers[n] + column[d], for the rows from `first` up to `last`; zeros for the rows
/// that `src` does not have, and for what is absent.
template <typename T, typename Index, typename Held = T>
void take(TensorView src, TensorView index, Optional<TensorView> numbers, Optional<TensorView> column, TensorView out,
          int64_t first, int64_t last, bool streams) {
  const auto data_of = [](const Optional<TensorView>& given) {
    return given.has_value() ? static_cast<const T*>(given.value().data_ptr()) : nullptr;
  };
  auto* out_ptr = static_cast<T*>(out.data_ptr());
  TableRow src_row(static_cast<const T*>(src.data_ptr()), src.size(0), static_cast<const Index*>(index.data_ptr()));
  RowRuns runs(first, last, out.size(1), out_ptr, streams, src_row);
  NumberRow<T, Held> numbers_row = number_row<Held>(data_of(numbers));
  ColumnRow column_row(data_of(column));
  while (runs.next(src_row, numbers_row, column_row)) {
    runs.for_parts([&]<typename Size>(int64_t at, Size size) {
      const T* src_data = src_row.data(at);
      const Held* number_data = numbers_row.data(at);
      const T* column_data = column_row.data(at);
      Streamed<T> out_part(out_ptr + at, size, streams);
      for (int64_t i = 0; i < size; ++i) {
        const T beside = column_data == nullptr ? T{} : column_data[i];
        out_part.data()[i] = static_cast<T>(src_data[i] + static_cast<T>(number_data[i]) + beside);
      }
      out_part.store();
    });
  }
  stream_fence();
}

}  // namespace

KJIT_EXPORT(runs_uint8, runs<uint8_t>)
KJIT_EXPORT(runs_int64, runs<int64_t>)
KJIT_EXPORT(parts_uint8, parts<uint8_t>)
KJIT_EXPORT(parts_int64, parts<int64_t>)
KJIT_EXPORT(take_uint8_int64, take<uint8_t, int64_t>)
KJIT_EXPORT(take_int16_int64, take<int16_t, int64_t>)
KJIT_EXPORT(take_int32_int32, take<int32_t, int32_t, double>)
KJIT_EXPORT(take_int64_int32, take<int64_t, int32_t>)
