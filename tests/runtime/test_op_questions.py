"""What eager calls ask in C++ is what they ask in Python, and it is compiled where something is compiled anyway."""

from __future__ import annotations

import logging
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kjit
from kjit.build import plan
from kjit.build.store import Store
from kjit.errors import CompileError
from kjit.ops.add_constant import add_constant
from kjit.runtime import load, op_questions
from kjit.runtime.op_questions import Questions

X = torch.tensor([1.0, 2.0])


@pytest.fixture(scope="module")
def questions() -> Questions:
    built = op_questions.build()
    assert built is not None
    return built


@pytest.fixture(autouse=True)
def _unsettled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins as a process does: nothing was asked for, and nobody knows how to ask."""
    before = op_questions._questions
    monkeypatch.setattr(load, "_origins", set())
    monkeypatch.setattr(op_questions, "_is_settled", False)
    monkeypatch.setattr(op_questions, "_questions", None)
    yield
    monkeypatch.undo()
    op_questions.use(before)


def make_op() -> Any:
    @kjit.torch_op("kjit_questions_tests::copy", outputs=torch.empty_like)
    def copy(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        out = torch.empty_like(x) if out is None else out
        return out.copy_(x)

    return copy


def asks_in_cpp(op: Any) -> bool:
    cells = dict(zip(op.__code__.co_freevars, op.__closure__, strict=True))
    answers = {cells[name].cell_contents is not None for name in ("_kjit_are_plain", "_kjit_count_changes")}
    assert len(answers) == 1
    return answers.pop()


# -- the answers


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class _Subclass(torch.Tensor):
    pass


def test_plain_tensors_and_parameters_are_plain(questions: Questions) -> None:
    parameter = torch.nn.Parameter(X.clone(), requires_grad=False)
    assert questions.are_plain(2, X, parameter)
    assert questions.are_plain(1, X, None, parameter)
    assert questions.are_plain(0)


@pytest.mark.parametrize("value", [None, 3, "x", [X], X.as_subclass(_Subclass)])
def test_what_is_no_plain_tensor_is_not(questions: Questions, value: object) -> None:
    assert not questions.are_plain(1, value)
    assert not questions.are_plain(2, X, value)
    assert questions.are_plain(0, value) is (value is None)


def test_the_opposite_of_what_lies_in_memory_is_not_plain(questions: Questions) -> None:
    assert not questions.are_plain(1, torch._neg_view(X))
    assert not questions.are_plain(1, torch.complex(X, X).conj().imag)
    assert questions.are_plain(1, torch.complex(X, X).conj().real)


def test_a_gradient_counts_where_it_is_recorded(questions: Questions) -> None:
    leaf = X.clone().requires_grad_()
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(X.clone())):
        assert not questions.are_plain(2, X, tensor)
        with torch.no_grad():
            assert questions.are_plain(2, X, tensor)
        with torch.inference_mode():
            assert questions.are_plain(2, X, tensor)
        assert questions.are_plain(1, tensor.detach())


def test_a_dispatch_mode_and_a_trace_have_to_see_it(questions: Questions) -> None:
    with _Mode():
        assert not questions.are_plain(1, X)
    assert questions.are_plain(1, X)
    seen: list[bool] = []

    def traced(x: torch.Tensor) -> torch.Tensor:
        seen.append(questions.are_plain(1, X))
        return x + 1

    torch.jit.trace(traced, (X,), check_trace=False)
    assert seen == [False]
    assert questions.are_plain(1, X)


def test_a_change_is_counted_as_pytorch_counts_it(questions: Questions) -> None:
    x, y = X.clone(), X.clone()
    questions.count_changes(x, None, y, y)
    assert (x._version, y._version) == (1, 2)
    with torch.inference_mode():
        questions.count_changes(x, torch.ones(1))
        inferred = torch.ones(1)
    questions.count_changes(inferred)
    assert x._version == 2


@pytest.mark.parametrize("arguments", [(), ("x",), (None,), (-1, X), (2**70, X)])
def test_a_call_without_a_number_is_an_error(questions: Any, arguments: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        questions.are_plain(*arguments)


def test_it_answers_nothing_before_it_has_found_where_tensors_keep_their_data(questions: Any) -> None:
    script = f"""
    import importlib.machinery, importlib.util
    import torch, tvm_ffi
    loader = importlib.machinery.ExtensionFileLoader("kjit_op_questions", {questions.__file__!r})
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kjit_op_questions", loader))
    loader.exec_module(module)
    x = torch.ones(1)
    assert not module.are_plain(1, x)
    assert not module.learn(torch.Tensor, torch.nn.Parameter, x, x._cdata + 1)
    assert not module.are_plain(1, x)
    assert module.learn(torch.Tensor, torch.nn.Parameter, x, x._cdata)
    assert module.are_plain(1, x)
    print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr


# -- who asks how


def test_an_op_asks_in_cpp_after_a_first_call_that_compiled(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del cache_dir
    op = make_op()
    assert not asks_in_cpp(op)
    op(X)
    assert not asks_in_cpp(op)  # nothing was compiled, and so this is not
    monkeypatch.setattr(op_questions, "_is_settled", False)
    monkeypatch.setattr(load, "_origins", {"cache", "compiler"})
    op = make_op()
    out = torch.empty(2)
    assert op(X, out=out) is out
    assert asks_in_cpp(op)
    assert asks_in_cpp(make_op())


def test_a_module_that_is_compiled_brings_it(cache_dir: Path) -> None:
    del cache_dir
    declared = add_constant.__wrapped__.__globals__["_add_constant"]
    declared.cache_clear()
    op_questions._set(add_constant, op_questions._and_settle(add_constant.__wrapped__), None)
    try:
        assert add_constant(X, 1).tolist() == [2.0, 3.0]
        assert asks_in_cpp(add_constant)
        assert {entry.op for entry in Store.open().entries()} == {"add_constant", "eager_calls"}
    finally:
        declared.cache_clear()


def test_what_is_in_the_cache_is_used_without_a_compiler(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    del cache_dir
    assert op_questions.build() is not None
    monkeypatch.setattr(load, "_origins", {"cache"})
    monkeypatch.setattr(plan, "build", None)
    op = make_op()
    op(X)
    assert asks_in_cpp(op)
    assert not caplog.records


def test_what_is_in_no_cache_is_not_compiled_by_a_process_that_compiles_nothing(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache_dir
    monkeypatch.setattr(load, "_origins", {"cache"})
    monkeypatch.setattr(plan, "build", None)
    op = make_op()
    op(X)
    assert not asks_in_cpp(op)


def test_a_process_that_runs_from_a_bundle_does_not_even_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_questions, "find", None)
    op = make_op()
    assert op(X).tolist() == [1.0, 2.0]
    assert not asks_in_cpp(op)


def test_a_call_that_fails_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_questions, "settle", None)
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
    monkeypatch.setattr(op_questions, "_MODULE", "kjit_of_another_name")
    op_questions._load.cache_clear()
    return "cannot be loaded"


def _without_a_cache_that_lasts(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KJIT_CACHE_DIR", "/proc/kjit")
    monkeypatch.setattr(plan, "build", None)
    return "The cache '/proc/kjit' cannot be written"


@pytest.mark.parametrize(
    "break_it", [_without_header, _without_compiler, _without_a_cache_that_lasts, _in_a_file_that_does_not_load]
)
def test_where_it_cannot_be_they_stay_in_python_and_the_log_says_why(
    break_it: Callable[[pytest.MonkeyPatch], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    op = make_op()
    monkeypatch.setattr(load, "_origins", {"cache", "compiler"})
    monkeypatch.setattr(op_questions, "find", lambda: None)  # whatever was built before this test
    said = break_it(monkeypatch)
    assert op(X).tolist() == [1.0, 2.0]
    assert not asks_in_cpp(op)
    assert "eager calls ask in Python" in caplog.text
    assert said in caplog.text
    op_questions._load.cache_clear()


def test_no_compiler_at_all_is_no_error_of_an_eager_call(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del cache_dir
    monkeypatch.setattr(load, "_origins", {"cache"})
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert op_questions.find() is None
    op = make_op()
    assert op(X).tolist() == [1.0, 2.0]
    assert not asks_in_cpp(op)


def test_building_goes_on_side_by_side_and_ends_with_what_it_accompanies(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache_dir
    with op_questions.building():
        pass
    assert op_questions.find() is not None
    cancelled: list[bool] = []
    monkeypatch.setattr(op_questions, "build", lambda cancel: cancelled.append(cancel.wait(60)))
    with pytest.raises(KeyboardInterrupt), op_questions.building():
        raise KeyboardInterrupt
    assert cancelled == [True]


def test_both_ways_keep_the_rules(questions: Questions) -> None:
    op = make_op()
    leaf = X.clone().requires_grad_()
    for way in (questions, None):
        op_questions.use(way)
        assert asks_in_cpp(op) is (way is not None)
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
