// Exports for test_ffi.py: tvm-ffi's headers come before kjit's, so its names are its own types throughout.

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/optional.h>
// After tvm-ffi's.
#include <kjit/tensor.h>

// As in kernels for SGLang's headers, whose namespace becomes kjit.
namespace kjit {
using tvm::ffi::TensorView;
static_assert(std::is_same_v<TensorView, tvm::ffi::TensorView>);
}  // namespace kjit

namespace {

static_assert(!std::is_same_v<tvm::ffi::TensorView, kjit::host::TensorView>);
static_assert(!std::is_same_v<tvm::ffi::Tensor, kjit::host::ffi::Tensor>);

std::int64_t rows(tvm::ffi::TensorView x, tvm::ffi::Optional<tvm::ffi::TensorView> y) {
  kjit::host::SymbolicSize n{"rows"};
  kjit::host::TensorMatcher({n, -1}).verify(x, "x");
  return n.unwrap() + (y.has_value() ? y.value().size(0) : 0);
}

tvm::ffi::Tensor made_like(tvm::ffi::TensorView x) {
  // Both libraries have a comparison.
  kjit::host::RuntimeCheck(x.dtype() == DLDataType{kDLFloat, 32, 1}, "wrong dtype");
  return kjit::host::ffi::empty(x.shape(), x.dtype(), x.device());
}

}  // namespace

KJIT_EXPORT(rows, rows)
KJIT_EXPORT(made_like, made_like)
