"""kjit.runtime.exported: the functions of loaded modules are tvm-ffi's, and their errors name the argument."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import textwrap
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import tvm_ffi

import kjit
from kjit.errors import KjitError
from kjit.ops.add_constant import _add_constant
from kjit.runtime import exported

X = torch.tensor([1.0, 2.0, 3.0])


@pytest.fixture(scope="module")
def module() -> tvm_ffi.Module:
    spec = _add_constant.spec(torch.float32, 1)
    return kjit.load_jit(spec.name, *spec.args, cpp_files=spec.cpp_files, cpp_wrappers=spec.cpp_wrappers)


@pytest.fixture
def plain(module: tvm_ffi.Module) -> tvm_ffi.Function:
    """The function as tvm-ffi would have it."""
    return tvm_ffi.Module.get_function(module, "add_constant")


def read_only() -> Any:
    array = np.ones(3, np.float32)
    array.setflags(write=False)
    return array


UNUSABLE = {
    "read_only_array": (read_only, r"argument 1 of 2 \(numpy.ndarray\): Cannot export readonly array"),
    "array_of_other_bytes": (
        lambda: np.ones(3, ">f4"),
        r"argument 1 of 2 \(numpy.ndarray\): DLPack only supports native",
    ),
    "array_of_text": (lambda: np.array(["a"]), r"argument 1 of 2 \(numpy.ndarray\): DLPack only supports"),
    "dtype_of_numpy": (lambda: np.dtype("datetime64[s]"), r"argument 1 of 2, as tvm-ffi has no dtype for dtype\("),
    "in_a_list": (lambda: [X, X.to_sparse()], r"element \[1\] of argument 1 of 2, which is not a dense tensor"),
    "in_a_dict": (lambda: {"a": (torch.bits8,)}, r"element \['a'\]\[0\] of argument 1 of 2, as tvm-ffi has no dtype"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_what_cannot_be_handed_over_is_named(kind: str, module: tvm_ffi.Module) -> None:
    make, said = UNUSABLE[kind]
    for function in (module.add_constant, module["add_constant"], module.add_constant.__call__):
        with pytest.raises(KjitError, match=rf"^add_constant\(\) cannot use {said}") as caught:
            function(make(), X)
        assert caught.value.hint is not None
        assert "frame #" not in str(caught.value)


@pytest.mark.parametrize("kind", ["read_only_array", "array_of_other_bytes"])
def test_the_hint_for_an_array_solves_it(kind: str, module: tvm_ffi.Module) -> None:
    array, out = UNUSABLE[kind][0](), torch.empty(3)
    module.add_constant(np.require(array, array.dtype.newbyteorder("="), "W"), out)
    assert torch.equal(out, X.new_tensor([2, 2, 2]))


def test_the_first_of_several_is_named(module: tvm_ffi.Module) -> None:
    with pytest.raises(KjitError, match="argument 2 of 3, which is not a dense tensor"):
        module.add_constant(X, X.to_sparse(), torch.bits8)


def test_any_other_error_is_what_it_was(module: tvm_ffi.Module, plain: tvm_ffi.Function) -> None:
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((X, 2), {}),
        ((X, X[:2]), {}),
        ((X, X.new_empty(0)), {}),
        ((X,), {"out": X}),
    ]
    for arguments, named in wrong:
        with pytest.raises((RuntimeError, TypeError)) as expected:
            plain(*arguments, **named)
        with pytest.raises(type(expected.value)) as caught:
            module.add_constant(*arguments, **named)
        assert (type(caught.value), str(caught.value)) == (type(expected.value), str(expected.value))
        assert type(caught.value) is not KjitError


def test_an_error_that_is_no_exception_passes(module: tvm_ffi.Module) -> None:
    class Array:
        def __dlpack__(self, **_: object) -> object:
            raise KeyboardInterrupt

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(KeyboardInterrupt):
        module.add_constant(Array(), X)


def test_a_function_is_what_it_is_without(module: tvm_ffi.Module, plain: tvm_ffi.Function) -> None:
    function = module.add_constant
    assert isinstance(function, tvm_ffi.Function)
    assert repr(function) == repr(plain)
    assert function.release_gil == plain.release_gil
    assert module.add_constant is function
    assert set(vars(function)) == {"_kjit_name"}
    function.note = "one"
    assert function.note == "one"
    assert {function: 1}[function] == 1
    for change in (copy.copy, copy.deepcopy):
        for each in (function, plain):
            with pytest.raises(TypeError, match="does not support ToJSONGraph"):
                change(each)
    for each in (function, plain):
        with pytest.raises(TypeError, match="cannot create weak reference"):
            weakref.ref(each)  # type: ignore[type-var]


def test_it_is_handed_over_to_other_functions_and_back(module: tvm_ffi.Module) -> None:
    out = torch.empty(3)
    assert tvm_ffi.get_global_func("ffi.Array")(module.add_constant)[0] == module.add_constant
    tvm_ffi.convert(lambda function, *arguments: function(*arguments))(module.add_constant, X, out)
    assert torch.equal(out, X + 1)


def test_a_missing_function_is_tvm_ffis_error(module: tvm_ffi.Module) -> None:
    for get in (lambda: module.nothing, lambda: module.get_function("nothing")):
        with pytest.raises(AttributeError, match="Module has no function 'nothing'"):
            get()


def test_errors_hold_on_to_nothing(module: tvm_ffi.Module) -> None:
    function, unusable, short, out = module.get_function("add_constant"), X.to_sparse(), X[:2], X.clone()

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in (function, type(function), unusable, short, out)]

    def fail(wrong: torch.Tensor) -> None:
        with pytest.raises(RuntimeError):
            function(wrong, out)

    before = counts()
    for _ in range(100):
        fail(unusable)
        fail(short)
    assert counts() == before


def test_functions_come_and_go(module: tvm_ffi.Module) -> None:
    kind = type(module.add_constant)
    before = sys.getrefcount(kind)
    made = [module.get_function("add_constant") for _ in range(100)]
    assert sys.getrefcount(kind) == before + 100
    del made
    assert sys.getrefcount(kind) == before


def test_the_type_outlives_the_module_that_made_it() -> None:
    script = """
    import gc
    import torch
    import kjit
    from kjit.runtime import load

    def load_one(name):
        parts = {"cpp_files": ["add_constant.cpp"], "cpp_wrappers": [("f", "AddConstant<float, 1>::run")]}
        return kjit.load_jit(name, **parts)

    load_one("first")
    f = load_one("second").f
    load._loaded.clear()
    gc.collect()

    class Late:
        def __del__(self, f=f, x=torch.ones(3), sparse=torch.ones(3).to_sparse(), print=print, error=RuntimeError):
            f(x, x)
            try:
                f(sparse, x)
            except error as said:
                print(str(said).splitlines()[0])

    x = torch.ones(3)
    try:
        f(x.to_sparse(), x)
    except kjit.KjitError as error:
        print(error.message)
    late = Late()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, late = done.stdout.splitlines()
    assert said == "f() cannot use argument 1 of 2, which is not a dense tensor (sparse_coo)."
    assert "access data pointer" in late  # PyTorch's words, when nothing can be imported any more


@pytest.mark.parametrize("missing", ["type", "address"])
def test_where_the_type_cannot_be_made_all_is_tvm_ffis(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded:
        def implements_function(self, _: str) -> bool:
            return missing == "address"

        def get_function(self, _: str) -> Any:
            return lambda *_: 0

    monkeypatch.setattr(exported, "_type", None)
    loaded = Loaded()
    exported.watch(loaded)  # type: ignore[arg-type]
    assert vars(loaded) == {}
