// Exports for test_ffi.py with tvm-ffi's own types: the same macro, tvm-ffi's conversions.

#include <kjit/tensor.h>

// Before tvm-ffi's headers, its names are kjit's types.
namespace {

static_assert(std::is_same_v<tvm::ffi::TensorView, kjit::TensorView>);

tvm::ffi::Tensor same_before(tvm::ffi::Tensor x) {
  return x;
}
tvm::ffi::Optional<tvm::ffi::Tensor> like_before(tvm::ffi::TensorView x, tvm::ffi::Optional<tvm::ffi::TensorView> y) {
  if (!y.has_value()) return {};
  return kjit::host::ffi::empty_like(x);
}

}  // namespace

// Some of them, without tvm-ffi's Tensor: its types mixed with kjit's.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tuple.h>

namespace {

using Pair = tvm::ffi::Tuple<tvm::ffi::Tensor, tvm::ffi::Tensor>;
static_assert(std::is_same_v<Pair, tvm::ffi::Tuple<kjit::host::ffi::Tensor, kjit::host::ffi::Tensor>>);

Pair pair_of_light_tensors(tvm::ffi::Tensor x, tvm::ffi::Optional<tvm::ffi::TensorView> y) {
  return Pair(x, y.has_value() ? kjit::host::ffi::empty_like(x) : x);
}

std::int64_t sum_of_sizes(tvm::ffi::Array<tvm::ffi::Tensor> tensors) {
  std::int64_t sum = 0;
  for (const tvm::ffi::Tensor& tensor : tensors) sum += tensor.numel();
  return sum;
}

}  // namespace

// All of them.
#include <kjit/tvm_ffi.h>
#include <tvm/ffi/extra/stl.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace {

/// Takes a `T` and inspects it, as a kernel would.
template <typename T>
void take(T) {}
std::int64_t elements_of(tvm::ffi::Array<tvm::ffi::Optional<tvm::ffi::Tensor>> tensors) {
  std::int64_t sum = 0;
  for (const auto& tensor : tensors) sum += tensor.has_value() ? tensor.value().numel() : -1;
  return sum;
}
std::int64_t elements_of_values(tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Tensor> tensors) {
  std::int64_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += tensor.numel();
  return sum;
}

static_assert(!std::is_same_v<tvm::ffi::TensorView, kjit::TensorView>);

tvm::ffi::Tensor same_after(tvm::ffi::Tensor x) {
  const kjit::host::ffi::Tensor light = x;
  tvm::ffi::TensorView view = kjit::TensorView(light);
  kjit::host::RuntimeCheck(view.data_ptr() == x.data_ptr() && view.dtype() == light.dtype());
  kjit::host::TensorMatcher({-1, -1}).verify(x, "x").verify(light, "light").verify(view, "view");
  return light;
}
tvm::ffi::Optional<tvm::ffi::Tensor> like_after(tvm::ffi::TensorView x, tvm::ffi::Optional<tvm::ffi::TensorView> y) {
  if (!y.has_value()) return std::nullopt;
  tvm::ffi::Tensor made = kjit::host::ffi::empty(x.shape(), x.dtype(), x.device());
  return made;
}

class CounterObject : public tvm::ffi::Object {
 public:
  std::int64_t total = 0;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("kjit.tests.Counter", CounterObject, tvm::ffi::Object);
};
KJIT_REGISTER_FFI_REFERENCE_CLASS(Counter, CounterObject);

tvm::ffi::ObjectRef new_counter() {
  return tvm::ffi::ObjectRef(tvm::ffi::make_object<CounterObject>());
}
std::int64_t count(Counter counter, tvm::ffi::TensorView x) {
  return counter->total += x.numel();
}

std::int64_t total(tvm::ffi::Array<std::int64_t> values, kjit::Optional<double> unused) {
  static_cast<void>(unused);
  std::int64_t sum = 0;
  for (const std::int64_t value : values) sum += value;
  return sum;
}

tvm::ffi::String greet(tvm::ffi::String name) {
  return "hello " + std::string(name);
}
std::int64_t twice(const tvm::ffi::Function& function, std::int64_t x) {
  return function(function(x).cast<std::int64_t>()).cast<std::int64_t>();
}
tvm::ffi::Any same(tvm::ffi::Any value) {
  return value;
}

/// Both views in one signature, and tvm-ffi's view in kjit's matcher.
std::int64_t rows(tvm::ffi::TensorView theirs, kjit::TensorView ours) {
  kjit::host::SymbolicSize n{"rows"};
  kjit::host::TensorMatcher({n, -1}).verify(theirs, "theirs").verify(ours, "ours");
  return n.unwrap();
}

void fail_as_index_error() {
  TVM_FFI_THROW(IndexError) << "past the end";
}
void fail_in_latin_1() {
  TVM_FFI_THROW(ValueError) << "caf\xe9";
}

}  // namespace

KJIT_EXPORT(tensors, take<tvm::ffi::Array<tvm::ffi::Tensor>>)
KJIT_EXPORT(views, take<std::vector<tvm::ffi::TensorView>>)
KJIT_EXPORT(tensor, take<tvm::ffi::Tensor>)
KJIT_EXPORT(optional_tensor, take<tvm::ffi::Optional<tvm::ffi::Tensor>>)
KJIT_EXPORT(function, take<tvm::ffi::Function>)
KJIT_EXPORT(ints, take<std::vector<int>>)
KJIT_EXPORT(bytes, take<tvm::ffi::Array<std::uint8_t>>)
KJIT_EXPORT(floats, take<tvm::ffi::Array<float>>)
KJIT_EXPORT(flags, take<tvm::ffi::Array<bool>>)
KJIT_EXPORT(nested, take<tvm::ffi::Array<tvm::ffi::Array<std::int64_t>>>)
KJIT_EXPORT(two_ints, (take<std::array<int, 2>>))
KJIT_EXPORT(pair, (take<tvm::ffi::Tuple<tvm::ffi::Tensor, double>>))
KJIT_EXPORT(std_tuple, (take<std::tuple<std::int16_t, std::string>>))
KJIT_EXPORT(map, (take<tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Tensor>>))
KJIT_EXPORT(std_map, (take<std::map<std::string, std::vector<int>>>))
KJIT_EXPORT(either, (take<tvm::ffi::Variant<tvm::ffi::Tensor, std::int64_t, tvm::ffi::Array<tvm::ffi::Tensor>>>))
KJIT_EXPORT(optional_double, take<tvm::ffi::Optional<double>>)
KJIT_EXPORT(optional_ints, take<std::optional<std::vector<int>>>)
KJIT_EXPORT(text, take<tvm::ffi::String>)
KJIT_EXPORT(object, take<tvm::ffi::ObjectRef>)
