"""kjit.runtime.once: one call per distinct arguments, in every thread and under torch.compile."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kjit


def counted(calls: list[Any]) -> Callable[..., Any]:
    @kjit.cache_once
    def double(x: Any, n: int = 2, *, flag: bool = False) -> Any:
        calls.append((x, n, flag))
        return [x, n, flag]

    return double


def test_positional_keyword_and_default_arguments_are_one_call() -> None:
    calls: list[Any] = []
    double = counted(calls)
    first = double(1)
    assert double(x=1) is first
    assert double(1, 2) is first
    assert double(1, n=2) is first
    assert double(n=2, x=1, flag=False) is first
    assert calls == [(1, 2, False)]


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0, False), (0.0, -0.0), ((1,), (True,)), ((1, (0.0,)), (1, (-0.0,))), ("1", 1)],
)
def test_values_that_are_equal_and_not_the_same_are_two_calls(one: object, other: object) -> None:
    calls: list[Any] = []
    double = counted(calls)
    double(one)
    double(other)
    double(one)
    assert len(calls) == 2


def test_a_tuple_that_looks_like_keyword_arguments_is_another_call() -> None:
    calls: list[Any] = []

    @kjit.cache_once
    def collect(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    collect(1, x=2)
    collect(1, ("x", 2))
    collect(1, ("x", (int, 2)))
    assert len(calls) == 3


def test_an_exception_is_not_kept() -> None:
    calls: list[int] = []

    @kjit.cache_once
    def fails_first(x: int) -> int:
        calls.append(x)
        if len(calls) == 1:
            raise ValueError("not yet")
        return x

    with pytest.raises(ValueError, match="not yet"):
        fails_first(3)
    assert fails_first(3) == 3
    assert calls == [3, 3]


def test_two_threads_make_one_call() -> None:
    calls: list[Any] = []
    entered, leave = threading.Event(), threading.Event()

    @kjit.cache_once
    def slow(x: int) -> object:
        calls.append(x)
        entered.set()
        leave.wait(10)
        return object()

    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(slow(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert entered.wait(10)
    leave.set()
    for thread in threads:
        thread.join(10)
    assert calls == [1]
    assert len(results) == 8
    assert len(set(map(id, results))) == 1


def test_cache_clear_forgets() -> None:
    calls: list[Any] = []
    double = counted(calls)
    double(1)
    double.cache_clear()  # type: ignore[attr-defined]
    double(1)
    assert len(calls) == 2


def test_an_unhashable_argument_is_an_error_that_names_the_function() -> None:
    with pytest.raises(TypeError, match=r"counted.<locals>.double is called once per arguments.*unhashable"):
        counted([])([1])


class TestUnderTorchCompile:
    """No graph break (fullgraph), no warning (all warnings are errors), the function itself is not traced."""

    @pytest.fixture(autouse=True)
    def _fresh(self) -> Any:
        torch.compiler.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")  # is about that Python
            yield
        torch.compiler.reset()

    def test_a_number_is_a_constant_of_the_graph(self) -> None:
        calls: list[int] = []

        @kjit.cache_once
        def twice(n: int) -> int:
            calls.append(n)
            return n * 2

        compiled = torch.compile(lambda x: x * twice(3) + twice(n=3), backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [12.0, 12.0]
        assert calls == [3]

    def test_an_object_can_be_used(self) -> None:
        class Config:
            scale = 3

        @kjit.cache_once
        def config(dtype: torch.dtype, n: int = 1) -> Config:
            del dtype, n
            with threading.Lock():  # Dynamo could not trace this
                return Config()

        compiled = torch.compile(lambda x: x * config(x.dtype, 2).scale, backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]

    def test_a_symbolic_size_becomes_a_constant(self) -> None:
        calls: list[int] = []

        @kjit.cache_once
        def same(n: int) -> int:
            calls.append(n)
            return n

        compiled = torch.compile(lambda x: x * same(x.shape[0]), backend="eager", fullgraph=True, dynamic=True)
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
        assert compiled(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
        assert calls == [2, 3]


_FORK = """
import os, signal, threading
import kjit

parent, called = os.getpid(), threading.Event()

@kjit.cache_once
def slow(x):
    if os.getpid() == parent:
        called.set()
        threading.Event().wait()
    return x

threading.Thread(target=slow, args=(1,), daemon=True).start()
called.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # else a child that hangs would do so for ever
    os.write(1, str(slow(1)).encode())
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
"""


def test_a_forked_child_does_not_wait_for_a_call_that_a_thread_of_its_parent_is_in() -> None:
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, check=False)
    assert done.stdout == "1", done.stderr
