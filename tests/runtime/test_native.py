"""Generated functions have the same results in C++ and in Python."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from eager_ops import X, make_op, runs_in_cpp
from forked import Forks
from torch.utils._python_dispatch import TorchDispatchMode

import kjit
from kjit.runtime import load, native
from kjit.runtime.native import OPTIONAL, POSITIONAL, TENSOR, WRITTEN
from kjit.spec import Spec

if TYPE_CHECKING:
    from kjit.runtime.native import Native

pytestmark = pytest.mark.usefixtures("unsettled")

# -- which calls go straight to the kernel


_KINDS = {"required": TENSOR, "optional": TENSOR | OPTIONAL, "written": TENSOR | OPTIONAL | WRITTEN, "number": 0}


def is_direct(compiled: Native, *values: object, names: tuple[str, ...] = ("required",), **named: object) -> bool:
    """Whether a function of these positional parameters, then keyword-only `written`, is called."""
    kinds = bytes(_KINDS[name.rstrip("0123456789")] | POSITIONAL for name in names)
    road = (lambda *_, **__: "called", (*map(sys.intern, names), "written"), kinds + bytes([_KINDS["written"]]))
    result = compiled.direct(road)(*values, **named)
    assert result in ("called", NotImplemented)
    return result == "called"


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class _Subclass(torch.Tensor):
    pass


def test_plain_tensors_and_parameters_are_plain(compiled: Native) -> None:
    parameter = torch.nn.Parameter(X.clone(), requires_grad=False)
    assert is_direct(compiled, X)
    assert is_direct(compiled, parameter)
    assert is_direct(compiled, X, None, parameter, names=("required", "optional1", "optional2"))
    assert is_direct(compiled, X, written=X)
    assert is_direct(compiled, X, written=None)
    assert is_direct(compiled, required=X)
    assert is_direct(compiled, number="x", required=X, names=("required", "number"))
    assert is_direct(compiled, names=())


@pytest.mark.parametrize(
    "value",
    [None, 3, "x", [X], X.as_subclass(_Subclass), X.to("meta"), torch._neg_view(X)],
    ids=itertools.count(),
)
def test_what_is_no_plain_tensor_is_not(compiled: Native, value: object) -> None:
    assert not is_direct(compiled, value)
    assert not is_direct(compiled, required=value)
    assert not is_direct(compiled, X, value, names=("required1", "required2"))
    assert is_direct(compiled, value, names=("optional",)) is (value is None)
    assert is_direct(compiled, X, written=value) is (value is None)
    assert is_direct(compiled, value, names=("number",))


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of these tensors
def test_what_is_not_dense_is_not_plain(compiled: Native) -> None:
    for value in (
        X.to_sparse(),
        torch.eye(2).to_sparse_csr(),
        X.to_mkldnn(),
        torch.nested.nested_tensor([X, X]),
        torch.quantize_per_tensor(X, 0.1, 0, torch.quint8),
    ):
        assert not is_direct(compiled, value)


def test_what_does_not_lie_in_memory_as_it_is_read_is_not_plain(compiled: Native) -> None:
    z = torch.complex(X, X)
    assert is_direct(compiled, z)
    assert not is_direct(compiled, z.conj())
    assert not is_direct(compiled, z.conj().imag)
    assert is_direct(compiled, z.conj().real)
    assert is_direct(compiled, z.conj().resolve_conj())
    assert not is_direct(compiled, torch._efficientzerotensor(2))


def test_a_call_that_does_not_fit_is_left_to_python(compiled: Native) -> None:
    assert not is_direct(compiled)
    assert not is_direct(compiled, X, X, names=("required",))  # `written` is keyword-only
    assert not is_direct(compiled, X, X, X)
    assert not is_direct(compiled, X, required=X)
    assert not is_direct(compiled, X, unknown=X)
    # The same name, as another string: nothing goes unseen.
    assert not is_direct(compiled, X, **{"".join(["writ", "ten"]): X})


def test_a_gradient_counts_where_it_is_recorded(compiled: Native) -> None:
    leaf = X.clone().requires_grad_()
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(X.clone())):
        assert not is_direct(compiled, tensor)
        assert not is_direct(compiled, X, written=tensor)
        with torch.no_grad():
            assert is_direct(compiled, tensor)
        with torch.inference_mode():
            assert is_direct(compiled, tensor)
        assert is_direct(compiled, tensor.detach())


def test_a_tangent_has_to_be_seen(compiled: Native) -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X.clone(), X)
        assert not is_direct(compiled, dual)
        assert is_direct(compiled, torch.ones(2))
        with torch.no_grad():
            assert not is_direct(compiled, dual)


def test_modes_traces_and_transforms_have_to_see_it(compiled: Native) -> None:
    with _Mode():
        assert not is_direct(compiled, X)
    assert is_direct(compiled, X)
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.extend([is_direct(compiled, x), is_direct(compiled, X)])
        return x + 1

    torch.jit.trace(look, (X,), check_trace=False)
    torch.vmap(look)(X)
    assert seen == [False] * 4
    assert is_direct(compiled, X)


def test_a_change_is_counted_as_pytorch_counts_it(compiled: Native) -> None:
    x, y = X.clone(), X.clone()
    assert is_direct(compiled, x, written=y)
    assert (x._version, y._version) == (0, 1)
    with torch.inference_mode():
        assert is_direct(compiled, x, written=y)
        inferred = torch.ones(1)
    assert is_direct(compiled, x, written=inferred)
    assert (x._version, y._version) == (0, 2)


def test_an_error_is_raised_and_no_change_counted(compiled: Native) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel")

    out = X.clone()
    direct = compiled.direct((fail, ("x", "out"), bytes([TENSOR | POSITIONAL, TENSOR | OPTIONAL | WRITTEN])))
    with pytest.raises(RuntimeError, match="no kernel"):
        direct(X, out=out)
    assert out._version == 0


@pytest.mark.parametrize(
    "road",
    [
        None,
        (),
        (len, ("x",)),
        (len, ["x"], b"0"),
        (len, ("x",), "0"),
        (len, ("x",), b""),
        (len, ("x",) * 65, b"0" * 65),
    ],
)
def test_what_is_no_road_is_refused(compiled: Any, road: object) -> None:
    with pytest.raises(TypeError, match="needs a road"):
        compiled.direct(road)
    op = make_op()
    op.__dict__["_kjit_road"] = road
    assert compiled.take_over(op) is False
    assert op(X).tolist() == [1.0, 2.0]


def test_only_functions_can_be_taken_over(compiled: Any) -> None:
    for change in (compiled.take_over, compiled.give_back):
        with pytest.raises(TypeError, match="needs a function"):
            change(len)
    assert compiled.take_over(make_op) is False  # of which nothing is known


def test_a_function_that_loses_what_is_kept_of_it_runs_in_python(compiled: Native) -> None:
    native.use(compiled)
    op = make_op()
    assert runs_in_cpp(op)
    op.__dict__["_kjit_road"] = None
    assert op(*(X,)).tolist() == [1.0, 2.0]
    del op.__dict__["_kjit_road"]
    assert op(*(X,)).tolist() == [1.0, 2.0]


def test_it_does_nothing_before_it_has_found_where_tensors_keep_their_data(compiled: Any, forked: Forks) -> None:
    script = f"""
    import importlib.machinery, importlib.util
    import torch, tvm_ffi
    loader = importlib.machinery.ExtensionFileLoader("kjit_eager_calls", {compiled.__file__!r})
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kjit_eager_calls", loader))
    loader.exec_module(module)
    x = torch.ones(1)
    known = (torch.Tensor, torch.nn.Parameter, x)
    def op(x): pass
    others = vars(torch.autograd.forward_ad), None, op
    op._kjit_road = (lambda x: "called", ("x",), b"\x03")
    assert not module.take_over(op)
    assert not module.learn(*known, x._cdata + 1, *others)
    assert not module.take_over(op)
    try:
        module.direct(op._kjit_road)
    except TypeError:
        assert module.learn(*known, x._cdata, *others)
    assert module.take_over(op)
    assert module.direct(op._kjit_road)(x) == op(*(x,)) == "called"
    print("done")
    """
    done = forked.run(script)
    assert done.stdout == "done\n", done.stderr


# -- how modules are looked up


@pytest.fixture
def pick(monkeypatch: pytest.MonkeyPatch) -> kjit.DeclaredModule[Any]:
    """A declared module whose modules are lists of what they were loaded for."""
    monkeypatch.setattr(load, "load_variant", lambda variant, **_: [variant.label])

    @kjit.module(variants=())
    def _pick(dtype: torch.dtype, size: Any = 1, *, is_fast: bool) -> Spec:
        return Spec("pick", repr(dtype), repr(size), repr(is_fast), cpp_files=["/x/pick.cpp"])

    return _pick


def call(declared: Any, *values: object, **named: object) -> object:
    """Unpacked, for then 3.11 asks the function, too."""
    return declared(*values, **named)


def known_to_cpp(declared: Any, *values: object, **named: object) -> bool:
    """Whether a module is found where the function's `__dict__` says, which no Python reads."""
    modules, *others = table = declared.__dict__["_kjit_table"]
    marked = {index: dict.fromkeys(by_values, "C++") for index, by_values in modules.items()}
    declared.__dict__["_kjit_table"] = (marked, *others)
    try:
        return call(declared, *values, **named) == "C++"
    finally:
        declared.__dict__["_kjit_table"] = table


def test_a_module_is_looked_up_by_what_python_looks_it_up_by(compiled: Native, pick: kjit.DeclaredModule[Any]) -> None:
    named: dict[str, Any] = {"is_fast": True, "device": X}
    in_python = [pick(torch.float32, size, **named) for size in (1, 4096, True, 1.0)]
    assert not known_to_cpp(pick, torch.float32, 1, **named)
    native.use(compiled)
    # A number that is not the object of before, as sizes of tensors are.
    in_cpp = [call(pick, torch.float32, size, **named) for size in (1, int("4096"), True, 1.0)]
    assert list(map(id, in_cpp)) == list(map(id, in_python))
    for size in (1, int("4096"), True):
        assert known_to_cpp(pick, torch.float32, size, **named)
        assert known_to_cpp(pick, torch.float32, device=torch.nn.Parameter(X), is_fast=True, size=size)
    assert not known_to_cpp(pick, torch.float32, 1.0, **named)  # of which two can be equal, and not the same
    for values, changed in (
        ((torch.float16, 1), {}),
        ((torch.float32, 2), {}),
        ((torch.float32, False), {}),
        ((torch.float32, 1), {"is_fast": False}),
        ((torch.float32, 1), {"device": "cpu"}),
        ((torch.float32,), {}),  # the default is Python's business
    ):
        assert not known_to_cpp(pick, *values, **named | changed)


def test_one_dtype_is_a_key_of_its_own(compiled: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "load_variant", lambda variant, **_: [variant.label])

    @kjit.module(variants=())
    def _by_dtype(dtype: torch.dtype) -> Spec:
        return Spec("pick", repr(dtype), cpp_files=["/x/pick.cpp"])

    @kjit.module()
    def _by_nothing() -> Spec:
        return Spec("pick", cpp_files=["/x/pick.cpp"])

    native.use(compiled)
    first = call(_by_dtype, torch.float32, device=X)
    assert known_to_cpp(_by_dtype, torch.float32, device=X)
    assert call(_by_dtype, torch.float32, device=X) is first
    assert not known_to_cpp(_by_dtype, torch.float16, device=X)
    call(_by_nothing, device=X)
    assert known_to_cpp(_by_nothing, device=X)
    _by_dtype.cache_clear()
    assert not known_to_cpp(_by_dtype, torch.float32, device=X)
    native.use(None)
    assert call(_by_dtype, torch.float32, device=X) is not first
    assert not known_to_cpp(_by_dtype, torch.float32, device=X)


def test_what_is_no_call_is_the_error_that_python_makes_of_it(compiled: Native, pick: kjit.DeclaredModule[Any]) -> None:
    known = (torch.float32, 1), {"is_fast": True, "device": X}
    for way in (None, compiled):
        native.use(way)
        call(pick, *known[0], **known[1])
        for values, named, said in (
            ((), {"device": X, "is_fast": True}, "missing 1 required positional argument: 'dtype'"),
            ((torch.float32, 1), {"device": X}, "missing 1 required keyword-only argument: 'is_fast'"),
            ((torch.float32, 1, True, X), {}, "takes from 1 to 2 positional arguments"),
            ((torch.float32, 1), {"device": X, "is_fast": True, "size": 1}, "multiple values for argument 'size'"),
            ((torch.float32, 1), {"device": X, "is_fast": True, "other": 1}, "unexpected keyword argument 'other'"),
            ((torch.float32, 1), {"device": X, "is_fast": 1}, "is_fast must be of type bool, not 1"),
            ((torch.float32, [1]), {"device": X, "is_fast": True}, "unhashable type: 'list'"),
        ):
            with pytest.raises(TypeError, match=said):
                call(pick, *values, **named)


# -- what stays as it was


def test_both_ways_keep_the_rules(compiled: Native) -> None:
    op = make_op()
    leaf = X.clone().requires_grad_()
    for way in (compiled, None):
        native.use(way)
        assert runs_in_cpp(op) is (way is not None)
        out = torch.empty(2)
        version = out._version
        assert op(X, out=out) is out
        assert out._version == version + 2  # copy_ has counted once, and the op does
        with pytest.raises(kjit.KjitError, match="op 'copy' has no gradient, but 'x' requires one"):
            op(leaf)
        with torch.no_grad():
            assert op(leaf).tolist() == [1.0, 2.0]
        with pytest.raises(TypeError, match="argument 'x' must be a tensor, not NoneType"):
            op(None)


def test_dynamo_sees_a_function_that_runs_in_cpp(compiled: Native) -> None:
    native.use(compiled)
    op = make_op()
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return graph

    assert torch.compile(op, backend=backend)(X).tolist() == [1.0, 2.0]
    assert [node.target for node in graphs[0].graph.nodes if node.op == "call_function"][-1] is op.op.overloadpacket.out
    assert runs_in_cpp(op)


def test_an_error_of_dynamo_does_not_end_it(compiled: Native) -> None:
    native.use(compiled)
    op = make_op()
    with pytest.raises(Exception, match="has no gradient"):  # of which class, is Dynamo's business
        torch.compile(op, fullgraph=True, backend="eager")(X.clone().requires_grad_())
    assert runs_in_cpp(op)


def test_a_function_that_is_gone_is_forgotten(compiled: Native) -> None:
    native.use(compiled)
    op = make_op()
    gone = weakref.ref(op.__wrapped__)
    del op
    make_op()  # PyTorch keeps the op of a name, and what it calls, until there is another one
    gc.collect()
    assert gone() is None
    native.use(None)
