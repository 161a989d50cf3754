"""What a call does with each kind of tensor that PyTorch has: eager, compiled, and through a module that was loaded.

The result is right, or there is one sentence of why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import kjit
from kjit.errors import KjitError
from kjit.ops.add_constant import add_constant
from kjit.runtime import eager_calls, native
from kjit.runtime.native import Native

X = torch.tensor([1.0, -2.5, 3.0])
Z = torch.complex(X, X + 1)


@pytest.fixture(autouse=True, params=["Python", "C++"])
def _way(request: pytest.FixtureRequest, compiled: Native, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(eager_calls, "settle", lambda _: None)  # it stays as it is here
    before = native.in_use()
    native.use(compiled if request.param == "C++" else None)
    torch._dynamo.reset()
    yield
    native.use(before)


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
    memory.op(make(), out=out)
    assert torch.equal(out, expected)
    with torch.no_grad():
        assert torch.equal(memory(make().clone().requires_grad_()), expected)


@lazy
def test_a_tensor_that_is_not_what_lies_in_memory_holds_afterwards_what_was_written(
    make: Callable[[], torch.Tensor],
) -> None:
    x = torch.ones_like(make())
    before = make().resolve_conj().resolve_neg()
    calls: list[Callable[..., object]] = [lambda x, out: memory(x, out=out), lambda x, out: memory.op(x, out=out)]
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
        for call in (lambda out, op=op: op(X, out=out), lambda out, op=op: op.op(X, out=out)):
            with pytest.raises(KjitError, match=message):
                call(zero)
    assert torch.equal(zero, torch.zeros(3))
