// Exports for test_ffi.py with tvm-ffi's own types: the same macro, their conversion.

#include <kjit/tensor.h>
#include <kjit/tvm_ffi.h>

namespace {

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

KJIT_EXPORT(total, total)
KJIT_EXPORT(greet, greet)
KJIT_EXPORT(same, same)
KJIT_EXPORT(rows, rows)
KJIT_EXPORT(fail_as_index_error, fail_as_index_error)
