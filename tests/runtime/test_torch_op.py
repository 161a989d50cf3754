# ruff: noqa: ARG001 (signatures are what is tested here, not bodies)
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import kjit
from kjit.errors import KjitError, UsageError
from kjit.ops.add_constant import add_constant

if TYPE_CHECKING:
    from decimal import Decimal


# Plain Python functions stand in for kernels: what is tested here is the way to them.
calls: list[str] = []


def _empty(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@kjit.torch_op(outputs=_empty, name="kjit_tests::scale")
def scale(x: torch.Tensor, alpha: float = 2.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return x * alpha."""
    if out is None:
        out = _empty(x)
    calls.append("scale")
    out.copy_(x * alpha)
    return out


@kjit.torch_op(mutates_args=("x",), name="kjit_tests::bump_")
def bump_(x: torch.Tensor, amount: int = 1) -> None:
    x.add_(amount)


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@kjit.torch_op(outputs=_halves, name="kjit_tests::halves")
def halves(
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    low: torch.Tensor | None = None,
    high: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    new_low, new_high = _halves(x)
    low = new_low if low is None else low
    high = new_high if high is None else high
    low.copy_(x.floor())
    high.copy_(x.ceil() if bias is None else x.ceil() + bias)
    return low, high


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()
    torch._dynamo.reset()


def torch_compiled(function: Callable[..., object]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend="aot_eager")


X = torch.tensor([1.0, -2.5, 3.0])


# -- eager


def test_an_eager_call_returns_a_new_output_or_writes_to_the_one_that_it_is_given() -> None:
    assert torch.equal(scale(X, 3.0), X * 3)
    out = torch.empty_like(X)
    assert scale(X, out=out) is out
    assert torch.equal(out, X * 2)
    low, high = halves(X, high=out)
    assert high is out
    assert torch.equal(low, X.floor())


@pytest.mark.parametrize(
    ("make", "what", "hint"),
    [
        (lambda: X.to_sparse(), "sparse_coo", "to_dense()"),
        (lambda: torch.eye(3).to_sparse_csr(), "sparse_csr", "to_dense()"),
        (lambda: X.to_mkldnn(), "_mkldnn", "to_dense()"),
        (lambda: torch.nested.nested_tensor([X, X[:1]]), "nested", "to_padded_tensor(0)"),
        (lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.quint8), "quantized", "dequantize()"),
    ],
    ids=["sparse_coo", "sparse_csr", "mkldnn", "nested", "quantized"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of these tensors
def test_a_tensor_that_is_not_dense_is_named(make: Callable[[], torch.Tensor], what: str, hint: str) -> None:
    value = make()
    add_constant(X)
    with pytest.raises(KjitError) as caught:
        add_constant(X, out=value)
    assert caught.value.message == f"op 'add_constant' cannot use 'out', which is not a dense tensor ({what})."
    assert caught.value.hint == f"out.{hint} makes a dense one of it"
    with pytest.raises((KjitError, TypeError), match=r"'x', which is not a dense tensor|quint8"):
        add_constant(value)


def test_the_op_keeps_its_name_docstring_and_signature() -> None:
    assert (scale.__name__, scale.__doc__, scale.__module__) == ("scale", "Return x * alpha.", __name__)
    with pytest.raises(TypeError, match=r"scale\(\) missing 1 required positional argument: 'x'"):
        scale()


def test_a_parameter_may_have_a_name_that_the_generated_function_could_have_used() -> None:
    @kjit.torch_op(outputs=lambda registered: torch.empty_like(registered), name="kjit_tests::named")
    def named(
        registered: torch.Tensor, call: float = 1.0, factory: float = 1.0, *, outputs: torch.Tensor | None = None
    ) -> torch.Tensor:
        outputs = torch.empty_like(registered) if outputs is None else outputs
        return outputs.copy_(registered * call * factory)

    assert torch.equal(named(X, 2.0, 3.0), X * 6)
    assert named(X.to("meta")).is_meta


@pytest.mark.parametrize("value", [None, 3, [1.0]])
def test_what_is_no_tensor_is_a_type_error_that_names_the_argument(value: Any) -> None:
    for call in (lambda: scale(value), lambda: scale(value, out=torch.empty(3))):
        with pytest.raises(TypeError, match=rf"scale\(\): argument 'x' must be a tensor, not {type(value).__name__}"):
            call()
    if value is not None:
        with pytest.raises(TypeError, match=rf"scale\(\): argument 'out' must be a tensor, not {type(value).__name__}"):
            scale(X, out=value)


@kjit.torch_op(outputs=lambda x: torch.empty_like(x), name="kjit_tests::numbers")
def takes_numbers(
    x: torch.Tensor, a: float, n: int = 1, flag: bool = False, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    return out.copy_(x * a + n + flag)


takes_numbers.register_autograd(lambda _, grad: (grad, None, None, None))


@pytest.mark.parametrize(
    ("name", "value", "came"),
    [
        ("a", torch.tensor(2.5, requires_grad=True), "a tensor"),
        ("a", None, "NoneType"),
        ("a", np.bool_(True), type(np.bool_(True)).__name__),
        ("n", torch.tensor(2.7), "a tensor"),
        ("n", np.float32(2.0), "float32"),
        ("n", 2.0, "float"),
        ("flag", None, "NoneType"),
        ("flag", 0.3, "float"),
        ("flag", 2, "int"),
        ("flag", torch.tensor(True), "a tensor"),
    ],
)
@pytest.mark.parametrize("way", ["gradient", "subclass"])
def test_a_number_is_not_converted_on_the_way_through_pytorch(name: str, value: object, came: str, way: str) -> None:
    x = X.clone().requires_grad_() if way == "gradient" else X.as_subclass(type("Own", (torch.Tensor,), {}))
    kind = {"a": "float", "n": "int", "flag": "bool"}[name]
    with pytest.raises(TypeError, match=rf"takes_numbers\(\): argument '{name}' must be {kind}, not {came}"):
        takes_numbers(x, **{"a": 1.0, name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("a", 2), ("a", True), ("a", np.float32(2.5)), ("a", np.int64(2)), ("n", True), ("n", np.int64(3)), ("flag", 1)],
)
def test_numbers_of_other_types_are_numbers(name: str, value: Any) -> None:
    given: dict[str, Any] = {"a": 1.0, name: value}
    assert torch.equal(takes_numbers(X.clone().requires_grad_(), **given), takes_numbers(X, **given))


def test_an_error_of_the_kernel_reaches_the_caller() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"):
        scale(X, out=torch.empty(2))


# -- gradients


def test_a_tensor_that_requires_a_gradient_is_refused() -> None:
    leaf = X.clone().requires_grad_()
    registered = torch.ops.kjit_tests.scale.out
    for call in (scale, scale.op, lambda x: registered(x, out=torch.empty_like(X)), torch_compiled(scale)):
        with pytest.raises(RuntimeError, match="op 'scale' has no gradient, but 'x' requires one") as error:
            call(leaf)
        assert "torch.no_grad()" in str(error.value)
    with pytest.raises(KjitError, match="'out' requires one"):
        scale(X, out=leaf)
    assert calls == []
    for guard in (torch.no_grad, torch.inference_mode):
        with guard():
            assert torch.equal(scale(torch.nn.Parameter(X)), X * 2)


@pytest.mark.parametrize("guard", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_autograd_notices_that_a_saved_tensor_was_overwritten(guard: Callable[[], Any]) -> None:
    weight = torch.ones(3, requires_grad=True)
    for overwrite in (
        bump_,
        lambda x: scale(X, out=x),
        lambda x: torch.ops.kjit_tests.scale.out(X, out=x),
        lambda x: halves(X, high=x),
    ):
        x = X.clone()
        loss = (weight * x).sum()
        with guard():
            overwrite(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_tangent_is_refused_as_there_is_no_forward_mode() -> None:
    with forward_ad.dual_level(), pytest.raises(KjitError, match="no gradient in forward mode, and 'x' carries a tan"):
        scale(forward_ad.make_dual(X.clone(), X))
    with pytest.raises(KjitError, match="no gradient in forward mode"):
        torch.func.jvp(scale, (X,), (X,))
    assert calls == []
    with forward_ad.dual_level():
        assert torch.equal(scale(X), X * 2)  # no tangent, no error


# -- gradients that the user gives


@kjit.torch_op(outputs=_empty, name="kjit_tests::cube")
def cube(x: torch.Tensor, factor: float = 1.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = _empty(x) if out is None else out
    calls.append("cube")
    # Not what autograd could see through.
    out.numpy()[...] = factor * x.detach().numpy() ** 3
    return out


def _cube_setup(ctx: Any, inputs: tuple[torch.Tensor, float], output: torch.Tensor) -> None:
    x, ctx.factor = inputs
    ctx.save_for_backward(x)


def _cube_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    (x,) = ctx.saved_tensors
    return grad * 3 * ctx.factor * x * x, None


cube.register_autograd(_cube_backward, setup_context=_cube_setup)


@pytest.mark.parametrize("arguments", [(), (2.0,)])
def test_an_op_with_a_backward_has_a_gradient(arguments: tuple[float, ...]) -> None:
    x = X.clone().requires_grad_()
    cube(x * 1, *arguments).sum().backward()
    assert torch.equal(x.grad, 3 * sum(arguments or (1.0,)) * X * X)
    assert torch.autograd.gradcheck(cube, (X.double().requires_grad_(), *arguments))


@pytest.mark.parametrize("guard", [torch.enable_grad, torch.no_grad])
def test_an_op_with_a_backward_goes_straight_to_the_kernel_where_no_gradient_is_needed(
    guard: Callable[[], Any],
) -> None:
    x = X.clone().requires_grad_(guard is torch.no_grad)
    with guard(), torch.profiler.profile() as profile:
        assert not cube(x).requires_grad
    assert "kjit_tests::cube" not in [event.key for event in profile.key_averages()]


def test_torch_compile_takes_an_op_with_a_backward() -> None:
    x = X.clone().requires_grad_()
    y = torch_compiled(lambda x: cube(x + 1, 2.0).sin())(x)
    assert torch.equal(y, (2 * (X + 1) ** 3).sin())
    y.sum().backward()
    expected = X.clone().requires_grad_()
    (2 * (expected + 1) ** 3).sin().sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)
    assert torch.equal(torch_compiled(cube)(X), X**3)


@pytest.mark.inductor
def test_inductor_compiles_the_backward_too() -> None:
    x = X.clone().requires_grad_()
    torch.compile(lambda x: cube(x + 1), fullgraph=True, backend="inductor")(x).sum().backward()
    torch.testing.assert_close(x.grad, 3 * (X + 1) ** 2)


def test_the_plain_name_is_the_op_that_returns_new_outputs() -> None:
    assert str(scale.op._schema) == "kjit_tests::scale(Tensor x, float alpha=2.) -> Tensor"
    assert str(halves.op._schema).endswith("-> (Tensor, Tensor)")
    assert torch.equal(scale.op(X, 3.0), X * 3)
    assert torch.equal(torch.ops.kjit_tests.scale(X), X * 2)
    out = torch.empty_like(X)
    assert torch.ops.kjit_tests.scale(X, out=out) is None
    assert torch.equal(out, X * 2)
    assert all(map(torch.equal, halves.op(X), halves(X)))
    assert bump_.op(X.clone()) is None


def test_an_exported_program_calls_the_plain_name() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.kjit_tests.scale.default(x, 3.0) + 1

    exported = torch.export.export(Model(), (X,))
    assert scale.op in [node.target for node in exported.graph.nodes]
    assert torch.equal(exported.module()(X), X * 3 + 1)


def test_an_op_that_changes_an_input_and_returns_an_output_has_both_forms() -> None:
    @kjit.torch_op("kjit_tests::count_and_copy", outputs=lambda x: torch.empty_like(x), mutates_args=["seen"])
    def count_and_copy(x: torch.Tensor, seen: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        out = torch.empty_like(x) if out is None else out
        seen.detach().add_(1)
        return out.copy_(x)

    seen = torch.zeros(3)
    version = seen._version
    assert torch.equal(count_and_copy.op(X, seen), X)
    assert torch.equal(seen, torch.ones(3))
    assert seen._version > version
    compiled = torch.compile(lambda x, seen: count_and_copy.op(x, seen), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(X, seen), X)
    assert torch.equal(seen, torch.full((3,), 2.0))
    negative = torch._neg_view(torch.zeros(3))
    count_and_copy.op(X, negative)
    assert torch.equal(negative, torch.ones(3))


def test_a_gradient_and_an_output_that_is_given_do_not_go_together() -> None:
    message = "op 'cube' cannot write to a tensor that it is given and record a gradient, and 'x' requires one"
    x, out = X.clone().requires_grad_(), torch.empty_like(X)
    with pytest.raises(KjitError, match=message) as error:
        cube(x, out=out)
    assert error.value.hint is not None
    assert "leave out= away" in error.value.hint
    with pytest.raises(RuntimeError, match=message):
        torch_compiled(lambda x, out: cube(x, out=out))(x, out)


def test_an_op_with_several_outputs_and_an_absent_input_may_have_a_backward() -> None:
    def split(
        x: torch.Tensor,
        y: torch.Tensor | None = None,
        *,
        low: torch.Tensor | None = None,
        high: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return x.detach().clamp(max=0), x.detach().clamp(min=0)

    op = kjit.torch_op(outputs=_halves, name="kjit_tests::split")(split)
    op.register_autograd(lambda _, low, high: (2 * low + 3 * high, None))
    x = X.clone().requires_grad_()
    low, high = op(x)
    (low + high).sum().backward()
    assert torch.equal(x.grad, torch.full_like(X, 5))
    op.register_autograd(lambda _, low, __: (low * 0, None))
    x.grad = None
    op(x)[0].sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(X))


def test_an_op_that_changes_an_input_can_have_no_backward() -> None:
    with pytest.raises(UsageError, match=r"op 'bump_' changes an input \(x\), and can have no backward"):
        bump_.register_autograd(lambda _: None)


# -- the rest of PyTorch


@pytest.mark.parametrize(
    ("op", "args", "outs"),
    [
        (scale.op, (X, 3.0), ()),
        (torch.ops.kjit_tests.scale.out, (X, 3.0), ("out",)),
        (torch.ops.kjit_tests.scale.out, (torch.empty(0),), ("out",)),
        (bump_.op, (X.clone(), 2), ()),
        (cube.op, (X.clone().requires_grad_(), 2.0), ()),
        (halves.op, (X, X), ()),
        (torch.ops.kjit_tests.halves.out, (X, X), ("low", "high")),
    ],
)
def test_opcheck_passes(op: torch._ops.OpOverload, args: tuple[object, ...], outs: tuple[str, ...]) -> None:
    result = torch.library.opcheck(op, args, {name: torch.empty_like(args[0]) for name in outs})
    assert set(result.values()) == {"SUCCESS"}


def test_torch_compile_takes_it_whole() -> None:
    result = torch_compiled(lambda x: scale(x + 1, 3.0) - 1)(X)
    assert torch.equal(result, (X + 1) * 3 - 1)
    x = torch.arange(6.0).reshape(2, 3).t()
    assert torch.equal(torch_compiled(scale)(x, 3.0), x * 3)
    mine = torch.empty_like(X)
    low, high = torch_compiled(lambda x, high: halves(x, high=high))(X, mine)
    assert high is mine
    assert torch.equal(low, X.floor())
    assert torch.equal(high, X.ceil())


def test_torch_compile_sees_that_an_input_changes() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        before = x * 1
        bump_(x)
        return before + x

    x = X.clone()
    assert torch.equal(torch_compiled(step)(x), X + X + 1)
    assert torch.equal(x, X + 1)


def test_torch_compile_serves_every_size_with_one_graph() -> None:
    function = torch.compile(scale, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for size in (3, 8, 129):
            assert torch.equal(function(torch.ones(size)), torch.full((size,), 2.0))


@pytest.mark.inductor
def test_a_parameter_may_have_a_name_that_pytorch_compiles_ops_with() -> None:
    @kjit.torch_op(outputs=lambda x: torch.empty_like(x), mutates_args=("mode_",), name="kjit_tests::compiled_named")
    def named(x: torch.Tensor, mode_: torch.Tensor, mode: str, *, node: torch.Tensor | None = None) -> torch.Tensor:
        node = torch.empty_like(x) if node is None else node
        mode_.add_(1)
        return node.copy_({"twice": 2, "thrice": 3}[mode] * x)

    call = torch.compile(lambda x, y: named(x, y, mode="thrice") + 1, fullgraph=True, backend="inductor")
    counts, node = torch.zeros(3), torch.empty(3)
    assert torch.equal(call(X, counts), 3 * X + 1)
    assert torch.equal(named(X, counts, "twice", node=node), 2 * X)
    assert torch.equal(node, 2 * X)
    assert torch.equal(counts, torch.full((3,), 2.0))
    schema = torch.ops.kjit_tests.compiled_named.out._schema
    assert [argument.name for argument in schema.arguments] == ["x", "mode_", "mode__", "node_"]
    result = torch.library.opcheck(torch.ops.kjit_tests.compiled_named.out, (X, counts, "twice"), {"node_": node})
    assert set(result.values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("module", [False, True])
def test_jit_trace_records_the_op(module: bool) -> None:
    def rotate_(x: torch.Tensor) -> None:
        x.numpy()[...] = x.numpy()[::-1].copy()  # not what a trace could see through

    rotate = kjit.torch_op(mutates_args=("x",), name="kjit_tests::rotate_")(rotate_)

    class Step(torch.nn.Module):
        def forward(self, x: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = add_constant(x) * 2
            add_constant(x, out=out)
            rotate(y)
            return y, out

    step = Step()
    traced = torch.jit.trace(step if module else step.forward, (torch.arange(3.0), torch.zeros(3)))
    given = torch.zeros(3)
    y, out = traced(X, given)
    assert torch.equal(y, ((X + 1) * 2).flip(0))
    assert torch.equal(given, X + 1)
    assert torch.equal(out, X + 1)


def test_meta_tensors_get_a_meta_output() -> None:
    def kernel(x: torch.Tensor, alpha: float = 2.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
        raise KjitError("there is no module for the device meta.")

    assert kjit.torch_op(outputs=_empty, name="kjit_tests::no_meta")(kernel)(X.to("meta")).is_meta


@pytest.mark.parametrize("guard", [torch.enable_grad, torch.no_grad])
def test_a_meta_tensor_beside_real_ones_is_refused_rather_than_leaving_memory_as_it_was(
    guard: Callable[[], Any],
) -> None:
    def kernel(*tensors: torch.Tensor | None) -> None:
        # As tvm-ffi does.
        if any(tensor is not None and tensor.is_meta for tensor in tensors):
            raise RuntimeError("a tensor on the meta device")

    def norm(x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        kernel(x, weight, out)
        return torch.empty_like(x)

    def shift_(x: torch.Tensor | None = None, by: torch.Tensor | None = None, y: torch.Tensor | None = None) -> None:
        kernel(x, by, y)

    norm_op = kjit.torch_op(outputs=_empty, name="kjit_tests::norm")(norm)
    norm_op.register_autograd(lambda _, grad: (grad, grad))
    shift_op = kjit.torch_op(mutates_args=("x", "y"), name="kjit_tests::shift_")(shift_)
    meta, leaf = X.to("meta"), X.clone().requires_grad_()
    message = "op 'norm' cannot write to 'out', which is on cpu: 'weight' is on the meta device and has no data"
    with guard():
        for call in (lambda: norm_op(X, meta), lambda: norm_op(X, meta, out=X), lambda: norm_op(leaf, meta)):
            with pytest.raises(KjitError, match=message):
                call()
        with pytest.raises(KjitError, match="'out', which is on cpu: 'x' is on the meta device"):
            norm_op(meta, X, out=X)
        with pytest.raises(KjitError, match="op 'shift_' cannot write to 'x', which is on cpu: 'by' is on the meta"):
            shift_op(X, meta)
        with pytest.raises(KjitError, match="cannot write to 'y', which is on cpu: 'x' is on the meta"):
            shift_op(meta, None, X)
        # Where all that is written has no data either, nothing is lost.
        assert norm_op(meta, meta).is_meta
        shift_op(meta, X)
        shift_op(meta)
        with FakeTensorMode() as mode:
            assert norm_op(mode.from_tensor(X), mode.from_tensor(X)).device == X.device


def test_a_dispatch_mode_sees_the_op() -> None:
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Record():
        assert torch.equal(scale(X), X * 2)
        assert torch.equal(scale(X, out=torch.empty_like(X)), X * 2)
    assert [func for func in seen if func.namespace == "kjit_tests"] == [scale.op, torch.ops.kjit_tests.scale.out]


def test_a_tensor_subclass_sees_the_op() -> None:
    seen = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    scale(X.as_subclass(Logged))
    assert scale.op in seen


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_a_sharding_that_is_registered_for_the_op_is_used() -> None:
    from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
    from torch.distributed.tensor.experimental import register_sharding
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        register_sharding(scale.op)(
            lambda *_: [([each], [each, None]) for each in (Replicate(), Shard(0))],
        )
        x = DTensor.from_local(X, init_device_mesh("cpu", (2,)), [Shard(0)])
        result = scale(x, 3.0)
    finally:
        torch.distributed.destroy_process_group()
    assert result.placements == (Shard(0),)
    assert torch.equal(result.to_local(), X * 3)


# The tensors of a transform have no data of their own: that a kernel refuses them is what leads to the registered op.
# So these take an op with a real kernel.


@pytest.mark.parametrize("columns", [3, 0])
def test_vmap_calls_the_op_for_each_row(columns: int) -> None:
    x = torch.arange(2.0 * columns).reshape(2, columns)
    assert torch.equal(torch.vmap(add_constant)(x), x + 1)
    with pytest.raises(RuntimeError, match=r"Batching rule not implemented for kjit_ops::add_constant\.out"):
        torch.vmap(lambda x, out: add_constant(x, out=out))(x, x.clone())


def test_vmap_uses_a_rule_that_is_registered() -> None:
    @kjit.torch_op(outputs=_empty, name="kjit_tests::batched")
    def batched(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        raise RuntimeError("as a kernel does for a tensor of a transform")

    torch.library.register_vmap("kjit_tests::batched", lambda _, dims, x: (x * 2, dims[0]))
    assert torch.equal(torch.vmap(batched)(torch.ones(2, 3)), torch.full((2, 3), 2.0))


@pytest.mark.parametrize("transform", [torch.func.grad, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))])
def test_a_transform_that_differentiates_is_refused(transform: Callable[..., Callable[..., object]]) -> None:
    with pytest.raises(KjitError, match="op 'add_constant' has no gradient"):
        transform(lambda x: add_constant(x).sum())(X)


# -- names


def test_the_default_name_is_the_package_and_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _write_wrapper(tmp_path, monkeypatch, factor=2)
    assert module.twice.op is torch.ops.kjit_test_package.twice.default
    assert torch.ops.kjit_test_package.twice.overloads() == ["default", "out"]


def test_a_function_of_before_a_module_was_run_again_calls_the_op_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _write_wrapper(tmp_path, monkeypatch, factor=2)
    first = module.twice
    first.register_autograd(lambda _, grad: grad * 2)
    _write_wrapper(tmp_path, monkeypatch, factor=3)
    importlib.reload(module)
    assert first.op is module.twice.op
    assert first(X.to("meta")).is_meta
    x = X.clone().requires_grad_()
    with pytest.raises(KjitError, match="has no gradient"):
        first(x)
    module.twice.register_autograd(lambda _, grad: grad * 3)
    for function in (first, module.twice, torch.compile(first, fullgraph=True, backend="aot_eager")):
        x.grad = None
        function(x).sum().backward()
        assert torch.equal(x.grad, torch.full_like(X, 3))


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("kjit_tests::scale", r"by .*test_torch_op\.scale"),
        ("aten::relu", "by an op that was not registered by kjit"),
    ],
)
def test_a_name_that_is_taken_is_refused(name: str, owner: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is already taken {owner}"):
        kjit.torch_op(name=name, mutates_args=("x",))(_no_effect)


# -- signatures that break the rules


def _untyped(x, *, out: torch.Tensor | None = None) -> torch.Tensor: ...


def _output_is_no_tensor(x: torch.Tensor, *, out: int = 0) -> torch.Tensor: ...


def _output_is_required(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor: ...


def _collects(x: torch.Tensor, *rest: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor: ...


def _returns_nothing(x: torch.Tensor, *, out: torch.Tensor | None = None) -> None: ...


def _complex_input(x: torch.Tensor, table: dict[str, int], *, out: torch.Tensor | None = None) -> torch.Tensor: ...


def _hides_tensors(
    x: torch.Tensor, y: list[torch.Tensor | None], *, out: torch.Tensor | None = None
) -> torch.Tensor: ...


def _hidden_type(x: torch.Tensor, y: Decimal, *, out: torch.Tensor | None = None) -> torch.Tensor: ...


def _with_output(x: torch.Tensor, n: int, *, out: torch.Tensor | None = None) -> torch.Tensor: ...


def _no_effect(x: torch.Tensor, n: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (_untyped, {}, "parameter 'x' has no type annotation"),
        (_output_is_no_tensor, {}, "'out: 'int' = 0' is an output, as it is keyword-only, but not an optional tensor"),
        (_output_is_required, {}, "is an output, as it is keyword-only, but not an optional tensor"),
        (_collects, {}, "is not possible"),
        (_returns_nothing, {}, "must be annotated to return torch.Tensor"),
        (_complex_input, {}, "PyTorch cannot express its signature"),
        (_hides_tensors, {}, "has tensors in it, and gradients there would go unnoticed"),
        (_hidden_type, {}, "its annotations name 'Decimal', which its module does not define"),
        (_no_effect, {"outputs": None}, "has no output and changes no input"),
        (_with_output, {"outputs": None}, r"has outputs \(out\), but no `outputs=`"),
        (_with_output, {"outputs": lambda y: y}, "takes 'y', which is not an input of the op"),
        (_with_output, {"outputs": torch.empty_like}, "is a built-in function without a signature"),
        (_no_effect, {"outputs": None, "mutates_args": ("n",)}, "mutates_args names 'n', which is not one of its ten"),
        (_no_effect, {"mutates_args": "x"}, "mutates_args must be a list of names"),
        (_with_output, {"name": "scale"}, "is not a name for an op"),
        (_with_output, {"name": "a::b c"}, "is not a name for an op"),
    ],
)
def test_a_definition_that_breaks_a_rule_says_which(
    function: Callable[..., object], given: dict[str, Any], message: str
) -> None:
    given = {"outputs": lambda: X, "name": "kjit_tests::broken"} | given
    with pytest.raises(UsageError, match=message):
        kjit.torch_op(**given)(function)


def _write_wrapper(folder: Path, monkeypatch: pytest.MonkeyPatch, factor: int):
    package = folder / "kjit_test_package"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "wrapper.py").write_text(
        f"""
import torch
import kjit

@kjit.torch_op(outputs=torch.empty_like)
def twice(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    return out.copy_(x * {factor})
# {"-" * factor}
"""
    )
    monkeypatch.syspath_prepend(str(folder))
    for name in ("kjit_test_package", "kjit_test_package.wrapper"):
        if factor == 2:
            monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("kjit_test_package.wrapper")
