// Exports for test_tensor.py: matchers as kernels write them, and each pitfall on its own.

#include <kjit/tensor.h>

#include <array>
#include <span>

namespace {

using namespace kjit;        // NOLINT
using namespace kjit::host;  // NOLINT

std::int64_t two_tensors(TensorView dst, TensorView src) {
  SymbolicSize rows{"num_tokens"}, columns{"head_dim"};
  SymbolicDevice device;
  TensorMatcher({rows, columns})
      .with_device<kDLCPU>(device)
      .with_dtype<fp32_t, fp16_t>()
      .verify(src, "src")
      .verify(dst, "dst");
  return rows.unwrap() * columns.unwrap();
}

std::int64_t halves(TensorView x, TensorView out) {
  SymbolicSize N{"N"}, D{"D"};
  TensorMatcher({N, 2 * D}).verify(x, "x");
  TensorMatcher({N, D}).verify(out, "out");
  return D.unwrap();
}

std::int64_t groups(TensorView x, TensorView scales) {
  SymbolicSize N{"N"}, D{"D"};
  TensorMatcher({N, D}).verify(x, "x");
  TensorMatcher({N, D / 128}).verify(scales, "scales");
  return D.unwrap();
}

std::int64_t heads(TensorView flat, TensorView weight) {
  SymbolicSize H{"H"}, D{"D"};
  TensorMatcher({D}).verify(weight, "weight");
  const TensorMatcher matcher({H * D * 2});
  TensorMatcher(matcher).verify(flat, "flat").verify(flat, "flat");
  return H.unwrap();
}

std::int64_t joined(TensorView a, TensorView both) {
  SymbolicSize A{"A"}, B{"B"};
  TensorMatcher({A}).verify(a, "a");
  TensorMatcher({2 * A + B - 1}).verify(both, "both");
  return B.unwrap();
}

std::int64_t shifted(TensorView starts, TensorView x) {
  SymbolicSize N{"N"};
  TensorMatcher({N + 1}).verify(starts, "starts");
  TensorMatcher({N}).verify(x, "x");
  return N.unwrap();
}

std::int64_t listed(TensorListView xs, TensorView out) {
  SymbolicSize N{"N"}, D{"D"};
  TensorMatcher({N, D}).with_device<kDLCPU>().with_dtype<fp32_t>().verify(xs, "xs").verify(out, "out");
  std::int64_t elements = 0;
  for (const TensorView x : xs) elements += x.numel();
  return elements;
}

// The sum of the first elements, or -1 without `x`.
double maybe(Optional<TensorView> x, TensorView y) {
  SymbolicSize N{"N"};
  TensorMatcher({N}).with_dtype<double>().verify(x, "x").verify(y, "y");
  const double* first = data_of<const double>(x);
  return first == nullptr ? -1 : *first + *data_of<double>(y);
}

double first_of_each(TensorListView xs) {
  const double* pointers[4] = {};
  fill_pointers(pointers, xs, "xs");
  double sum = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) sum += *pointers[i];
  return sum;
}

void written(TensorView x) {
  TensorMatcher({-1, -1, -1}).with_strides({-1, -1, -1}).ensure_no_overlap().verify(x, "x");
}

void too_much(std::int64_t which, TensorView x) {
  SymbolicSize A{"A"}, B{"B"}, C{"C"};
  if (which == 0) TensorMatcher({A * B}).verify(x, "x");
  if (which == 1) TensorMatcher({A * B * C}).verify(x, "x");
  if (which == 2) TensorMatcher({A / 0}).verify(x, "x");
  if (which == 3) TensorMatcher({(A + B) * 2}).verify(x, "x");
  if (which == 4) TensorMatcher({A + B + C}).verify(x, "x");
  A.set_value(std::int64_t{1} << 62);
  if (which == 5) TensorMatcher({4 * A}).verify(x, "x");
}

void any_size(TensorView a, TensorView b) {
  TensorMatcher({-1, 3}).verify(a, "a").verify(b, "b");
}
void exact(TensorView x) {
  TensorMatcher({2, 3}).verify(x);
}
void scalar(TensorView x) {
  TensorMatcher({}).with_dtype<double>().verify(x, "x");
}

std::int64_t row_stride(TensorView x) {
  SymbolicSize rows, columns, stride{"row_stride"};
  TensorMatcher({rows, columns}).with_strides({stride, 1}).verify(x, "x");
  return stride.unwrap();
}

std::int64_t shared_row_stride(TensorView a, TensorView b) {
  SymbolicSize stride{"row_stride"};
  TensorMatcher({-1, -1}).with_strides({stride, 1}).verify(a, "a").verify(b, "b");
  return stride.unwrap();
}

void any_strides(TensorView x) {
  TensorMatcher({-1, -1}).with_strides({-1, -1}).verify(x, "x");
}

std::int64_t same_shape(TensorView a, TensorView b) {
  SymbolicShape shape{"x.shape"};
  TensorMatcher(shape).verify(a, "a").verify(b, "b");
  return shape.numel();
}

std::int64_t leading_dimensions(TensorView a, TensorView b, TensorView c) {
  SymbolicShape batch{"batch"};
  SymbolicSize columns{"columns"};
  TensorMatcher(batch, {columns}).verify(a, "a");
  TensorMatcher({columns}).verify(b, "b");
  TensorMatcher(batch).verify(c, "c");
  return batch.numel();
}

// The options are kept when the symbol is passed again without template arguments.
void device_options_are_kept(TensorView x) {
  SymbolicDevice device;
  device.set_options<kDLCUDA>();
  TensorMatcher({-1}).with_device(device).verify(x, "x");
}
void dtype_options_are_kept(TensorView x) {
  SymbolicDType dtype;
  dtype.set_options<fp16_t, bf16_t>();
  TensorMatcher({-1}).with_dtype(dtype).verify(x, "x");
}

template <typename T>
void of_type(TensorView x) {
  TensorMatcher({-1}).with_dtype<T>().verify(x, "x");
}

void one_dtype_for_both(TensorView a, TensorView b) {
  SymbolicDType dtype;
  TensorMatcher({-1}).with_dtype<fp32_t, fp16_t>(dtype).verify(a, "a");
  TensorMatcher({-1}).with_dtype(dtype).verify(b, "b");
}

void aligned(TensorView x, std::int64_t alignment) {
  TensorMatcher({-1, -1}).with_strides({-1, 1}).ensure_alignment(alignment).verify(x, "x");
}

void unwrap_nothing() {
  SymbolicSize("lost").unwrap();
}
void set_twice() {
  SymbolicSize n;
  n.set_value(1);
  n.set_value(2);
}

bool is_each_type(TensorView x) {
  SymbolicDType dtype;
  TensorMatcher({-1}).with_dtype(dtype).verify(x);
  return dtype.is_type<bf16_t>() && is_type<bf16_t>(x.dtype()) && !is_type<fp16_t>(x.dtype());
}

// A tensor larger than memory: only its description is used. 2^33 elements; a negative stride.
bool large_and_negative() {
  static float data[1];
  std::int64_t shape[] = {std::int64_t{1} << 32, 2};
  std::int64_t strides[] = {-2, 1};
  DLTensor tensor{data, DLDevice{kDLCPU, 0}, 2, DLDataType{kDLFloat, 32, 1}, shape, strides, 0};
  SymbolicSize n, stride;
  TensorMatcher({n, 2}).with_strides({stride, 1}).verify(&tensor, "x");
  return n.unwrap() == std::int64_t{1} << 32 && stride.unwrap() == -2 &&
         TensorView(&tensor).numel() == std::int64_t{1} << 33;
}

/// A description without memory: `dtype` at `address`, any sizes and strides.
struct Described {
  std::int64_t shape[2];
  std::int64_t strides[2];
  DLTensor tensor;

  Described(std::uintptr_t address, DLDataType dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
            std::int64_t column_stride)
      : shape{rows, columns},
        strides{row_stride, column_stride},
        tensor{reinterpret_cast<void*>(address), DLDevice{kDLCUDA, 0}, 2, dtype, shape, strides, 0} {}
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
};

void verify_at(std::int64_t address, DLDataType dtype, std::int64_t rows) {
  const Described at(static_cast<std::uintptr_t>(address), dtype, rows, 8, 8, 1);
  TensorMatcher({-1, 8}).verify(&at.tensor, "x");
}

// Every kind of stride, with sizes past 2^31: transposed, with gaps, expanded (0), negative.
bool strides_of_every_kind() {
  constexpr std::int64_t kLarge = (std::int64_t{1} << 32) + 3;
  constexpr DLDataType kHalf{kDLFloat, 16, 1};
  const Described transposed(64, kHalf, kLarge, 5, 1, kLarge), gaps(64, kHalf, kLarge, 5, 9, 1);
  const Described expanded(64, kHalf, kLarge, 5, 0, 1), negative(64, kHalf, kLarge, 5, -7, 1);
  bool right = true;
  for (const Described* each : {&transposed, &gaps, &expanded, &negative}) {
    const TensorView view(&each->tensor);
    SymbolicSize rows, columns, row_stride, column_stride;
    TensorMatcher({rows, columns}).with_strides({row_stride, column_stride}).verify(view);
    right = right && rows.unwrap() == kLarge && row_stride.unwrap() == each->strides[0] &&
            column_stride.unwrap() == each->strides[1] && !view.is_contiguous() && view.numel() == 5 * kLarge;
  }
  const Described contiguous(64, kHalf, kLarge, 5, 5, 1), one(64, kHalf, 1, 1, 77, -3), none(63, kHalf, 0, 5, 9, 3);
  for (const Described* each : {&contiguous, &one, &none}) {
    right = right && TensorView(&each->tensor).is_contiguous();
    TensorMatcher({-1, -1}).verify(&each->tensor);
  }
  return right;
}

bool values_may_be_asked_for() {
  SymbolicSize n{"head_dim"};
  SymbolicDType dtype;
  SymbolicDevice device;
  RuntimeCheck(!n.get_value().has_value() && !dtype.get_value() && !device.get_value());
  RuntimeCheck(StringView(n.value_or_name("shape", 1).c_str()) == "shape#1('head_dim')");
  RuntimeCheck(StringView(SymbolicSize().value_or_name("stride", 0).c_str()) == "stride#0");
  n.set_value(7);
  dtype.set_value({kDLInt, 32, 1});
  device.set_value({kDLCUDA, 3});
  return *n.get_value() == 7 && n.get_value().value_or(1) == 7 &&
         dtype.get_value().value() == DLDataType{kDLInt, 32, 1} && device.get_value()->device_id == 3 &&
         StringView(n.value_or_name("shape", 1).c_str()) == "7" && n.get_name() == "head_dim";
}

void options_from_lists(TensorView x) {
  const std::array<DLDataType, 2> dtypes{DLDataType{kDLFloat, 16, 1}, DLDataType{kDLFloat, 32, 1}};
  const DLDevice devices[] = {{kDLCUDA, 0}, {kDLCPU, 0}};
  SymbolicDType dtype;
  SymbolicDevice device;
  dtype.set_options(dtypes);
  device.set_options(std::span<const DLDevice>(devices));
  TensorMatcher({-1}).with_dtype(dtype).with_device(device).verify(x, "x");
  TensorMatcher({-1}).with_device(std::span<const DLDevice>(devices)).with_dtype(std::span(dtypes)).verify(x, "x");
}

// A matcher may be stored and reused.
void a_named_matcher(TensorView a, TensorView b) {
  SymbolicSize n{"n"};
  TensorMatcher matcher({n});
  matcher.with_device<kDLCPU>();
  matcher.with_dtype<fp32_t>().verify(a, "a");
  matcher.verify(b, "b");
}

// Declared with `auto`, and copied after a symbol was bound.
void a_matcher_that_auto_keeps(TensorView a, TensorView b) {
  SymbolicSize n{"n"};
  auto matcher = TensorMatcher({n, -1}).with_strides({-1, 1}).with_device<kDLCPU>().with_dtype<fp32_t, fp16_t>();
  auto copy = matcher;
  matcher.verify(a, "a");
  auto bound = matcher.ensure_alignment(2);
  copy.verify(b, "b");  // its dtype is its own
  bound.verify(b, "b of the dtype of a");
}

bool dtypes_and_devices_are_compared(TensorView a, TensorView b) {
  return a.dtype() == b.dtype() && a.device() == b.device() && !(a.dtype() != b.dtype());
}

void no_data() {
  std::int64_t shape[] = {4};
  DLTensor tensor{nullptr, DLDevice{kDLCPU, 0}, 1, DLDataType{kDLFloat, 32, 1}, shape, nullptr, 0};
  TensorMatcher({4}).verify(&tensor, "x");
}

}  // namespace

KJIT_EXPORT(of_bool, of_type<bool>)
KJIT_EXPORT(of_uint8, of_type<std::uint8_t>)
KJIT_EXPORT(of_int64, of_type<std::int64_t>)
KJIT_EXPORT(of_float16, of_type<fp16_t>)
KJIT_EXPORT(of_bfloat16, of_type<bf16_t>)
KJIT_EXPORT(of_float8_e4m3fn, of_type<fp8_e4m3_t>)
KJIT_EXPORT(of_float8_e5m2, of_type<fp8_e5m2_t>)
