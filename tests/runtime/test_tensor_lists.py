# ruff: noqa: ARG001 (signatures are what is tested here, not bodies)
"""Ops with lists of tensors: each tensor in a list is checked like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import kjit
from kjit.errors import KjitError, UsageError

X = torch.tensor([1.0, -2.5, 3.0])

# Plain Python functions stand in for kernels.
calls: list[str] = []


def _like_first(xs: list[torch.Tensor]) -> torch.Tensor:
    return torch.empty_like(xs[0])


@kjit.torch_op(outputs=_like_first, name="kjit_lists::total")
def total(xs: list[torch.Tensor], alpha: float = 1.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = _like_first(xs) if out is None else out
    calls.append("total")
    return out.copy_(alpha * torch.stack(list(xs)).sum(0))


@kjit.torch_op(mutates_args=("xs",), name="kjit_lists::add_")
def add_(xs: Sequence[torch.Tensor], by: torch.Tensor) -> None:
    calls.append("add_")
    for x in xs:
        x.add_(by)


@kjit.torch_op(outputs=_like_first, name="kjit_lists::product")
def product(xs: list[torch.Tensor], y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = _like_first(xs) if out is None else out
    return out.copy_(y * xs[0] * xs[1])


def _setup(ctx: Any, inputs: tuple[list[torch.Tensor], torch.Tensor], output: torch.Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[0], inputs[1])


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    a, b, y = ctx.saved_tensors
    return [grad * y * b, grad * y * a], grad * a * b


product.register_autograd(_backward, setup_context=_setup)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()
    torch._dynamo.reset()


def torch_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("make", [list, tuple])
def test_a_list_and_a_tuple_of_tensors_go_straight_to_the_kernel(make: Callable[..., Any]) -> None:
    given = []

    @kjit.torch_op(outputs=_like_first, name="kjit_lists::kept")
    def kept(xs: list[torch.Tensor], *, out: torch.Tensor | None = None) -> torch.Tensor:
        given.append(xs)
        return _like_first(xs)

    xs = make([X, X])
    kept(xs)
    assert given[0] is xs


def test_torch_compile_takes_a_list() -> None:
    assert torch.equal(torch_compiled(lambda xs: total(xs, 2.0) + 1)([X, X + 1]), 2 * (2 * X + 1) + 1)
    xs = [X.clone(), X.clone()]
    torch_compiled(lambda xs: add_(xs, X))(xs)
    assert torch.equal(xs[1], 2 * X)


def test_opcheck_passes() -> None:
    for op, arguments, outs in (
        (total.op, ([X, X], 2.0), {}),
        (torch.ops.kjit_lists.total.out, ([X, X], 2.0), {"out": X.clone()}),
        (add_.op, ([X.clone(), X.clone()], X), {}),
    ):
        assert set(torch.library.opcheck(op, arguments, outs).values()) == {"SUCCESS"}


def test_what_is_written_to_in_a_list_counts_as_changed() -> None:
    xs = [X.clone(), X.clone()]

    @kjit.torch_op(mutates_args=("xs",), name="kjit_lists::written_")
    def written_(xs: list[torch.Tensor]) -> None: ...

    for changes, call in enumerate((written_, written_.op), start=1):
        call(xs)
        assert [x._version for x in xs] == [changes, changes]


def test_a_gradient_in_a_list_is_refused_with_the_tensor_that_requires_it() -> None:
    leaf = X.clone().requires_grad_()
    for call in (total, torch_compiled(lambda xs: total(xs))):
        # Which `torch.compile` has in an error of its own.
        with pytest.raises((KjitError, RuntimeError), match=r"op 'total' has no gradient, but 'xs\[1\]' requires one"):
            call([X, leaf])
    with pytest.raises(KjitError, match=r"'xs\[1\]' requires one") as caught:
        total.op([X, leaf])
    assert "pass xs[1].detach()" in (caught.value.hint or "")
    with torch.no_grad():
        assert torch.equal(total([X, leaf]), 2 * X)


def test_a_list_may_have_a_backward() -> None:
    for call in (product, torch_compiled(lambda xs, y: product(xs, y))):
        a, b, y = (X.clone().requires_grad_() for _ in range(3))
        call([a, b], y).sum().backward()
        assert torch.equal(a.grad, X * X)
        assert torch.equal(b.grad, X * X)
        assert torch.equal(y.grad, X * X)
    with pytest.raises(KjitError, match=r"cannot write to a tensor .* and 'xs\[0\]' requires one"):
        product([a, b], X, out=X.clone())


def test_what_is_not_as_it_lies_in_memory_is_copied_for_the_kernel() -> None:
    opposite = torch._neg_view(X.clone())
    assert torch.equal(total([X, opposite]), torch.zeros(3))
    xs = [X.clone(), torch._neg_view(X.clone())]
    add_(xs, X)
    assert torch.equal(xs[0], 2 * X)
    assert torch.equal(xs[1], torch.zeros(3))


def test_fake_and_meta_tensors_in_a_list_give_such_a_result() -> None:
    with FakeTensorMode() as mode:
        assert total([mode.from_tensor(X)]).shape == X.shape
    assert calls == []
    meta = X.to("meta")

    @kjit.torch_op(mutates_args=("xs",), name="kjit_lists::no_meta_")
    def no_meta_(xs: list[torch.Tensor]) -> None:
        raise RuntimeError("a kernel has no data to work on")

    no_meta_([meta, meta])
    with pytest.raises(KjitError, match=r"cannot write to 'xs\[0\]', which is on cpu: 'xs\[1\]' is on the meta device"):
        no_meta_([X, meta])


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        (None, "'xs' must be a list of tensors, not NoneType"),
        (X, "'xs' must be a list of tensors, not Tensor"),
        ([X, None], r"'xs\[1\]' must be a tensor, not NoneType"),
        ([3.0], r"'xs\[0\]' must be a tensor, not float"),
        ([[X]], r"'xs\[0\]' must be a tensor, not list"),
    ],
)
def test_what_is_no_list_of_tensors_is_a_type_error_that_names_the_place(xs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"total\(\): argument {message}"):
        total(xs)


def _absent(xs: list[torch.Tensor] | None, *, out: torch.Tensor | None = None) -> torch.Tensor:
    raise AssertionError


def _of_absent(xs: list[torch.Tensor | None], *, out: torch.Tensor | None = None) -> torch.Tensor:
    raise AssertionError


def _tuple(xs: tuple[torch.Tensor, torch.Tensor], *, out: torch.Tensor | None = None) -> torch.Tensor:
    raise AssertionError


@pytest.mark.parametrize("function", [_absent, _of_absent, _tuple])
def test_tensors_elsewhere_are_refused(function: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match="has tensors in it, and gradients there would go unnoticed") as caught:
        kjit.torch_op(outputs=_like_first, name="kjit_lists::broken")(function)
    assert "`xs: list[torch.Tensor]`" in (caught.value.hint or "")
