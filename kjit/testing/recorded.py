"""A pytest plugin that records results: the running test, the tensors that ops were called with, failures.

`kjit sanitize` runs tests with it: `-p kjit.testing.recorded --kjit-record FILE`. FILE gets a line of JSON for each
event, immediately, so that it is complete up to the end of an aborted run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest
import torch

if TYPE_CHECKING:
    from kjit.testing.op_test import OpTest

_OPTION = "--kjit-record"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, metavar="FILE", help="write events to this file, a line of JSON each")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption(_OPTION)
    if file is not None:
        config.pluginmanager.register(_Recorder(Path(file)), "kjit-recorder")


class _Recorder:
    """Writes the events of a pytest run to a file."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8")

    def _write(self, **event: object) -> None:
        self._file.write(f"{json.dumps(event)}\n")
        self._file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._write(event="begins", test=item.nodeid)
        cls = getattr(item, "cls", None)
        if cls is not None and hasattr(cls, "op") and hasattr(cls, "run"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cls, "run", classmethod(self._recording(cls)))
                result = yield
        else:
            result = yield
        self._write(event="ends", test=item.nodeid)
        return result

    def _recording(self, cls: type[OpTest]) -> Any:
        run = cls.run.__func__  # type: ignore[attr-defined]

        def recorded(owner: type[OpTest], inputs: Mapping[str, Any]) -> Any:
            self._write(event="called", tensors=_tensors(inputs))
            results = run(owner, inputs)
            self._write(event="called", tensors=_tensors(dict(zip(owner.outputs, results, strict=False))))
            return results

        return recorded

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if report.failed and call.excinfo is not None:  # type: ignore[attr-defined]
            self._write(event="failed", test=item.nodeid, error=str(call.excinfo.value))
        return report


def _tensors(values: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Name, address and size in bytes of the memory of each tensor."""
    found = []
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.numel():
            storage = value.untyped_storage()
            found.append((name, storage.data_ptr(), storage.nbytes()))
    return found
