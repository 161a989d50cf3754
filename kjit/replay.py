"""Replay: recorded calls made again (calls.py), and compared with their op's reference or timed.

The reference of an op is in its test in the project, `tests/test_<module>.py`: in its class `OpTest`, or in a
dictionary `REFERENCES` by op. Calls without a reference are made but not compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kjit.errors import KjitError
from kjit.project import Project, Raised, find_pyproject, read_project, run_of_project
from kjit.runtime.calls import REFUSALS, Caller, one_line
from kjit.runtime.calls import Call as Call
from kjit.runtime.calls import last_calls as last_calls
from kjit.runtime.calls import read as read

if TYPE_CHECKING:
    from kjit.testing.comparison import Comparison
    from kjit.testing.op_test import OpTest

State = Literal["agrees", "ran", "differs", "failed"]


class Outcome(NamedTuple):
    """The outcome of a call that was made again.

    Attributes:
        state: `agrees` with the reference, or `differs`; `ran` without one; `failed`.
        detail: of a difference or failure.
    """

    call: Call
    state: State
    detail: str = ""


class Timing(NamedTuple):
    """The time of a call, in microseconds.

    Attributes:
        median: the median time of the op.
        reference: that of its reference in plain PyTorch; None if there is none, or if it does not run with these
            arguments.
        error: why it could not be measured.
    """

    call: Call
    median: float | None = None
    reference: float | None = None
    error: str = ""


def project_here() -> Project | None:
    """The project that the current folder is in, if any."""
    pyproject = find_pyproject()
    return None if pyproject is None else read_project(pyproject)


class Replay(Caller):
    """Makes calls again, and compares them with the references in the project's tests, or times them."""

    @cached_property
    def _tests(self) -> dict[Path, tuple[list[type[OpTest]], Mapping[Any, Callable[..., Any]]]]:
        """Loaded references, by file."""
        return {}

    def reference(self, call: Call) -> type[Comparison] | None:
        """The test class of the op, with its reference; None if there is none."""
        wanted = self.found(call)
        tests, others = self._references(call)
        found = next((test for test in tests if test.op is wanted), None)
        if found is None and wanted in others:
            from kjit.testing.comparison import Comparison

            return Comparison.of(wanted, others[wanted])
        return found

    def _references(self, call: Call) -> tuple[list[type[OpTest]], Mapping[Any, Callable[..., Any]]]:
        """The classes and the dictionary `REFERENCES` in the test of a call's module."""
        if self.project is None:
            return [], {}
        file = self.project.test_path(call.op.partition(":")[0].rpartition(".")[2])
        if file not in self._tests:
            self._tests[file] = self._load_tests(file) if file.is_file() else ([], {})
        return self._tests[file]

    def _load_tests(self, file: Path) -> tuple[list[type[OpTest]], Mapping[Any, Callable[..., Any]]]:
        assert self.project is not None
        from kjit.benchmark import load_file
        from kjit.testing import OpTest

        for folder in (self.project.import_root, self.project.tests_dir):
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
        found = run_of_project(partial(load_file, file))
        if isinstance(found, Raised):
            raise KjitError(f"{self.project.display(file)}, which has the reference, fails to import: {found.error}.")
        classes = [value for value in vars(found).values() if isinstance(value, type) and issubclass(value, OpTest)]
        return [test for test in classes if hasattr(test, "op")], getattr(found, "REFERENCES", {})

    def test(self, call: Call) -> Outcome:
        """Make the call, and compare its result with the reference."""
        try:
            test = self.reference(call)
            arguments = self.arguments(call)
            with self.around(call):
                made = self.prepare(call, arguments)
                if test is None:
                    made()
                    self.wait(call)
                    return Outcome(call, "ran")
                given = {name: value for name, value in arguments.items() if name not in test.outputs}
                expected = _expected(test, given)
                actual = test.run(arguments)
                self.wait(call)
                if expected is None:
                    return Outcome(call, "ran")
                test.check(actual, expected, given)
        except AssertionError as error:
            return Outcome(call, "differs", str(error))
        except REFUSALS as error:
            return Outcome(call, "failed", one_line(error))
        return Outcome(call, "agrees")

    def bench(self, call: Call) -> Timing:
        """Time the call, and its reference."""
        from kjit.benchmark import run_benchmark

        device = "cuda" if call.is_on_gpu and not self.is_simulated else "cpu"
        try:
            arguments = self.arguments(call)
            with self.around(call):
                median = run_benchmark(self.prepare(call, arguments), device=device).median
            test = self.reference(call)
        except REFUSALS as error:
            return Timing(call, error=one_line(error))
        if test is None:
            return Timing(call, median)
        given = {name: value for name, value in arguments.items() if name not in test.outputs}
        try:
            return Timing(call, median, run_benchmark(partial(test.reference, **given), device=device).median)
        except REFUSALS:
            return Timing(call, median)  # it needs the wide dtypes of tests

    def is_lost(self) -> bool:
        """Whether a kernel has failed in a way that makes the GPU unusable for this process."""
        import torch

        if self.is_simulated or not torch.cuda.is_available():
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False


def _expected(test: type[Comparison], given: dict[str, Any]) -> Any:
    """The result of the reference; None if it is not written yet."""
    import pytest

    try:
        return test.expect(given)
    except pytest.skip.Exception:
        return None
