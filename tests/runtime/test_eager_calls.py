"""The C++ code for eager calls is built and shipped with modules, and found with them."""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from eager_ops import X, make_op, runs_in_cpp

from kjit.engine import builder, bundle_writer
from kjit.engine.cache.store import Store
from kjit.engine.compile import eager_calls
from kjit.engine.toolchain import cpu
from kjit.errors import CompileError
from kjit.ops.add_constant import add_constant
from kjit.runtime import load, native

if TYPE_CHECKING:
    from kjit.runtime.native import Native

pytestmark = pytest.mark.usefixtures("unsettled")


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
    wrapper = add_constant.__wrapped__.__globals__["__file__"]
    native.settle_after_first_call(cast("FunctionType", add_constant), add_constant.__wrapped__, wrapper)
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
    monkeypatch.setattr(builder, "build", None)
    op = make_op()
    op(X)
    assert runs_in_cpp(op)
    assert not caplog.records


def test_what_is_in_no_cache_is_not_compiled_by_a_process_that_compiles_nothing(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache_dir
    monkeypatch.setattr(load, "_origins", {"cache"})
    monkeypatch.setattr(builder, "build", None)
    op = make_op()
    op(X)
    assert not runs_in_cpp(op)


def test_a_process_that_runs_from_a_bundle_does_not_look_into_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find", None)
    op = make_op()
    assert op(X).tolist() == [1.0, 2.0]
    assert not runs_in_cpp(op)


def test_a_call_that_fails_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "settle", None)
    with pytest.raises(RuntimeError, match="size"):
        make_op()(X, out=torch.empty(3))


def _without_header(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "/nowhere")
    return "/nowhere/Python.h does not exist"


def _without_compiler(monkeypatch: pytest.MonkeyPatch) -> str:
    def fail(*_: object, **__: object) -> None:
        raise CompileError("it does not compile.", log="", command="")

    monkeypatch.setattr(builder, "build", fail)
    return "it does not compile"


def _in_a_file_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(native, "_MODULE", "kjit_of_another_name")
    native.load_native.cache_clear()
    return "cannot be loaded"


def _without_a_cache_that_lasts(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KJIT_CACHE_DIR", "/proc/kjit")
    monkeypatch.setattr(builder, "build", None)
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
    monkeypatch.setattr(native, "find", lambda: None)  # whatever was built before this test
    said = break_it(monkeypatch)
    assert op(X).tolist() == [1.0, 2.0]
    assert not runs_in_cpp(op)
    assert "eager calls run in Python" in caplog.text
    assert said in caplog.text
    native.load_native.cache_clear()


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

    monkeypatch.setattr(builder, "build", wait)
    with pytest.raises(KeyboardInterrupt), eager_calls.building(Store.open(), to_ship=False) as built:
        raise KeyboardInterrupt
    assert cancelled == [True]
    assert built == []


# -- what is shipped


_LABEL = f"eager_calls<{torch.__version__}, {sys.implementation.cache_tag}>"


def test_nothing_is_shipped_for_a_cpu_that_bundles_do_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "LEVELS", {})
    monkeypatch.setattr(builder, "build", None)
    with eager_calls.building(Store.open(), to_ship=True) as built:
        pass
    assert built == []


@pytest.fixture
def shipped_op(compiled: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An op whose wrapper lies beside a bundle, in a process that may use nothing else."""
    del compiled  # is compiled in another cache, for this CPU
    with eager_calls.building(Store.open(), to_ship=True) as built:
        pass
    bundle_writer.write(tmp_path / "prebuilt", built)
    monkeypatch.setattr(native, "find", None)
    monkeypatch.setattr(builder, "build", None)
    wrapper = {"make_op": FunctionType(make_op.__code__, make_op.__globals__ | {"__file__": str(tmp_path / "copy.py")})}
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
