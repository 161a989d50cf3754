"""`kjit watch`: on every save, build what changed and test it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import Check, Ops, Sim
from kjit.errors import KjitError

if TYPE_CHECKING:
    from kjit.planning.wrappers import Collected
    from kjit.project import Project
    from kjit.spec import Variant

# Tests that compile, or take long: `kjit test` runs them.
_LONG = ("torch_compile", "torch_library", "two_to_the_31", "compiles_without_a_gpu")
# What rounds import, which takes longer than they do.
_IMPORTS = ("torch", "pytest", "kjit.testing", "kjit.engine.pool", "kjit.cli.building", "kjit.cli.test")


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
    from kjit.planning import wrappers
    from kjit.project import find_project

    watching.require_watchfiles()
    project = find_project()
    chosen = project.check_ops(list(ops or ()))
    os.environ.update(environment_of(project, sim=sim, check=check))
    for name in (*_IMPORTS, *dict.fromkeys(each.module for each in metadata.entry_points(group="pytest11"))):
        with contextlib.suppress(ImportError):  # a round reports it if necessary
            importlib.import_module(name)
    prepare(project)
    state: dict[str, Any] = {"artifacts": {}, "failed": [], "times": {}}
    try:
        watched: list[str] = _in_a_fork(lambda: _folders(project, wrappers.collect(project, chosen)))
        while True:
            for changed in watching.changes(project, [*map(Path, watched)]):
                state = _round(project, {"ops": chosen, "changed": [*map(str, changed)], "bench": bench, **state})
                if new := [folder for folder in state.pop("folders") if folder not in watched]:
                    watched += new
                    break
    except KeyboardInterrupt:
        console.note("Stopped.")


def prepare(project: Project) -> None:
    """Start what compiles CUDA units in two halves, which the forks of rounds share, if the project has some."""
    from kjit.engine.compile import start_helper
    from kjit.engine.toolchain.toolchain import Toolchain
    from kjit.errors import ToolchainError
    from kjit.spec import Target

    if not any(path.suffix in (".cu", ".cuh") for path in project.csrc_dir.rglob("*")):
        return
    try:
        nvrtc = Toolchain.for_target(Target.cuda("8.0")).nvrtc
    except ToolchainError:
        return  # a round that needs it says so
    if nvrtc is not None and env.simulation() is None:
        start_helper.variables(nvrtc)


def _folders(project: Project, collected: Collected) -> list[str]:
    from kjit.watching import folders

    return [str(folder) for folder in folders(project, collected.specs())]


def _round(project: Project, request: dict[str, Any]) -> dict[str, Any]:
    """Do a round, between two lines about it; the state after it."""
    if console.is_terminal() and not env.is_in_ci():
        console.out().clear()
    changed: list[str] = request["changed"]
    names = ", ".join(text.path(Path(path)) for path in changed[:4]) + (" and more" if len(changed) > 4 else "")
    console.say(f"{time.strftime('%H:%M:%S')}  {names or ', '.join(request['ops'])}")
    began = time.monotonic()
    answer: dict[str, Any] = _in_a_fork(lambda: do_round(project.root / "pyproject.toml", request))
    took = f"{time.monotonic() - began:.1f} s"
    console.say(f"{answer.pop('summary')} ({took}); waiting for changes, Ctrl-C to stop")
    return answer


def _in_a_fork(function: Callable[[], object]) -> Any:
    """The JSON value that a function returns in a fork of this process, which imports the current files of the project.

    CUDA is not initialised before the fork, as it would not survive that.

    Raises:
        KjitError: the fork ended without an answer.
    """
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="kjit-watch-") as folder:
        file = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            _answer(function, file)
        try:
            _, status = os.waitpid(child, 0)
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):  # it has no session yet, and hears Ctrl-C itself
                os.killpg(child, signal.SIGTERM)
            os.waitpid(child, 0)
            raise
        if status != 0:
            code = os.waitstatus_to_exitcode(status)
            raise KjitError(f"the process that builds and tests ended with status {code}; its output is above.")
        return json.loads(file.read_text("utf-8"))


def _answer(function: Callable[[], object], file: Path) -> NoReturn:
    """Write the result of a function, and end this process."""
    status = 1
    try:
        os.setsid()  # Ctrl-C goes to the other process, which then ends this one
        file.write_text(json.dumps(function()), "utf-8")
        status = 0
    except KjitError as error:
        console.print_error(error.message, error.hint)
    except (KeyboardInterrupt, SystemExit, typer.Exit):
        pass  # the other process has ended it, or a test has
    except BaseException:  # noqa: BLE001 (a fork may not go on in place of the original)
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def do_round(pyproject: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Build, test and measure the ops that a change affects.

    Returns: The state for the next round: artifacts, failed ops, times; the `folders` to watch; and a `summary` in one
        line.
    """
    from kjit.cli.building import print_errors
    from kjit.planning import wrappers
    from kjit.project import read_project
    from kjit.watching import concerned

    project = read_project(pyproject)
    ops: list[str] = [op for op in request["ops"] if op in project.ops()]
    state = {name: request[name] for name in ("artifacts", "failed", "times")}
    collected = wrappers.collect(project, ops)
    state["folders"] = _folders(project, collected)
    if collected.failures:
        print_errors([collected.failures[0][1]])
        bad = {*request["failed"], *(op for op, _ in collected.failures)}
        return {**state, "failed": sorted(bad), "summary": "the wrapper cannot be imported"}
    artifacts, error, broken = _build(collected)
    if error is not None:
        print_errors([error])
        return {**state, "failed": sorted({*request["failed"], *broken}), "summary": "it does not compile"}
    changed = [*map(Path, request["changed"])]
    wanted = concerned(project, ops, changed, request["artifacts"], artifacts, request["failed"])
    state |= {"artifacts": artifacts, "failed": [op for op in request["failed"] if op not in wanted]}
    tests = [project.test_path(op) for op in wanted if project.test_path(op).is_file()]
    if not wanted:
        return {**state, "summary": "no watched op depends on it"}
    summary = f"{', '.join(wanted)}: tests pass" if tests else f"built; without a test: {', '.join(wanted)}"
    if tests and (status := _test(project, tests)) != 0:
        return {**state, "failed": wanted, "summary": f"a test failed{'' if status == 1 else f' (pytest: {status})'}"}
    if request["bench"]:
        state["times"] = {**state["times"], **_measure(project, wanted, state["times"])}
    return {**state, "summary": summary}


def _build(collected: Collected) -> tuple[dict[str, list[str]], KjitError | None, list[str]]:
    """The artifacts of each op, the first error, and the ops that did not compile."""
    from kjit.cli.building import build_variants
    from kjit.cli.test import targets_of_tests
    from kjit.engine.cache.store import Store
    from kjit.runtime.declared import variants_of

    targets = targets_of_tests(collected.specs(), env.simulation())
    by_op: dict[str, list[Variant]] = {}
    for op, specs in collected.modules:
        by_op.setdefault(op, []).extend(each for spec in specs for each in variants_of(spec, targets))
    variants = list(dict.fromkeys(each for every in by_op.values() for each in every))
    store = Store.open()
    outcomes = build_variants(variants, store) if variants else []
    by_variant = {outcome.variant: outcome for outcome in outcomes}
    artifacts = {
        op: [a.path for each in every if (a := by_variant[each].artifact) is not None] for op, every in by_op.items()
    }
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    bad = {op for op, every in by_op.items() for each in failed if each.variant in every}
    return artifacts, failed[0].error if failed else None, sorted(bad)


def _test(project: Project, files: Sequence[Path]) -> int:
    """pytest's exit status; it stops at the first failure."""
    import pytest

    sys.path[:] = [str(project.root), *filter(None, sys.path)]
    quick = f"not ({' or '.join(_LONG)})"
    shown = [text.path(path) for path in files]
    options = ["-x", "-q", "--no-header", "--tb=short", "--ff", "-k", quick, "-p", "no:warnings"]
    options += ["-p", "no:unraisableexception"]  # for which pytest collects garbage, which is slow with large modules
    return int(pytest.main([*options, *shown]))


def _measure(project: Project, ops: Sequence[str], before: dict[str, float]) -> dict[str, float]:
    """The times of the ops' benchmarks, next to the previous ones."""
    from kjit.bench import collect, report
    from kjit.bench.sweep import run_sweeps
    from kjit.benchmark import quick
    from kjit.project import prints_to_stderr

    files = [project.benchmark_path(op) for op in ops if project.benchmark_path(op).is_file()]
    times: dict[str, float] = {}
    if not files:
        console.note(f"without a benchmark: {', '.join(ops)}")
        return times
    with quick():
        sweeps, failures = collect.load_sweeps(project, files)
        with prints_to_stderr():
            measured = run_sweeps([sweep.only_first() for sweep in sweeps])
    rows = []
    for m in measured.measurements:
        if m.time is None:
            continue
        name = f"{m.sweep.name} {', '.join(f'{key}={value}' for key, value in m.args.items())}"
        times[name] = m.time.median
        was = before.get(name)
        change = "" if was is None else f"{m.time.median / was - 1:+.1%}"
        rows.append((name, "" if was is None else report.number(was), report.number(m.time.median), change))
    if rows:
        text.print_rows(("benchmark", "before (us)", "now (us)", "change"), rows, ("before (us)", "now (us)", "change"))
    for failed in report.describe_failures([*failures, *measured.failures]):
        console.note(f"not measured: {failed}")
    return times
