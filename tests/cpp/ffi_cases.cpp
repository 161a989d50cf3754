// Exports for test_ffi.py: every kind of argument and result.

#include <kjit/ffi.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// As in kernels for SGLang's headers, whose namespace becomes kjit.
namespace kjit {
using tvm::ffi::TensorView;
static_assert(std::is_same_v<TensorView, host::TensorView>);
}  // namespace kjit

namespace {

static_assert(std::is_same_v<decltype(std::declval<kjit::TensorView>().strides()), kjit::host::StrideView>);

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
std::int64_t device_id(DLDevice device) {
  return device.device_id;
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
void throw_text() {
  throw "only text";
}
void throw_latin_1() {
  throw std::runtime_error("caf\xe9, \xed\xa0\x80 and \xf0\x9f\x98");
}
struct Silent : std::exception {
  const char* what() const noexcept override { return ""; }
};
void throw_silent() {
  throw Silent();
}
void panic_with_a_null(StringView text) {
  kjit::host::Panic("before ", text, " after");
}
void throw_much(std::int64_t size) {
  throw std::runtime_error(std::string(static_cast<std::size_t>(size), 'x') + " the end");
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

// Without tvm-ffi's C++ headers its names are kjit's types, so that kernels written for those headers compile.
static_assert(std::is_same_v<tvm::ffi::TensorView, TensorView>);
static_assert(std::is_same_v<tvm::ffi::Tensor, kjit::host::ffi::Tensor>);
static_assert(std::is_same_v<tvm::ffi::Optional<double>, Optional<double>>);

namespace ffi = kjit::host::ffi;
using tvm::ffi::Tensor;

Tensor same_tensor(Tensor x) {
  return x;
}
Tensor no_tensor() {
  return {};
}
Tensor made_like(TensorView x) {
  return ffi::empty_like(x);
}
Tensor made(TensorView x, std::int64_t rows, DLDataType dtype) {
  return ffi::empty({rows, x.size(-1), 2}, dtype, x.device());
}
Tensor made_scalar(TensorView x) {
  return ffi::empty({}, x.dtype(), x.device());
}
Tensor made_without_an_allocator(DLDevice device) {
  return ffi::empty({3}, DLDataType{kDLFloat, 32, 1}, device);
}
Tensor first_or_new(Optional<Tensor> first, TensorView like) {
  return first.has_value() ? *first : ffi::empty_like(like);
}
Optional<Tensor> maybe(Optional<Tensor> x) {
  return x;
}

std::int64_t workspace_bytes(TensorView x, std::int64_t bytes) {
  const Tensor workspace = ffi::alloc_workspace_tensor(static_cast<std::size_t>(bytes), x.device());
  if (!workspace.defined()) return workspace.data_ptr() == nullptr ? -1 : -2;
  return workspace.numel() * static_cast<std::int64_t>(kjit::host::dtype_bytes(workspace.dtype()));
}

/// A tensor's properties are those of its view; a copy shares it.
bool a_tensor_answers_like_its_view(Tensor x) {
  const TensorView view = x;
  const Tensor copy = x;
  const Tensor moved = std::move(x);
  return !x.defined() && copy.object() == moved.object() && copy.ndim() == view.ndim() && copy.dim() == view.dim() &&
         copy.dtype() == view.dtype() && copy.device() == view.device() && copy.shape().data() == view.shape().data() &&
         copy.sizes().size() == view.sizes().size() && copy.strides()[0] == view.strides()[0] &&
         copy.size(-1) == view.size(-1) && copy.stride(-1) == view.stride(-1) && copy.data_ptr() == view.data_ptr() &&
         copy.byte_offset() == 0 && copy.numel() == view.numel() && copy.is_contiguous() == view.is_contiguous() &&
         copy.IsContiguous() == view.IsContiguous() && copy.GetDLTensorPtr()->data == moved.GetDLTensorPtr()->data;
}

std::int64_t size_of_no_tensor() {
  return Tensor().size(0);
}

/// Rows of ones in memory of C++: the deleter counts, and runs when the last reference is dropped.
int freed = 0;
Tensor from_memory(std::int64_t rows, std::int64_t columns) {
  auto* memory = new float[static_cast<std::size_t>(rows * columns) + 1];
  for (std::int64_t i = 0; i <= rows * columns; ++i) memory[i] = static_cast<float>(i);
  const auto free_it = [](void* data) {
    delete[] static_cast<float*>(data);
    ++freed;
  };
  // The byte offset skips the first element; the deleter still gets the start of the memory.
  return ffi::from_blob(memory, {rows, columns}, {kDLFloat, 32, 1}, {kDLCPU, 0}, free_it, {}, sizeof(float));
}
std::int64_t freed_so_far() {
  return freed;
}

float numbers[] = {0, 1, 2, 3, 4, 5};
Tensor transposed_numbers() {
  const std::int64_t strides[] = {1, 2};
  return ffi::from_blob(
      numbers, {2, 3}, {kDLFloat, 32, 1}, {kDLCPU, 0}, [](void*) {}, kjit::host::ShapeView(strides, 2));
}
Tensor numbers_like(TensorView x, bool is_contiguous) {
  return ffi::from_blob_like(numbers, x, [](void*) {}, is_contiguous);
}
void ranks_that_differ() {
  static_cast<void>(
      ffi::from_blob(numbers, {2, 3}, {kDLFloat, 32, 1}, {kDLCPU, 0}, [](void*) {}, kjit::host::ShapeView{1}));
}

bool shapes_are_made_of_lists_and_vectors(TensorView x) {
  using kjit::host::ShapeView;
  const std::vector<std::int64_t> sizes{2, 3, 4};
  const auto product = [](ShapeView shape) { return shape.Product(); };
  const ShapeView shape = sizes;
  return product({5, 6}) == 30 && product(ShapeView()) == 1 && product(x.shape()) == x.numel() && shape.size() == 3 &&
         shape.front() == 2 && shape.back() == 4 && shape[1] == 3 && !shape.empty() && shape.end() - shape.begin() == 3;
}

struct Pair {
  std::int16_t first, second;
};
template <typename T>
bool is_data_of(TensorView x) {
  return x.data_ptr<T>() == x.data_ptr() && kjit::host::ffi::Tensor().data_ptr<T>() == nullptr;
}

// In a build nothing: this function has no instance that compiles.
template <typename T>
void never_instantiated() {
  static_assert(sizeof(T) == 0);
}
KJIT_EDITOR_CHECKS(never_instantiated<int>);

}  // namespace

KJIT_EXPORT(is_data_of_float, is_data_of<float>)
KJIT_EXPORT(is_data_of_const_float, is_data_of<const float>)
KJIT_EXPORT(is_data_of_int64, is_data_of<std::int64_t>)
KJIT_EXPORT(is_data_of_bool, is_data_of<bool>)
KJIT_EXPORT(is_data_of_pair, is_data_of<Pair>)
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
KJIT_EXPORT(twice, &Twice::run)
KJIT_EXPORT(five_times, (Times<5, std::int64_t>::run))
KJIT_EXPORT(count_of_list, [](kjit::TensorListView xs, double) { return static_cast<std::int64_t>(xs.size()); })
