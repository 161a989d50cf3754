"""The benchmarks of a project: the files `bench_*.py` of its benchmarks folder, each imported separately.

A file that fails to import is reported, and does not affect the others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

from kjit.bench.sweep import Failure, Sweep
from kjit.benchmark import load_file
from kjit.errors import UsageError
from kjit.project import Project, Raised, describe_error, run_of_project

PREFIX = "bench_"
"""The prefix of a benchmark file's name, before the op's name."""


def find_files(project: Project, ops: Sequence[str] = ()) -> list[Path]:
    """The benchmark files of `ops`, or all of them.

    Raises:
        UsageError: an op has none, or there are none.
    """
    if not ops:
        files = sorted(project.benchmarks_dir.glob(f"{PREFIX}*.py"))
        if not files:
            raise UsageError(
                f"there is no benchmark in {project.display(project.benchmarks_dir)}.",
                hint="`kjit new OP` writes one with the op; a benchmark file is named bench_<op>.py",
            )
        return files
    for op in ops:
        if not project.benchmark_path(op).is_file():
            project.check_ops([op])
            raise UsageError(
                f"op '{op}' has no benchmark: there is no {project.display(project.benchmark_path(op))}.",
                hint="its docstring shows what to put there: python -c 'import kjit.benchmark as b; print(b.__doc__)'",
            )
    return [project.benchmark_path(op) for op in dict.fromkeys(ops)]


def load_sweeps(project: Project, files: Sequence[Path]) -> tuple[list[Sweep], list[Failure]]:
    """Import benchmark files, with the project's code importable, and return their benchmarks."""
    for folder in (project.import_root, project.benchmarks_dir):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    sweeps: list[Sweep] = []
    failures: list[Failure] = []
    for file in files:
        found = run_of_project(partial(_sweeps_in, file))
        if isinstance(found, Raised):
            failures.append(Failure(project.display(file), f"it fails to import: {describe_error(found.error, file)}"))
            continue
        if not found:
            reason = "it has no benchmark: no function is decorated with triton.testing.perf_report"
            failures.append(Failure(project.display(file), reason))
        sweeps += found
    return sweeps, failures


def _sweeps_in(file: Path) -> list[Sweep]:
    return _sweeps_of(load_file(file))


def _sweeps_of(module: ModuleType) -> list[Sweep]:
    from triton.testing import Mark

    marks = {id(value): value for value in vars(module).values() if isinstance(value, Mark)}
    # Benchmarks imported from a helper belong to the helper.
    own = [mark for mark in marks.values() if mark.fn.__globals__ is vars(module)]
    return [sweep for mark in own for sweep in Sweep.of(mark)]
