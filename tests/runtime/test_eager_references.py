"""Calls in C++ neither leak nor lose a reference to an argument, a looked-up object or a result.

A reference that is kept is a leak; one that is lost ends in a crash far from here. The references to objects are
counted around many calls. A debug build of Python (Debian's package python3-dbg) also counts those to all objects
together, but only in code that is compiled for it: torch is not, and what is counted so runs none of it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
import torch
from eager_ops import X, make_op, runs_in_cpp
from forked import Forks

import kjit
from kjit.runtime import load, native
from kjit.runtime.native import OPTIONAL, POSITIONAL, TENSOR, WRITTEN
from kjit.spec import Spec

if TYPE_CHECKING:
    from kjit.runtime.native import Native

pytestmark = pytest.mark.usefixtures("unsettled")

_CALLS = 500


def changed(call: Callable[[], object], *objects: object, runs_torch: bool = False) -> list[object]:
    """The objects of which calls keep or lose references, with how many a call; "all" stands for all there are."""
    for _ in range(10):
        call()  # what is made at a first call may stay
    gc.collect()
    before = _counts(objects)
    for _ in range(_CALLS):
        call()
    gc.collect()
    after = _counts(objects)
    # What the test itself has more or fewer of at its end comes to less than one for each call.
    by_call = [round((now - then) / _CALLS) for now, then in zip(after, before, strict=True)]
    if runs_torch:
        by_call[-1] = 0
    return [(each, count) for each, count in zip([*objects, "all"], by_call, strict=True) if count]


def _counts(objects: Sequence[object]) -> list[int]:
    total = getattr(sys, "gettotalrefcount", lambda: 0)
    return [*map(sys.getrefcount, objects), total()]


def _parts(call: Any, key: str) -> list[object]:
    """The objects that a call uses of a generated function."""
    kept = call.__dict__[key]
    return [call, call.__dict__, kept, *kept, *kept[1]]


# -- an op


@pytest.fixture
def op(compiled: Native) -> Iterator[Any]:
    native.use(compiled)
    op = make_op()
    assert runs_in_cpp(op)
    yield op
    native.use(None)


def _give_back(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor | None:
    return x if out is None else out


def test_a_call_of_an_op(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(op.__dict__, "_kjit_road", (_give_back, *op.__dict__["_kjit_road"][1:]))
    out = torch.empty(2)
    objects = [X, out, None, *_parts(op, "_kjit_road")]
    # Unpacked, for then 3.11 asks the function, too.
    assert changed(lambda: op(*(X,), out=out), *objects) == []
    assert changed(lambda: op(*(X,)), *objects) == []
    assert changed(lambda: op(*(), x=X, out=out), *objects) == []


def test_a_call_that_is_handed_on_to_python(op: Any) -> None:
    tensors = X.clone().requires_grad_(), X.to("meta")
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = [
        ((tensors[0],), {}),  # no gradient
        ((None,), {}),
        ((), {}),
        ((X, X, X), {}),
        ((X,), {"unknown": X}),
    ]

    def call() -> None:
        op(*(tensors[1],))  # of which no kernel is called
        for args, named in calls:
            with pytest.raises((kjit.KjitError, TypeError)):
                op(*args, **named)

    objects = [X, *tensors, None, *_parts(op, "_kjit_road")]
    assert changed(call, *objects, runs_torch=True) == []


def test_a_call_whose_kernel_fails(compiled: Any) -> None:
    error = RuntimeError("no kernel")

    def fail(*_: object, **__: object) -> None:
        raise error

    road = (fail, ("x", "out"), bytes([TENSOR | POSITIONAL, TENSOR | OPTIONAL | WRITTEN]))
    direct = compiled.direct(road)
    out = X.clone()

    def call() -> None:
        try:
            direct(X, out=out)
        except RuntimeError:
            error.__traceback__ = None

    assert changed(call, X, out, error, *road) == []


def test_what_calls_a_kernel_is_freed_with_its_road(compiled: Any) -> None:
    road = (len, ("x",), bytes([TENSOR | POSITIONAL]))
    assert changed(lambda: compiled.direct(road), road) == []


def test_functions_are_taken_over_and_given_back(compiled: Any) -> None:
    op = make_op()

    def call() -> None:
        assert compiled.take_over(op)
        compiled.give_back(op)
        with pytest.raises(TypeError):
            compiled.take_over(len)

    objects = _parts(op, "_kjit_road")
    assert changed(call, *objects) == []


# -- a declared module


def test_a_look_up_of_a_module(compiled: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "load_variant", lambda variant, **_: [variant.label])

    @kjit.module(variants=())
    def _one(dtype: torch.dtype) -> Spec:
        return Spec("pick", repr(dtype), cpp_files=["/x/pick.cpp"])

    @kjit.module(variants=())
    def _more(dtype: torch.dtype, size: Any = 1, *, is_fast: bool) -> Spec:
        return Spec("pick", repr(dtype), repr(size), repr(is_fast), cpp_files=["/x/pick.cpp"])

    native.use(compiled)
    # A number that Python does not keep, so that each look-up brings one of its own.
    ways: list[Callable[[], object]] = [
        lambda: _one(*(torch.float32,), device=X),
        lambda: _more(*(torch.float32, int("4096")), is_fast=True, device=X),
    ]
    for declared, way in zip((_one, _more), ways, strict=True):
        module = way()
        modules = declared.__dict__["_kjit_table"][0]
        objects = [X, torch.float32, True, int, bool, module, modules, modules[-1], *_parts(declared, "_kjit_table")]
        assert changed(way, *objects) == []

    def fail() -> None:
        with pytest.raises(TypeError, match="unhashable"):
            _more(*(torch.float32, [1]), is_fast=True, device=X)
        with pytest.raises(TypeError, match="missing"):
            _more(*(), device=X)

    objects = [X, torch.float32, True, *_parts(_more, "_kjit_table")]
    assert changed(fail, *objects) == []


# -- Dynamo

# torch 2.6 and 2.7 return a reference that is not the caller's. With any torch, ctypes does so for a function of C that
# returns a borrowed one.
_GETTERS = {
    "a new reference": "functools.partial(kept.get, 'callback')",
    "a reference that stays theirs": "functools.partial(ctypes.pythonapi.PyDict_GetItemString, kept, b'callback')",
}


@pytest.mark.parametrize("callback", ["object()", "None", "False"])
@pytest.mark.parametrize("getter", _GETTERS.values(), ids=_GETTERS)
def test_the_callback_of_dynamo_is_asked_for(compiled: Any, forked: Forks, getter: str, callback: str) -> None:
    script = f"""
    import ctypes, functools, importlib.machinery, importlib.util, sys
    import torch, tvm_ffi
    import torch._dynamo
    loader = importlib.machinery.ExtensionFileLoader("kjit_eager_calls", {compiled.__file__!r})
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kjit_eager_calls", loader))
    loader.exec_module(module)
    ctypes.pythonapi.PyDict_GetItemString.restype = ctypes.py_object
    ctypes.pythonapi.PyDict_GetItemString.argtypes = [ctypes.py_object, ctypes.c_char_p]
    callback = {callback}
    kept = {{"callback": callback}}
    getter = {getter}
    x = torch.ones(1)
    def op(x): return "Python"
    op._kjit_road = (lambda x: "C++", ("x",), b"\\x03")
    known = torch.Tensor, torch.nn.Parameter, x, x._cdata, vars(torch.autograd.forward_ad)
    assert module.learn(*known, getter, op)
    assert module.take_over(op)
    args = [x] * {_CALLS}
    assert {{*map(op, args)}} == {{"C++"}}
    set_eval_frame = torch._C._dynamo.eval_frame.set_eval_frame
    before = set_eval_frame(False)  # Dynamo looks at this thread, and compiles nothing
    count = sys.getrefcount(callback)
    try:
        results = {{*map(op, args)}}
    finally:
        after = sys.getrefcount(callback)
        set_eval_frame(before)
    assert results == {{"C++" if callback is None else "Python"}}, results
    assert after == count, (count, after)
    print("done")
    """
    done = forked.run(script)
    assert done.stdout == "done\n", done.stderr


def test_dynamo_itself_is_asked(op: Any) -> None:
    assert isinstance(op, FunctionType)
    set_eval_frame = torch._C._dynamo.eval_frame.set_eval_frame
    args = [X] * _CALLS
    before = set_eval_frame(False)
    try:
        counts = sys.getrefcount(False), sys.getrefcount(None)
        results = list(map(op, args))
        changed = sys.getrefcount(False) - counts[0], sys.getrefcount(None) - counts[1]
    finally:
        set_eval_frame(before)
    assert len(results) == _CALLS
    assert max(map(abs, changed)) < _CALLS // 10
