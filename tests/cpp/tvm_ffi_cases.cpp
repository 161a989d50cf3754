// Exports for test_ffi.py with tvm-ffi's own types: the same macro, their conversion.

#include <kjit/tensor.h>

// Ahead of tvm-ffi's headers its names mean kjit's types.
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

// Some of them, without their Tensor: theirs mixed with kjit's.
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

namespace {

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

}  // namespace

KJIT_EXPORT(same_before, same_before)
KJIT_EXPORT(same_after, same_after)
KJIT_EXPORT(like_before, like_before)
KJIT_EXPORT(like_after, like_after)
KJIT_EXPORT(pair_of_light_tensors, pair_of_light_tensors)
KJIT_EXPORT(sum_of_sizes, sum_of_sizes)
KJIT_EXPORT(new_counter, new_counter)
KJIT_EXPORT(count, count)
KJIT_EXPORT(total, total)
KJIT_EXPORT(greet, greet)
KJIT_EXPORT(same, same)
KJIT_EXPORT(rows, rows)
KJIT_EXPORT(fail_as_index_error, fail_as_index_error)
