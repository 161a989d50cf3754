"""Calls with every kind of tensor that PyTorch has: eager, compiled, and of a loaded module.

The result is right, or there is one sentence of why not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import kjit
from kjit.errors import KjitError
from kjit.ops.add_constant import _add_constant, add_constant

X = torch.tensor([1.0, -2.5, 3.0])
Z = torch.complex(X, X + 1)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def torch_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend="aot_eager")


# -- tensors that are not what lies in memory


@kjit.torch_op(outputs=torch.empty_like, name="kjit_kinds::memory")
def memory(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Twice what lies in memory, as a kernel sees it."""
    out = torch.empty_like(x) if out is None else out
    _in_memory(out)[...] = 2 * _in_memory(x)
    return out


@kjit.torch_op(mutates_args=("x",), name="kjit_kinds::memory_")
def memory_(x: torch.Tensor) -> None:
    _in_memory(x)[...] *= 2


def _in_memory(x: torch.Tensor) -> np.ndarray[Any, Any]:
    x = x.detach()
    if x.numel() and not x.data_ptr():  # which `numpy` of torch 2.6 takes
        raise RuntimeError("there is no memory")
    x = x.conj() if x.is_conj() else x
    x = torch._neg_view(x) if x.is_neg() else x
    return torch.view_as_real(x).numpy() if x.is_complex() else x.numpy()


LAZY = {
    "conj": lambda: Z.clone().conj(),
    "H": lambda: Z.clone().reshape(1, 3).H,
    "neg": lambda: torch._neg_view(X.clone()),
    "imag": lambda: Z.clone().conj().imag,
    "neg_of_conj": lambda: torch._neg_view(Z.clone().conj()),
}
lazy = pytest.mark.parametrize("make", LAZY.values(), ids=LAZY)
"""Tensors that are the conjugate or the opposite of what lies in memory."""


@lazy
def test_a_tensor_that_is_not_what_lies_in_memory_is_read_as_it_is(make: Callable[[], torch.Tensor]) -> None:
    expected = make().resolve_conj().resolve_neg() * 2
    for call in (memory, torch_compiled(memory), lambda x: memory(x, out=torch.empty_like(expected))):
        assert torch.equal(call(make()), expected)
    out = torch.empty_like(expected)
    torch.ops.kjit_kinds.memory.out(make(), out=out)
    assert torch.equal(out, expected)
    assert torch.equal(memory.op(make()), expected)
    with torch.no_grad():
        assert torch.equal(memory(make().clone().requires_grad_()), expected)


@lazy
def test_a_tensor_that_is_not_what_lies_in_memory_holds_afterwards_what_was_written(
    make: Callable[[], torch.Tensor],
) -> None:
    x = torch.ones_like(make())
    before = make().resolve_conj().resolve_neg()
    calls: list[Callable[..., object]] = [
        lambda x, out: memory(x, out=out),
        lambda x, out: torch.ops.kjit_kinds.memory.out(x, out=out),
    ]
    if before.is_contiguous() and make().is_contiguous():  # Dynamo takes no other `out=`
        calls.append(torch_compiled(lambda x, out: memory(x, out=out)))
    for call in calls:
        out = make()
        bits, version = (out.is_conj(), out.is_neg()), out._version
        call(x, out)
        assert torch.equal(out, x * 2)
        assert (out.is_conj(), out.is_neg()) == bits
        assert out._version > version
    for change in (memory_, memory_.op, torch_compiled(memory_)):
        changed = make()
        change(changed)
        assert torch.equal(changed, before * 2)


def test_a_gradient_flows_through_a_conjugate() -> None:
    def square(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        out = torch.empty_like(x) if out is None else out
        _in_memory(out)[...] = torch.view_as_real((x * x).detach().resolve_conj()).numpy()
        return out

    op = kjit.torch_op(outputs=torch.empty_like, name="kjit_kinds::square")(square)
    op.register_autograd(
        lambda ctx, grad: grad * 2 * ctx.saved_tensors[0].conj(),
        setup_context=lambda ctx, inputs, _: ctx.save_for_backward(inputs[0]),
    )
    z = Z.to(torch.complex128).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: op(z.conj()), (z,))


def test_a_zero_tensor_is_read_and_not_written_to() -> None:
    zero = torch._efficientzerotensor(3)
    add_constant(X)
    assert torch.equal(add_constant(zero), torch.ones(3))
    assert torch.equal(memory(zero, out=torch.ones(3)), torch.zeros(3))
    for op, name in ((memory, "memory"), (add_constant, "add_constant")):
        message = f"op '{name}' cannot write to 'out', which is a zero tensor and has no memory"
        for call in (lambda out, op=op: op(X, out=out), lambda out, op=op: op.op.overloadpacket(X, out=out)):
            with pytest.raises(KjitError, match=message):
                call(zero)
    assert torch.equal(zero, torch.zeros(3))


# -- all kinds, all calls


class _Subclass(torch.Tensor):
    pass


class _WithoutFunction(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class _Wrapper(torch.Tensor):
    """Holds another tensor, and has no memory of its own."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def of(inner: torch.Tensor) -> _Wrapper:
        made = torch.Tensor._make_wrapper_subclass(_Wrapper, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(value: Any) -> Any:
            return value.inner if isinstance(value, _Wrapper) else value

        result = function(*map(unwrap, args), **{name: unwrap(value) for name, value in (kwargs or {}).items()})
        return _Wrapper.of(result) if isinstance(result, torch.Tensor) else result


def _freed() -> torch.Tensor:
    x = X.clone()
    x.untyped_storage().resize_(0)
    return x


def _in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return X.clone()


def _fake() -> torch.Tensor:
    with FakeTensorMode() as mode:
        return mode.from_tensor(X)


def _escaped(transform: Callable[..., Callable[..., object]], x: torch.Tensor) -> torch.Tensor:
    """The tensor inside a transform, after the transform has ended."""
    seen: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x.sum()

    transform(keep)(x)
    return seen[0]


RIGHT = ""
NO_DATA = "is a tensor of 3 elements without data"
NOT_CONTIGUOUS = "Tensor is not contiguous as expected"
NO_GRADIENT = "op 'add_constant' has no gradient, but '{name}' requires one"
NOT_DENSE = "cannot use '{name}', which is not a dense tensor"
TRANSFORMED = "cannot use '{name}', which a transform of torch.func has made"
REFUSED = "."  # in PyTorch's or tvm-ffi's words

# By kind: what makes one; and what an op (eager, then compiled), `jit`, and a loaded or declared module say. None: it
# is PyTorch's business alone, or the kernel takes what is in memory.
KINDS: dict[str, tuple[Callable[[], torch.Tensor], str | None, str | None, str | None, str | None]] = {
    "plain": (X.clone, RIGHT, RIGHT, RIGHT, RIGHT),
    "empty": (lambda: torch.empty(0), RIGHT, RIGHT, RIGHT, RIGHT),
    "behind_an_offset": (lambda: torch.cat([X, X])[3:], RIGHT, RIGHT, RIGHT, RIGHT),
    "made_in_inference_mode": (_in_inference_mode, RIGHT, None, RIGHT, RIGHT),
    "subclass": (lambda: X.clone().as_subclass(_Subclass), RIGHT, None, RIGHT, RIGHT),
    "subclass_without_function": (lambda: X.clone().as_subclass(_WithoutFunction), RIGHT, None, RIGHT, RIGHT),
    "wrapper": (lambda: _Wrapper.of(X.clone()), RIGHT, None, NO_DATA, NO_DATA),
    "opposite": (lambda: torch._neg_view(X.clone()), RIGHT, RIGHT, None, None),
    "imaginary": (lambda: Z.clone().conj().imag, RIGHT, None, None, None),
    "freed": (_freed, NO_DATA, None, NO_DATA, NO_DATA),
    "parameter": (lambda: torch.nn.Parameter(X.clone()), NO_GRADIENT, NO_GRADIENT, RIGHT, RIGHT),
    "expanded": (lambda: torch.ones(1).expand(3), NOT_CONTIGUOUS, None, NOT_CONTIGUOUS, NOT_CONTIGUOUS),
    "sparse_coo": (lambda: X.to_sparse(), NOT_DENSE, None, NOT_DENSE, REFUSED),
    "sparse_csr": (lambda: torch.eye(3).to_sparse_csr(), NOT_DENSE, None, NOT_DENSE, REFUSED),
    "mkldnn": (lambda: X.to_mkldnn(), NOT_DENSE, None, NOT_DENSE, REFUSED),
    "nested": (lambda: torch.nested.nested_tensor([X, X[:1]]), NOT_DENSE, None, NOT_DENSE, REFUSED),
    "jagged": (
        lambda: torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged), NOT_DENSE, None, NOT_DENSE, REFUSED
    ),
    "escaped_from_vmap": (
        lambda: _escaped(torch.vmap, torch.ones(2, 3)), TRANSFORMED, None, TRANSFORMED, REFUSED
    ),
    "escaped_from_grad": (lambda: _escaped(torch.func.grad, X), RIGHT, None, TRANSFORMED, REFUSED),
}  # fmt: skip


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.inner if isinstance(tensor, _Wrapper) else tensor
    return tensor.detach().as_subclass(torch.Tensor).resolve_neg()


def _check(call: Callable[..., object], said: str, x: torch.Tensor, out: torch.Tensor, name: str) -> None:
    """Check that a call writes to `out` what it must, or says why not, of the tensor called so."""
    if said == RIGHT:
        expected = _plain(x) + 1
        call(x, out)
        assert torch.equal(_plain(out), expected)
    else:
        place = {"x": "1", "out": "2"}[name]
        with pytest.raises((RuntimeError, NotImplementedError), match=said.format(name=name, place=place)):
            call(x, out)


@pytest.fixture(scope="module")
def calls() -> dict[str, Callable[..., object]]:
    """By how a kernel is called."""
    spec = _add_constant.spec(torch.float32, 1)
    parts: dict[str, Any] = {"cpp_files": spec.cpp_files, "cpp_wrappers": spec.cpp_wrappers}
    module = kjit.load_jit(spec.name, *spec.args, **parts)

    @kjit.jit(spec.name, *spec.args, **parts)
    def by_jit(module: Any, x: torch.Tensor, out: torch.Tensor) -> None:
        module.add_constant(x, out)

    return {
        "op": lambda x, out: add_constant(x, out=out),
        "compiled": torch_compiled(lambda x, out: add_constant(x, out=out)),
        "jit": by_jit,
        "load_jit": lambda x, out: module.add_constant(x, out),
        "module": lambda x, out: _add_constant(torch.float32, 1, device="cpu").add_constant(x, out),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of these tensors
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_is_right_or_says_why_not(kind: str, calls: dict[str, Callable[..., object]]) -> None:
    make, *told = KINDS[kind]
    for name, call in calls.items():
        said = dict(zip(("op", "compiled", "jit"), told, strict=False)).get(name, told[3])
        if said is None:
            continue
        tensor = make()
        like = torch.zeros(tensor.shape if said == RIGHT else (3,))
        _check(call, said, tensor, _Wrapper.of(like) if isinstance(tensor, _Wrapper) else like, "x")
        if not (name == "compiled" and isinstance(tensor, torch.nn.Parameter)):  # Dynamo takes none as `out=`
            _check(call, said, like, make(), "out")


@pytest.mark.parametrize("make", [lambda: X.to("meta"), _fake], ids=["meta", "fake"])
def test_a_tensor_that_stands_for_another_gives_one(make: Callable[[], torch.Tensor], calls: Any) -> None:
    assert (add_constant(make()).shape, type(add_constant(make()))) == (X.shape, type(make()))
    said = {
        "jit": "by_jit was called with tensors on meta and on cpu",
        "load_jit": "Cannot pack tensors on meta",
    }
    if not make().is_meta:
        said = dict.fromkeys(said, r"add_constant\(\): argument 1 of 2 is a tensor of 3 elements without data")
    for name in ("jit", "load_jit", "module"):
        with pytest.raises(RuntimeError, match=said.get(name, said["load_jit"])):
            calls[name](make(), torch.empty(3))


@kjit.torch_op(outputs=torch.empty_like, name="kjit_kinds::any_dtype")
def any_dtype(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    _add_constant(torch.float32, 1, device="cpu").add_constant(x, out)
    return out


@kjit.torch_op(outputs=lambda x: torch.empty_like(x), name="kjit_kinds::with_dtype")
def with_dtype(x: torch.Tensor, kind: torch.dtype, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    _add_constant(torch.float32, 1, device="cpu").add_constant(x, kind)
    return out


def test_a_dtype_that_an_op_hands_on_is_named() -> None:
    with pytest.raises(KjitError, match="op 'with_dtype' cannot use 'kind', as tvm-ffi has no"):
        with_dtype(X, torch.bits8)
    for call in (with_dtype.op, torch_compiled(with_dtype)):
        with pytest.raises(ValueError, match="Unsupported torch dtype"):
            call(X, torch.bits8)


def test_modes_change_nothing() -> None:
    class Layer(torch.nn.Module):
        weight: torch.Tensor

        def forward(self) -> torch.Tensor:
            return add_constant(self.weight)

    layer = Layer()
    layer.register_buffer("weight", X.clone())
    assert torch.equal(torch.func.functional_call(layer, {"weight": X * 2}), X * 2 + 1)
    with torch.autocast("cpu", torch.bfloat16):
        for call in (add_constant, torch_compiled(add_constant)):
            assert torch.equal(call(X), X + 1)
    with torch.overrides.BaseTorchFunctionMode():
        assert torch.equal(add_constant(X), X + 1)
    with torch.device("meta"):  # what is made is there, not what is given
        assert torch.equal(add_constant(X, out=torch.empty_like(X)), X + 1)
