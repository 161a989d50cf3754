"""`kjit watch`: on every save, build what changed and test it."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import Check, Ops, Sim, require
from kjit.errors import KjitError

if TYPE_CHECKING:
    from kjit.planning.wrappers import Collected
    from kjit.project import Project

# Tests that compile, or take long: `kjit test` runs them.
_LONG = ("torch_compile", "torch_library", "two_to_the_31", "compiles_without_a_gpu")
# What rounds import, which takes longer than they do.
_IMPORTS = ("torch", "pytest", "kjit.testing", "kjit.engine.pool", "kjit.cli.building", "kjit.cli.test")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """The result of a round, from which the next one goes on.

    Args:
        folders: those to watch.
        artifacts: those of each op.
        failed: the ops that did not build, or whose tests failed.
        times: the times of benchmarks, in microseconds.
        summary: the round in one line.
    """

    folders: list[Path]
    artifacts: dict[str, list[Path]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    summary: str = ""


def watch(
    ops: Ops = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Run the benchmarks too, and compare with the times before the change.")
    ] = False,
    sim: Sim = False,
    check: Check = False,
) -> None:
    """Build and test ops whenever one of their files is saved.

    Ends with Ctrl-C. Changed ops are built; if they compile, their quick tests run. Only the first error is shown.
    Kernels, headers of the project, wrappers, tests and benchmarks are watched.
    """
    from kjit import watching
    from kjit.cli.test import environment_of
    from kjit.project import find_project

    require("watchfiles", "`kjit watch` needs", "watch")
    project = find_project()
    chosen = project.check_ops(list(ops or ()))
    os.environ.update(environment_of(project, sim=sim, check=check))
    for name in (*_IMPORTS, *dict.fromkeys(each.module for each in metadata.entry_points(group="pytest11"))):
        with contextlib.suppress(ImportError):  # a round reports it if necessary
            importlib.import_module(name)
    try:
        state = State(_in_a_fork(_folders, project, chosen))
        watched: list[Path] = []
        while watched != state.folders:
            watched = state.folders
            for changed in watching.changes(project, watched):
                if console.is_terminal() and not env.is_in_ci():
                    console.out().clear()
                names = ", ".join(map(text.path, changed[:4])) + (" and more" if len(changed) > 4 else "")
                console.say(f"{time.strftime('%H:%M:%S')}  {names or ', '.join(chosen)}")
                began = time.monotonic()
                state = _in_a_fork(do_round, project, chosen, changed, state, bench)
                took = f"{time.monotonic() - began:.1f} s"
                console.say(f"{state.summary} ({took}); waiting for changes, Ctrl-C to stop")
                if state.folders != watched:
                    break
    except KeyboardInterrupt:
        console.note("Stopped.")


def _in_a_fork(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function in a fork of this process, which imports the current files of the project.

    CUDA is not initialised before the fork, as it would not survive that.

    Raises:
        KjitError: the fork ended without an answer.
    """
    sys.stdout.flush()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as forks:
        try:
            return forks.submit(function, *args, **kwargs).result()
        except BrokenProcessPool:
            raise KjitError("the process that builds and tests was ended; its output is above.") from None


def _folders(project: Project, ops: Sequence[str]) -> list[Path]:
    from kjit import watching
    from kjit.planning import wrappers

    return watching.folders(project, wrappers.collect(project, ops).specs())


def do_round(project: Project, chosen: Sequence[str], changed: list[Path], state: State, bench: bool) -> State:
    """Build, test and measure the ops that a change affects."""
    from kjit import watching
    from kjit.cli.building import print_errors
    from kjit.planning import wrappers
    from kjit.project import read_project

    project = read_project(project.root / "pyproject.toml")
    ops = [op for op in chosen if op in project.ops()]
    collected = wrappers.collect(project, ops)
    state = replace(state, folders=watching.folders(project, collected.specs()))
    if collected.failures:
        print_errors([collected.failures[0][1]])
        bad = {*state.failed, *(op for op, _ in collected.failures)}
        return replace(state, failed=sorted(bad), summary="the wrapper cannot be imported")
    artifacts, error, broken = _build(collected)
    if error is not None:
        print_errors([error])
        return replace(state, failed=sorted({*state.failed, *broken}), summary="it does not compile")
    wanted = watching.concerned(project, ops, changed, state.artifacts, artifacts, state.failed)
    state = replace(state, artifacts=artifacts, failed=[op for op in state.failed if op not in wanted])
    tests = [project.test_path(op) for op in wanted if project.test_path(op).is_file()]
    if not wanted:
        return replace(state, summary="no watched op depends on it")
    summary = f"{', '.join(wanted)}: tests pass" if tests else f"built; without a test: {', '.join(wanted)}"
    if tests and (status := _test(project, tests)) != 0:
        failure = f"a test failed{'' if status == 1 else f' (pytest: {status})'}"
        return replace(state, failed=wanted, summary=failure)
    times = _measure(project, wanted, state.times) if bench else {}
    return replace(state, times={**state.times, **times}, summary=summary)


def _build(collected: Collected) -> tuple[dict[str, list[Path]], KjitError | None, list[str]]:
    """The artifacts of each op, the first error, and the ops that did not compile."""
    from kjit.cli.building import build_variants
    from kjit.cli.test import targets_of_tests
    from kjit.engine.cache.store import Store

    targets = targets_of_tests(collected.specs(), env.simulation())
    variants = collected.variants(targets)
    outcomes = build_variants(variants, Store.open()) if variants else []
    artifacts: dict[str, list[Path]] = {}
    failed: dict[str, KjitError] = {}
    for op, specs in collected.modules:
        for outcome in outcomes:
            if outcome.variant.spec not in specs:
                continue
            if outcome.artifact is not None:
                artifacts.setdefault(op, []).append(outcome.artifact.library)
            elif outcome.error is not None:
                failed.setdefault(op, outcome.error)
    return artifacts, next(iter(failed.values()), None), [*failed]


def _test(project: Project, files: Sequence[Path]) -> int:
    """pytest's exit status; it stops at the first failure."""
    import pytest

    sys.path[:] = [str(project.root), *filter(None, sys.path)]
    quick = f"not ({' or '.join(_LONG)})"
    options = ["-x", "-q", "--no-header", "--tb=short", "--ff", "-k", quick, "-p", "no:warnings"]
    options += ["-p", "no:unraisableexception"]  # for which pytest collects garbage, which is slow with large modules
    return int(pytest.main([*options, *map(text.path, files)]))


def _measure(project: Project, ops: Sequence[str], before: dict[str, float]) -> dict[str, float]:
    """Print the times of the ops' benchmarks, next to the previous ones."""
    from kjit.bench import collect, report
    from kjit.bench.sweep import describe, run_sweeps
    from kjit.benchmark import quick
    from kjit.project import prints_to_stderr

    files = [project.benchmark_path(op) for op in ops if project.benchmark_path(op).is_file()]
    with quick():
        sweeps, failures = collect.load_sweeps(project, files)
        with prints_to_stderr():
            measured = run_sweeps([sweep.only_first() for sweep in sweeps])
    times = {
        f"{m.sweep.name} {describe(m.args, m.provider)}": m.time.median
        for m in measured.measurements
        if m.time is not None
    }
    rows = []
    for name, now in times.items():
        was = before.get(name)
        rows.append(
            (name, *(("", "") if was is None else (report.number(was), f"{now / was - 1:+.1%}")), report.number(now))
        )
    if rows:
        text.print_rows(("benchmark", "before (us)", "change", "now (us)"), rows, ("before (us)", "now (us)", "change"))
    for failed in report.describe_failures([*failures, *measured.failures]):
        console.note(f"not measured: {failed}")
    return times
