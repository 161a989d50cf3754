"""kjit's light headers do what tvm-ffi's own do: one source, compiled with both, is called in all ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kjit import load_jit
from kjit.engine.toolchain.locations import kjit_include

SOURCE = r"""
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

using namespace tvm::ffi;

namespace {

#ifdef TVM_FFI_OBJECT_H_
bool is_whole() { return true; }
#else
bool is_whole() { return false; }
#endif

enum class Mode : int32_t { kFirst = 1, kSecond = 2 };

// All that a tensor tells.
int64_t told(TensorView x) {
  int64_t sum = x.ndim() + 10 * x.numel() + 100 * x.dtype().bits + 1000 * x.device().device_type;
  for (int i = 0; i < x.dim(); ++i) sum = sum * 31 + x.size(i) * 7 + x.stride(-1 - i) + x.sizes()[i];
  if (x.ndim() > 0) sum += x.shape().front() + x.shape().back() + x.shape().at(0) + x.strides().back();
  sum += x.IsContiguous() ? 1 : 0;
  sum = sum * 2 + static_cast<int64_t>(GetDataSize(x)) + static_cast<int64_t>(x.byte_offset());
  return sum + (x.dtype() == DLDataType{kDLFloat, 32, 1} ? 5 : 0) + (x.dtype() != DLDataType{kDLInt, 64, 1} ? 3 : 0);
}
double first(const TensorView& x) { return *static_cast<const float*>(x.data_ptr()); }
double second_row(TensorView x) {
  return first(x.as_strided({x.size(1)}, {x.stride(1)}, x.stride(0)));
}
double owned(Tensor x) {
  Tensor y = x, z = std::move(x);
  return y.defined() && z.defined() && !x.defined() ? first(z) + y.ndim() : -1.0;
}
Tensor made(TensorView like, int64_t n) {
  Tensor y = Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {n, 2}, like.dtype(), like.device());
  static_cast<float*>(y.data_ptr())[0] = 7;
  return y;
}
int64_t shaped(TensorView x) {
  const Shape copy = x.shape(), made{2, 3}, none;
  const ShapeView view = made;
  const Shape doubled(std::vector<int64_t>{4, 6});
  int64_t sum = copy.Product() + 10 * view.Product() + 100 * doubled[1] + (none.empty() ? 1000 : 0);
  for (const int64_t size : Shape(copy.begin(), copy.end())) sum += size;
  sum += made.front() + made.back() + static_cast<int64_t>(made.size());
  return sum + copy.at(static_cast<size_t>(x.ndim() - 2));
}
Tensor none() { return Tensor(); }
double numbers(int8_t a, uint32_t b, bool c, float d, double e, Mode mode) {
  return a + 2.0 * b + (c ? 4 : 0) + 8 * d + 16 * e + 32 * static_cast<int>(mode);
}
bool is_even(int64_t n) { return n % 2 == 0; }
float half(float x) { return x / 2; }
void* same(void* p) { return p; }
int32_t rank(DLTensor* x) { return x->ndim; }
int64_t given(Optional<TensorView> x, Optional<int64_t> n, Optional<double> by, Optional<bool> flag) {
  int64_t sum = x.has_value() ? x.value().numel() + (*x).ndim() : -1;
  sum = sum * 10 + n.value_or(5);
  sum = sum * 10 + (by ? static_cast<int64_t>(*by) : 2);
  return sum * 10 + (flag == std::nullopt ? 0 : flag.value() ? 1 : 2);
}
int64_t asked(Optional<int64_t> n) { return n.value(); }
void checked(int64_t n, TensorView x) {
  TVM_FFI_ICHECK(n != 1);
  TVM_FFI_ICHECK_NE(n, 2) << "n is two";
  TVM_FFI_CHECK_LT(n, 1000, ValueError) << "n is large";
  TVM_FFI_CHECK(n != 3, ValueError) << "of " << x.dtype() << ", " << DLDataTypeToString(StringToDLDataType("int4x2"));
  if (n == 4) TVM_FFI_THROW(NotImplementedError) << "four";
  if (n == 5) throw std::runtime_error("plain");
  if (n == 6) StringToDLDataType("no dtype");
  if (n == 7) x.size(9);
  if (n == 8) x.shape().at(5);
  if (n == 9) throw Error("KeyError", "made", "");
}
// What a caught error says of itself.
Tensor caught(TensorView x, int64_t n) {
  try {
    checked(n, x);
  } catch (const Error& error) {
    const Error copy = error;
    throw Error(copy.kind() + "X", copy.message() + "|" + copy.what() +
                    (copy.backtrace().find("checked") != std::string::npos ? "|at" : "|nowhere") +
                    (copy.FullMessage().rfind("Traceback (most recent call last):\n", 0) == 0 ? "|told" : ""), "");
  }
  return Tensor();
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(is_whole, is_whole);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(told, told);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(first, first);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(second_row, second_row);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(owned, owned);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(made, made);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(none, none);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(shaped, shaped);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(numbers, numbers);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(is_even, is_even);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(half, half);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(same, same);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rank, rank);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(given, given);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(asked, asked);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(checked, checked);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(caught, caught);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(lambda, [](int64_t n) { return n + 1; });

// kjit's exports, of the same types.
#include <kjit/ffi.h>
KJIT_EXPORT(kjit_told, told)
KJIT_EXPORT(kjit_made, made)
KJIT_EXPORT(kjit_owned, owned)
KJIT_EXPORT(kjit_given, given)
KJIT_EXPORT(kjit_checked, checked)
"""

X = torch.arange(12, dtype=torch.float32).reshape(3, 4)

Call = Callable[[Any], object]
CALLS: dict[str, Call] = {
    "told": lambda m: [m.told(x) for x in (X, X.T, X[1:, ::2], X[:0], torch.tensor(1.0), X.to(torch.int64))],
    "views": lambda m: [m.first(X), m.second_row(X), m.owned(X), m.rank(X)],
    "results": lambda m: [(y := m.made(X, 3)).shape, y.dtype, y[0, 0].item(), m.none(), m.half(3.0), m.half(3)],
    "numbers": lambda m: [m.numbers(1, 2, True, 0.5, 3, 2), m.numbers(True, 2, 1, 1, True, 1), m.lambda_(4)],
    "shapes": lambda m: m.shaped(X),
    "beyond a shape": lambda m: m.shaped(X[0]),
    "truth": lambda m: [m.is_even(4), m.is_even(3), m.is_even(True)],
    "optional": lambda m: [m.given(X, 3, 4.0, True), m.given(None, None, None, None), m.given(X, 3, 4, False)],
    "pointers": lambda m: [m.same(None)],
    **{f"check {n}": lambda m, n=n: m.checked(n, X) for n in (*range(1, 10), 1001)},
    **{f"caught {n}": lambda m, n=n: m.caught(X, n) for n in (1, 2, 3, 4, 6, 7, 9)},
    "no value": lambda m: m.asked(None),
    "too few": lambda m: m.made(X),
    "too many": lambda m: m.none(1),
    "not a tensor": lambda m: m.made(1, 2),
    "not a number": lambda m: m.made(X, "2"),
    "not a bool": lambda m: m.given(X, 1, 1.0, 0.5),
    "not an integer": lambda m: m.is_even(0.5),
    "not optional": lambda m: m.given("x", None, None, None),
    "not a pointer": lambda m: m.same(3.5),
    "not owned": lambda m: m.owned(1),
    "kjit": lambda m: [m.kjit_told(X), m.kjit_made(X, 3).shape, m.kjit_owned(X), m.kjit_given(None, 3, 4.0, True)],
    "kjit, no tensor": lambda m: m.kjit_owned(None),
    "kjit, not a tensor": lambda m: m.kjit_told(1),
    "kjit, not optional": lambda m: m.kjit_given(X, 0.5, None, None),
    "kjit, an error": lambda m: m.kjit_checked(2, X),
}


class Renamed:
    """A module whose function `lambda` can be written in Python."""

    def __init__(self, module: Any) -> None:
        self.lambda_ = module["lambda"]
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return self._module[name]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The source with tvm-ffi's own headers, and with the light ones."""
    folder = tmp_path_factory.mktemp("light")
    source = folder / "op.cpp"
    source.write_text(SOURCE)

    def module(*include: Path) -> Any:
        return Renamed(load_jit("light", cpp_files=[source], extra_include_paths=include, extra_cflags=["-O0"]))

    return module(), module(kjit_include() / "kjit_light")


def test_both_are_compiled(modules: tuple[Any, Any]) -> None:
    assert [module.is_whole() for module in modules] == [True, False]


def told_by(module: Any, call: Call) -> tuple[object, ...]:
    try:
        return "returned", repr(call(module))
    except Exception as error:  # noqa: BLE001 (whichever it is, the other module raises the same)
        return type(error), str(error)


@pytest.mark.parametrize("name", CALLS)
def test_both_do_the_same(modules: tuple[Any, Any], name: str) -> None:
    own, light = (told_by(module, CALLS[name]) for module in modules)
    assert light == own
