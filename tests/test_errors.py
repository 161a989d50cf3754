"""kjit.errors: errors reach other processes unchanged."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import kjit
from kjit.errors import CompileError, KjitError


def _all_below(cls: type[KjitError]) -> Iterator[type[KjitError]]:
    yield cls
    for each in cls.__subclasses__():
        yield from _all_below(each)


def _classes() -> list[type[KjitError]]:
    for module in pkgutil.walk_packages(kjit.__path__, "kjit."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [cls for cls in _all_below(KjitError) if cls.__module__.startswith("kjit.")]


def _make(cls: type[KjitError]) -> KjitError:
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and name != "hint":
            named[name] = 3 if parameter.annotation == "int" else f"the {name}"
    return cls("the sentence.", hint="the hint", **named)


def _fail(cls: type[KjitError]) -> None:
    raise _make(cls)


def test_all_classes_are_walked() -> None:
    names = {cls.__name__ for cls in _classes()}
    assert {"KjitError", "UsageError", "CompileError", "NotPrebuiltError", "NoCudaError", "SignatureError"} <= names


@pytest.mark.parametrize("cls", _classes(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", [*range(pickle.HIGHEST_PROTOCOL + 1), "copy", "deepcopy"])
def test_every_error_survives_pickle_and_copies(cls: type[KjitError], protocol: int | str) -> None:
    error = _make(cls)
    error.extra = ["of the caller"]  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(error, protocol)) if isinstance(protocol, int) else getattr(copy, protocol)(error)
    assert type(again) is cls
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_a_compile_error_comes_back_from_another_process() -> None:
    with (
        ProcessPoolExecutor(1, get_context("fork")) as pool,
        pytest.raises(CompileError, match="the sentence") as caught,
    ):
        pool.submit(_fail, CompileError).result()
    assert (caught.value.hint, caught.value.command) == ("the hint", "the command")
