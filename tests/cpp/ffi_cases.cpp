// Exports for test_ffi.py: one of every kind of argument and result.

#include <kjit/ffi.h>

#include <new>

namespace {

using kjit::Optional;
using kjit::StringView;
using kjit::TensorView;

template <typename T>
T echo(T value) {
  return value;
}

double sum_of_all(TensorView x) {
  const auto* data = static_cast<const float*>(x.data_ptr());
  double sum = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) sum += data[i];
  return sum;
}

std::int64_t optional_rank(Optional<TensorView> x) {
  return x ? x->ndim() : -1;
}
double optional_value(Optional<double> x) {
  return x.value();
}
double optional_or(Optional<double> x) {
  return x.value_or(7.5);
}

std::int64_t text_size(StringView text) {
  return static_cast<std::int64_t>(text.size());
}
bool text_is_float32(StringView text) {
  return text == "float32";
}

std::int64_t dtype_bits(DLDataType dtype) {
  return dtype.bits;
}
std::int64_t device_type(DLDevice device) {
  return device.device_type;
}
std::int64_t address(void* pointer) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(pointer));
}

void nothing() {}

struct Twice {
  static int run(int x) { return 2 * x; }
};

template <int kFactor, typename T>
struct Times {
  static T run(const T& x) noexcept { return static_cast<T>(kFactor * x); }
};

void throw_bad_alloc() {
  throw std::bad_alloc();
}
void throw_an_int() {
  throw 42;
}
void throw_panic(std::int64_t n) {
  kjit::host::Panic("n is ", n, ", a ", 0.5, " of ", true);
}

std::int64_t size_at(TensorView x, std::int64_t dimension) {
  return x.size(dimension);
}
std::int64_t stride_at(TensorView x, std::int64_t dimension) {
  return x.stride(dimension);
}
bool contiguous(TensorView x) {
  return x.is_contiguous();
}

// Tensors that Python cannot make: without strides, and with a byte offset.
bool null_strides_mean_contiguous() {
  std::int64_t shape[] = {2, 3, 4};
  DLTensor tensor{nullptr, DLDevice{kDLCPU, 0}, 3, DLDataType{kDLFloat, 32, 1}, shape, nullptr, 0};
  const TensorView view(&tensor);
  return view.is_contiguous() && view.stride(0) == 12 && view.stride(1) == 4 && view.stride(-1) == 1;
}

bool byte_offset_is_counted_in() {
  char data[16] = {};
  std::int64_t shape[] = {1};
  DLTensor tensor{data, DLDevice{kDLCPU, 0}, 1, DLDataType{kDLFloat, 32, 1}, shape, nullptr, 8};
  return TensorView(&tensor).data_ptr() == data + 8;
}

}  // namespace

KJIT_EXPORT(echo_bool, echo<bool>)
KJIT_EXPORT(echo_int8, echo<std::int8_t>)
KJIT_EXPORT(echo_int16, echo<std::int16_t>)
KJIT_EXPORT(echo_int32, echo<std::int32_t>)
KJIT_EXPORT(echo_int64, echo<std::int64_t>)
KJIT_EXPORT(echo_uint8, echo<std::uint8_t>)
KJIT_EXPORT(echo_uint16, echo<std::uint16_t>)
KJIT_EXPORT(echo_uint32, echo<std::uint32_t>)
KJIT_EXPORT(echo_uint64, echo<std::uint64_t>)
KJIT_EXPORT(echo_float, echo<float>)
KJIT_EXPORT(echo_double, echo<double>)
KJIT_EXPORT(half_of_uint64, [](std::uint64_t x) { return x / 2; })
KJIT_EXPORT(sum_of_all, sum_of_all)
KJIT_EXPORT(optional_rank, optional_rank)
KJIT_EXPORT(optional_value, optional_value)
KJIT_EXPORT(optional_or, optional_or)
KJIT_EXPORT(text_size, text_size)
KJIT_EXPORT(text_is_float32, text_is_float32)
KJIT_EXPORT(dtype_bits, dtype_bits)
KJIT_EXPORT(device_type, device_type)
KJIT_EXPORT(address, address)
KJIT_EXPORT(nothing, nothing)
KJIT_EXPORT(twice, &Twice::run)
KJIT_EXPORT(five_times, (Times<5, std::int64_t>::run))
KJIT_EXPORT(throw_bad_alloc, throw_bad_alloc)
KJIT_EXPORT(throw_an_int, throw_an_int)
KJIT_EXPORT(throw_panic, throw_panic)
KJIT_EXPORT(size_at, size_at)
KJIT_EXPORT(stride_at, stride_at)
KJIT_EXPORT(contiguous, contiguous)
KJIT_EXPORT(null_strides_mean_contiguous, null_strides_mean_contiguous)
KJIT_EXPORT(byte_offset_is_counted_in, byte_offset_is_counted_in)
