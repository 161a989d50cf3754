// Exports for test_cpu_header.py: the parts of kjit/cpu.h.
#include <kjit/cpu.h>
#include <kjit/ffi.h>

namespace {

using namespace kjit;

/// Adds 1 to every element, in ranges of several threads.
void count(TensorView out, int64_t grain, bool is_parallel) {
  auto* to = static_cast<int32_t*>(out.data_ptr());
  parallel_ranges(out.numel(), grain, is_parallel, [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) ++to[i];
  });
}

/// Copies half types by way of their compute type.
void through_floats(TensorView x, TensorView out, bool streams) {
  const auto* from = static_cast<const fp16_t*>(x.data_ptr());
  auto* to = static_cast<fp16_t*>(out.data_ptr());
  for_parts(0, x.numel(), [=]<typename Size>(int64_t at, Size size) {
    static_assert(kStaged > 0);
    Staged<const fp16_t> x_part(from + at, size);
    Staged<fp16_t, false> out_part(to + at, size, streams);
    const staged_t<const fp16_t>* x_data = x_part.data();
    for (int64_t i = 0; i < size; ++i) out_part.data()[i] = x_data[i];
    out_part.store();
  });
}

/// Rounds floats to elements of type `T`.
template <typename T>
void from_floats(TensorView x, TensorView out, bool streams) {
  const auto* from = static_cast<const float*>(x.data_ptr());
  auto* to = static_cast<T*>(out.data_ptr());
  for_parts(0, x.numel(), [=]<typename Size>(int64_t at, Size size) {
    Staged<T, false> part(to + at, size, streams);
    staged_t<T>* data = part.data();
    for (int64_t i = 0; i < size; ++i) data[i] = static_cast<staged_t<T>>(from[at + i]);
    part.store();
  });
  stream_fence();
}

/// out = x + y, or x if y is absent.
template <typename T>
void add_optional(TensorView x, Optional<TensorView> y, TensorView out) {
  const T* y_ptr = y.has_value() ? static_cast<const T*>(y.value().data_ptr()) : nullptr;
  for_parts(0, x.numel(), [&]<typename Size>(int64_t at, Size size) {
    Staged<const T> x_part(static_cast<const T*>(x.data_ptr()) + at, size);
    StagedOptional<const T> y_part(y_ptr == nullptr ? nullptr : y_ptr + at, size);
    Staged<T, false> out_part(static_cast<T*>(out.data_ptr()) + at, size);
    const auto* y_data = y_part.data();
    for (int64_t i = 0; i < size; ++i) {
      out_part.data()[i] = x_part.data()[i] + (y_data == nullptr ? staged_t<T>{} : y_data[i]);
    }
    out_part.store();
  });
}

/// The sizes of the parts for tensors with elements of these types.
template <typename... Ts>
int64_t staged_parts(TensorView sizes, int64_t size, bool streams) {
  auto* out = static_cast<int32_t*>(sizes.data_ptr());
  int64_t count = 0;
  for_staged<Ts...>(0, size, streams, [&]<typename Size>(int64_t, Size part) {
    constexpr bool kStreams = requires(Size size) { []<int64_t kSize>(StreamedSize<kSize>) {}(size); };
    const bool wanted = streams && !std::is_integral_v<Size>;
    if (kStreams != wanted) throw host::PanicError(host::Message() << "a part streams, or does not");
    out[count++] = static_cast<int32_t>(part);
  });
  return count;
}

/// The sizes of the parts for `size` elements; negative if not a compile-time constant. Returns their number.
int64_t parts(TensorView sizes, int64_t size, bool smaller) {
  auto* out = static_cast<int32_t*>(sizes.data_ptr());
  int64_t count = 0, expected = 0;
  const auto note = [&]<typename Size>(int64_t at, Size part) {
    if (at != expected) throw host::PanicError(host::Message() << "a part begins at " << at << ", not at " << expected);
    expected += part;
    out[count++] = static_cast<int32_t>(std::is_same_v<Size, int64_t> ? -part : part);
  };
  if (smaller) {
    for_parts<kStaged, 32>(0, size, note);
  } else {
    for_parts(0, size, note);
  }
  return count;
}

/// Copies bytes in parts, with streaming stores if possible, and returns the number of streamed parts.
int64_t stream(TensorView x, TensorView out, bool streams) {
  const auto* from = static_cast<const uint8_t*>(x.data_ptr());
  auto* to = static_cast<uint8_t*>(out.data_ptr());
  int64_t streamed = 0;
  for_parts<kStaged, 64>(0, x.numel(), [&]<typename Size>(int64_t at, Size size) {
    Streamed<uint8_t> part(to + at, size, streams);
    for (int64_t i = 0; i < size; ++i) part.data()[i] = from[at + i];
    part.store();
    streamed += part.streams() ? 1 : 0;
  });
  stream_fence();
  return streamed;
}

/// Whether a tensor, and the address `offset` bytes after its start, begin at a cache line.
bool lines(TensorView x, int64_t offset) {
  const auto* data = static_cast<const uint8_t*>(x.data_ptr());
  return begin_lines(data, data + offset);
}

/// Whether floats and doubles, `numel` of each, exceed the caches.
bool exceeds(int64_t numel) {
  return exceeds_caches<float, double>(numel);
}

/// Doubles the elements of `x`, row by row, and copies the doubled rows to `out`; false if no tensor became one.
template <typename T>
bool double_rows(TensorView x, TensorView out, bool streams) {
  const int64_t row_size = x.size(1);
  StagedRow<T> x_rows(row_size);
  StagedRow<T, false> out_rows(row_size, streams);
  for (int64_t at = 0; at < x.size(0); ++at) {
    staged_t<T>* x_data = x_rows.move(static_cast<T*>(x.data_ptr()) + at * row_size);
    staged_t<T>* out_data = out_rows.move(static_cast<T*>(out.data_ptr()) + at * row_size);
    for (int64_t i = 0; i < row_size; ++i) out_data[i] = x_data[i] = x_data[i] * 2;
    x_rows.store();
    out_rows.store();
  }
  StagedRow<const T> absent(row_size);
  return absent.move(nullptr) == nullptr;
}

}  // namespace

KJIT_EXPORT(count, count)
KJIT_EXPORT(through_floats, through_floats)
KJIT_EXPORT(from_floats_fp16, from_floats<fp16_t>)
KJIT_EXPORT(from_floats_bf16, from_floats<bf16_t>)
KJIT_EXPORT(add_optional_fp16, add_optional<fp16_t>)
KJIT_EXPORT(add_optional_fp32, add_optional<float>)
KJIT_EXPORT(staged_parts_fp16, staged_parts<fp16_t>)
KJIT_EXPORT(staged_parts_fp32, staged_parts<float>)
KJIT_EXPORT(staged_parts_fp64_int8, (staged_parts<double, int8_t>))
KJIT_EXPORT(parts, parts)
KJIT_EXPORT(stream, stream)
KJIT_EXPORT(lines, lines)
KJIT_EXPORT(exceeds, exceeds)
KJIT_EXPORT(double_rows_fp16, double_rows<fp16_t>)
KJIT_EXPORT(double_rows_bf16, double_rows<bf16_t>)
