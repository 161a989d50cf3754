"""What generated functions do in C++ is what they do in Python, and it is compiled where a module is compiled."""

from __future__ import annotations

import gc
import itertools
import logging
import subprocess
import sys
import sysconfig
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kjit
from kjit.build import bundle, cpu, plan
from kjit.build.store import Store
from kjit.errors import CompileError
from kjit.ops.add_constant import add_constant
from kjit.runtime import eager_calls, load, native
from kjit.runtime.native import OPTIONAL, POSITIONAL, TENSOR, WRITTEN, Native
from kjit.spec import Spec

X = torch.tensor([1.0, 2.0])


@pytest.fixture(scope="module")
def compiled() -> Native:
    built = eager_calls.build()
    assert built is not None
    return built


@pytest.fixture(autouse=True)
def _unsettled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins as a process does: nothing was looked for, and all runs in Python."""
    before = native.in_use()
    native.use(None)
    monkeypatch.setattr(load, "_origins", set())
    monkeypatch.setattr(eager_calls, "_tried", set())
    yield
    monkeypatch.undo()
    native.use(before)


def make_op() -> Any:
    @kjit.torch_op("kjit_eager_tests::copy", outputs=torch.empty_like)
    def copy(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        out = torch.empty_like(x) if out is None else out
        return out.copy_(x)

    return copy


def runs_in_cpp(op: Any) -> bool:
    """Whether a call goes where the function's `__dict__` says, which no Python reads."""
    _, *others = road = op.__dict__["_kjit_road"]
    op.__dict__["_kjit_road"] = (lambda *_, **__: "C++", *others)
    try:
        # Unpacked, for then 3.11 asks the function, too.
        by_interpreter = op(*(X,)) == "C++"
    finally:
        op.__dict__["_kjit_road"] = road
    if sys.version_info[:2] == (3, 11):
        assert by_interpreter is (native.cell_of(op, "_kjit_direct").cell_contents is not None)
    return by_interpreter


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
    "value", [None, 3, "x", [X], X.as_subclass(_Subclass), X.to("meta"), torch._neg_view(X)], ids=itertools.count()
)
def test_what_is_no_plain_tensor_is_not(compiled: Native, value: object) -> None:
    assert not is_direct(compiled, value)
    assert not is_direct(compiled, required=value)
    assert not is_direct(compiled, X, value, names=("required1", "required2"))
    assert is_direct(compiled, value, names=("optional",)) is (value is None)
    assert is_direct(compiled, X, written=value) is (value is None)
    assert is_direct(compiled, value, names=("number",))


def test_the_opposite_of_what_lies_in_memory_is_not_plain(compiled: Native) -> None:
    assert not is_direct(compiled, torch.complex(X, X).conj().imag)
    assert is_direct(compiled, torch.complex(X, X).conj().real)


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


def test_it_does_nothing_before_it_has_found_where_tensors_keep_their_data(compiled: Any) -> None:
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
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
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


# -- who runs in C++


def test_an_op_runs_in_cpp_after_a_first_call_that_compiled(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del cache_dir
    op = make_op()
    assert not runs_in_cpp(op)
    op(X)
    assert not runs_in_cpp(op)  # nothing was compiled, and so this is not
    monkeypatch.setattr(load, "_origins", {"cache", "compiler"})
    op = make_op()
    out = torch.empty(2)
    assert op(X, out=out) is out
    assert runs_in_cpp(op)
    assert runs_in_cpp(make_op())


def test_a_module_that_is_compiled_brings_it(cache_dir: Path) -> None:
    del cache_dir
    declared = add_constant.__wrapped__.__globals__["_add_constant"]
    declared.cache_clear()
    eager_calls.settle_after_first_call(cast("FunctionType", add_constant), add_constant.__wrapped__)
    try:
        assert add_constant(X, 1).tolist() == [2.0, 3.0]
        assert runs_in_cpp(add_constant)
        assert {entry.op for entry in Store.open().entries()} == {"add_constant", "eager_calls"}
    finally:
        declared.cache_clear()


def test_what_is_in_the_cache_is_used_without_a_compiler(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    del cache_dir
    assert eager_calls.build() is not None
    monkeypatch.setattr(load, "_origins", {"cache"})
    monkeypatch.setattr(plan, "build", None)
    op = make_op()
    op(X)
    assert runs_in_cpp(op)
    assert not caplog.records


def test_what_is_in_no_cache_is_not_compiled_by_a_process_that_compiles_nothing(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache_dir
    monkeypatch.setattr(load, "_origins", {"cache"})
    monkeypatch.setattr(plan, "build", None)
    op = make_op()
    op(X)
    assert not runs_in_cpp(op)


def test_a_process_that_runs_from_a_bundle_does_not_look_into_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "find", None)
    op = make_op()
    assert op(X).tolist() == [1.0, 2.0]
    assert not runs_in_cpp(op)


def test_a_call_that_fails_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "settle", None)
    with pytest.raises(RuntimeError, match="size"):
        make_op()(X, out=torch.empty(3))


def _without_header(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "/nowhere")
    return "there is no /nowhere/Python.h"


def _without_compiler(monkeypatch: pytest.MonkeyPatch) -> str:
    def fail(*_: object, **__: object) -> None:
        raise CompileError("it does not compile.", log="", command="")

    monkeypatch.setattr(plan, "build", fail)
    return "it does not compile"


def _in_a_file_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(eager_calls, "_MODULE", "kjit_of_another_name")
    eager_calls._load.cache_clear()
    return "cannot be loaded"


def _without_a_cache_that_lasts(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KJIT_CACHE_DIR", "/proc/kjit")
    monkeypatch.setattr(plan, "build", None)
    return "The cache '/proc/kjit' cannot be written"


@pytest.mark.parametrize(
    "break_it", [_without_header, _without_compiler, _without_a_cache_that_lasts, _in_a_file_that_does_not_load]
)
def test_where_it_cannot_be_calls_stay_in_python_and_the_log_says_why(
    break_it: Callable[[pytest.MonkeyPatch], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    op = make_op()
    monkeypatch.setattr(load, "_origins", {"cache", "compiler"})
    monkeypatch.setattr(eager_calls, "find", lambda: None)  # whatever was built before this test
    said = break_it(monkeypatch)
    assert op(X).tolist() == [1.0, 2.0]
    assert not runs_in_cpp(op)
    assert "eager calls run in Python" in caplog.text
    assert said in caplog.text
    eager_calls._load.cache_clear()


def test_no_compiler_at_all_is_no_error_of_an_eager_call(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del cache_dir
    monkeypatch.setattr(load, "_origins", {"cache"})
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert eager_calls.find() is None
    op = make_op()
    assert op(X).tolist() == [1.0, 2.0]
    assert not runs_in_cpp(op)


def test_building_goes_on_side_by_side_and_ends_with_what_it_accompanies(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache_dir
    with eager_calls.building(Store.open(), to_ship=False) as built:
        pass
    assert [(variant.label, artifact.op) for variant, artifact in built] == [(f"{_LABEL} cpu", "eager_calls")]
    assert eager_calls.find() is not None
    cancelled: list[bool] = []

    def wait(*_: object, cancel: threading.Event, **__: object) -> None:
        cancelled.append(cancel.wait(60))
        raise CancelledError

    monkeypatch.setattr(plan, "build", wait)
    with pytest.raises(KeyboardInterrupt), eager_calls.building(Store.open(), to_ship=False) as built:
        raise KeyboardInterrupt
    assert cancelled == [True]
    assert built == []


# -- what is shipped


_LABEL = f"eager_calls<{torch.__version__}, {sys.implementation.cache_tag}>"


def test_nothing_is_shipped_for_a_cpu_that_bundles_do_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_LEVELS", {})
    monkeypatch.setattr(plan, "build", None)
    with eager_calls.building(Store.open(), to_ship=True) as built:
        pass
    assert built == []


@pytest.fixture
def shipped_op(compiled: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An op whose wrapper lies beside a bundle, in a process that may use nothing else."""
    del compiled  # is compiled in another cache, for this CPU
    with eager_calls.building(Store.open(), to_ship=True) as built:
        pass
    bundle.write(tmp_path / "prebuilt", built)
    monkeypatch.setattr(eager_calls, "find", None)
    monkeypatch.setattr(plan, "build", None)
    wrapper = {"make_op": FunctionType(make_op.__code__, globals() | {"__file__": str(tmp_path / "copy.py")})}
    return wrapper["make_op"]()


def test_it_is_taken_from_the_bundle_beside_a_wrapper(shipped_op: Any, tmp_path: Path) -> None:
    other = make_op()
    assert other(X).tolist() == [1.0, 2.0]
    assert native.in_use() is None  # there is no bundle beside this file
    assert shipped_op(X).tolist() == [1.0, 2.0]
    assert runs_in_cpp(shipped_op)
    assert runs_in_cpp(other)
    assert Path(cast("Any", native.in_use()).__file__).parent == tmp_path / "prebuilt"


def test_that_of_another_torch_is_not_taken(
    shipped_op: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kjit")
    monkeypatch.setattr(torch, "__version__", "2.999")
    eager_calls._variant_for.cache_clear()
    try:
        assert shipped_op(X).tolist() == [1.0, 2.0]
        assert not runs_in_cpp(shipped_op)
    finally:
        eager_calls._variant_for.cache_clear()
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert f"it has {_LABEL}, and not eager_calls<2.999, " in caplog.text


def test_a_bundle_that_cannot_be_read_is_no_error_of_an_eager_call(
    shipped_op: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KJIT_CPU_LEVEL", "x87")
    assert shipped_op(X).tolist() == [1.0, 2.0]
    assert not runs_in_cpp(shipped_op)


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
    assert [node.target for node in graphs[0].graph.nodes if node.op == "call_function"][-1] is op.op
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
