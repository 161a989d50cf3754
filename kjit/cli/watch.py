"""`kjit watch`: on every save, build what changed and test it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kjit import env
from kjit.cli import complete, console, text

if TYPE_CHECKING:
    from kjit.engine.outcomes import Outcome
    from kjit.errors import KjitError
    from kjit.planning.wrappers import Collected
    from kjit.project import Project
    from kjit.spec import Variant
    from kjit.standby import Standby

# Tests that compile, or take long: `kjit test` runs them.
_LONG = ("torch_compile", "torch_library", "two_to_the_31", "compiles_without_a_gpu")
_IMPORTS = ("torch", "pytest", "kjit.testing", "kjit.engine.pool", "kjit.cli.building", "kjit.cli.test")


def watch(
    ops: Annotated[
        list[str] | None,
        typer.Argument(metavar="OP", help="Only these ops; default: all.", autocompletion=complete.ops),
    ] = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Run the benchmarks too, and compare with the times before the change.")
    ] = False,
    sim: Annotated[
        bool, typer.Option("--sim", help="Run CUDA kernels in the simulator, even if there is a GPU.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Run them in the simulator with its checks.")] = False,
) -> None:
    """Build and test ops whenever one of their files is saved.

    Ends with Ctrl-C. Changed ops are built; if they compile, their quick tests run. Only the first error is shown.
    Kernels, headers of the project, wrappers, tests and benchmarks are watched.
    """
    from kjit import watching
    from kjit.project import find_project
    from kjit.standby import Standby

    watching.require_watchfiles()
    project = find_project()
    chosen = project.check_ops(list(ops or ()))
    environment = dict(os.environ)
    if sim or check:
        environment[env.SIM] = "check" if check else "1"
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(project.import_root), environment.get("PYTHONPATH", "")])
    )
    plugins = (each.module for each in metadata.entry_points(group="pytest11"))
    imports = (*_IMPORTS, *dict.fromkeys(plugins))
    standby = Standby("kjit.cli.watch:do_round", imports, environment, "kjit.cli.watch:prepare")
    watcher = watching.Watcher(project.root)
    state: dict[str, Any] = {"artifacts": {}, "failed": [], "times": {}}
    changed: list[Path] = []
    try:
        watcher.watch(watching.folders(project))
        while True:
            began_ns = time.time_ns()
            state = _round(standby, project, chosen, changed, state, bench=bench)
            watcher.watch(map(Path, state.pop("folders")), began_ns)
            changed = watcher.wait()
    except KeyboardInterrupt:
        console.note("Stopped.")
    finally:
        watcher.end()
        standby.end()


def _round(
    standby: Standby,
    project: Project,
    ops: Sequence[str],
    changed: Sequence[Path],
    state: dict[str, Any],
    *,
    bench: bool,
) -> dict[str, Any]:
    if console.is_terminal() and not env.is_in_ci():
        console.out().clear()
    names = ", ".join(text.path(path) for path in changed[:4]) + (" and more" if len(changed) > 4 else "")
    console.say(f"{time.strftime('%H:%M:%S')}  {names or ', '.join(ops)}")
    began = time.monotonic()
    request = {
        "pyproject": str(project.root / "pyproject.toml"),
        "ops": list(ops),
        "changed": [str(path) for path in changed],
        "bench": bench,
        **state,
    }
    answer: dict[str, Any] = standby.do(request)
    console.say(f"{answer.pop('summary')} ({time.monotonic() - began:.1f} s); waiting for changes, Ctrl-C to stop")
    return answer


def prepare() -> None:
    """Have what compiles CUDA units in two halves wait for the next round, so that it is warm then, if the project has
    some."""
    from kjit.engine.compile import start_helper
    from kjit.engine.toolchain.toolchain import Toolchain
    from kjit.errors import ToolchainError
    from kjit.project import find_project
    from kjit.spec import Target

    if not any(path.suffix in (".cu", ".cuh") for path in find_project().csrc_dir.rglob("*")):
        return
    try:
        nvrtc = Toolchain.for_target(Target.cuda("8.0")).nvrtc
    except ToolchainError:
        return  # a round that needs it says so
    if nvrtc is not None and env.simulation() is None:
        start_helper.variables(nvrtc)


def do_round(request: dict[str, Any]) -> dict[str, Any]:
    """Build, test and measure the ops that a change affects, in a separate process.

    Returns: The state for the next round: artifacts, failed ops, times; the `folders` to watch; and a `summary` in one
        line.
    """
    from kjit.cli.building import print_errors
    from kjit.planning import wrappers
    from kjit.project import read_project
    from kjit.watching import concerned, folders

    project = read_project(Path(request["pyproject"]))
    ops: list[str] = [op for op in request["ops"] if op in project.ops()]
    collected = wrappers.collect(project, ops)
    answer = {
        "artifacts": request["artifacts"],
        "failed": request["failed"],
        "times": request["times"],
        "folders": [str(folder) for folder in folders(project, collected.specs())],
    }
    if collected.failures:
        print_errors([collected.failures[0][1]])
        bad = {*request["failed"], *(op for op, _ in collected.failures)}
        return {**answer, "failed": sorted(bad), "summary": "the wrapper cannot be imported"}
    artifacts, error, broken = _build(collected)
    wanted = concerned(
        project,
        ops,
        [Path(path) for path in request["changed"]],
        request["artifacts"],
        artifacts,
        request["failed"],
    )
    if error is not None:
        print_errors([error])
        return {**answer, "failed": sorted({*request["failed"], *broken}), "summary": "it does not compile"}
    answer = {**answer, "artifacts": artifacts, "failed": [op for op in request["failed"] if op not in wanted]}
    tests = [project.test_path(op) for op in wanted if project.test_path(op).is_file()]
    if not wanted:
        return {**answer, "summary": "no watched op depends on it"}
    if not tests:
        summary = f"built; without a test: {', '.join(wanted)}"
    elif (status := _test(project, tests)) != 0:
        return {**answer, "failed": wanted, "summary": f"a test failed{'' if status == 1 else f' (pytest: {status})'}"}
    else:
        summary = f"{', '.join(wanted)}: tests pass"
    if request["bench"]:
        answer["times"] = {**answer["times"], **_measure(project, wanted, answer["times"])}
    return {**answer, "summary": summary}


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
    try:
        outcomes: list[Outcome] = build_variants(variants, store) if variants else []
    except typer.Exit as ended:  # by `Standby.end`
        raise SystemExit(ended.exit_code) from None
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
