"""`kjit sanitize`: the tests of ops under a sanitizer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import Json, Timeout, known_ops
from kjit.errors import KjitError, ToolchainError, UsageError

if TYPE_CHECKING:
    from kjit.engine.cache.artifact import Artifact
    from kjit.planning.wrappers import Collected
    from kjit.project import Project
    from kjit.sanitizing import Finding, Lines, Run
    from kjit.spec import Variant

    Built = tuple[Variant, Artifact]

_APPENDED = "NVCC_APPEND_FLAGS"  # nvcc's own variable, and so part of the key


def sanitize(
    ops: Annotated[
        list[str] | None,
        typer.Argument(metavar="OP", help="Only these ops; default: all that have a test.", autocompletion=known_ops),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool", metavar="NAME", help="memcheck, racecheck, initcheck, synccheck; default: all, in sequence."
        ),
    ] = None,
    sim: Annotated[bool, typer.Option("--sim", help="Use the simulator's checks, even if there is a GPU.")] = False,
    tests: Annotated[
        str | None,
        typer.Option("--tests", "-k", metavar="EXPRESSION", help="Only tests that match, as with pytest -k."),
    ] = None,
    timeout: Timeout = "5m",
    json: Json = False,
) -> None:
    """Run the tests of ops under compute-sanitizer.

    Each mistake is reported once, with its place and the number of times it occurred. Without a GPU, and with --sim,
    the tests run in the simulator, which checks every access. Tests of torch.compile, CUDA graphs and very large
    tensors are left out. All output is kept in .kjit/sanitize.

    Exit status 1: a mistake was found, a test failed, or the time limit was reached.
    """
    from kjit import sanitizing
    from kjit.cli.test import find_tests, pytest_command
    from kjit.engine.reports import report_of
    from kjit.planning import wrappers
    from kjit.project import find_project, keep_folder
    from kjit.runtime import gpus

    limit = text.duration(timeout)
    check_tools(tool or ())
    project = find_project()
    files = find_tests(project, ops or [])
    collected = wrappers.collect(project, ops or [file.stem.removeprefix("test_") for file in files])
    wanted = _with_kernels(collected, are_named=bool(ops))
    files = [file for file in files if file.stem.removeprefix("test_") in wanted]
    chosen = " and ".join([*([] if tests is None else [f"({tests})"]), f"not ({' or '.join(sanitizing.LEFT_OUT)})"])
    options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-k", chosen]
    command = pytest_command(project, *options, *map(text.path, files))
    found = gpus.visible_gpus()
    simulated = sim or env.simulation() is not None or not found
    if simulated and tool:
        why = "there is no GPU here" if not found else "the simulator was requested"
        raise UsageError(f"--tool is for compute-sanitizer, and {why}.", hint="leave it out")
    if not simulated:
        require_sanitizer()
    elif not sim and env.simulation() is None:
        console.note("There is no GPU here: the simulator looks for mistakes in CUDA kernels.")
    folder = keep_folder(project, "sanitize")
    environment = environment_of(project, simulated=simulated)
    built = _build(collected, wanted, simulated=simulated)
    kernels = list(dict.fromkeys(kernel.kernel for _, artifact in built for kernel in report_of(artifact)[1]))
    lines = None if simulated else _lines(built)
    name = "-".join(wanted) if len(wanted) <= 3 else f"{len(wanted)}-ops"
    runs: list[Run] = []
    for each in ("sim-check",) if simulated else tuple(tool or sanitizing.TOOLS):
        console.note(f"{each}: {', '.join(text.path(file) for file in files)}")
        run = sanitizing.run_tests(each, command, environment, folder, name, kernels=kernels, place=lines, limit=limit)
        runs.append(run)
        if not json:
            print_run(run, limit)
        if run.status in (4, 5) and not run.failed:
            raise KjitError(f"no test ran ({text.path(run.report)}).", hint="-k may leave all of them out")
    if json:
        console.print_json([run_to_json(run) for run in runs])
    if not all(run.is_clean for run in runs):
        raise typer.Exit(1)


def _with_kernels(collected: Collected, *, are_named: bool) -> list[str]:
    """The ops that have a CUDA source, or declare nothing and may have one.

    Raises:
        UsageError: a given op has none, or no op has one.
    """
    have = {op for op, specs in collected.modules if any("cuda" in spec.kinds for spec in specs)}
    without = list(dict.fromkeys(op for op, _ in collected.modules if op not in have))
    unknown = [*collected.without, *(op for op, _ in collected.failures)]
    wanted = [*dict.fromkeys(op for op, _ in collected.modules if op in have), *unknown]
    if without and (are_named or not wanted):
        raise UsageError(
            f"no CUDA source: {', '.join(without)}; the sanitizers check CUDA kernels.",
            hint="kjit list shows which ops have one",
        )
    if without:
        console.note(f"without a CUDA source: {', '.join(without)}")
    return list(dict.fromkeys(wanted))


def check_tools(names: Sequence[str]) -> None:
    """Refuse unknown tools of compute-sanitizer.

    Raises:
        UsageError: there is one.
    """
    from kjit.sanitizing import TOOLS

    for name in names:
        if name not in TOOLS:
            raise UsageError(f"'{name}' is not a tool.", hint=f"the tools are {', '.join(TOOLS)}")


def require_sanitizer() -> None:
    from kjit.engine.toolchain.cuda_tools import find_tool

    try:
        find_tool("compute-sanitizer")
    except ToolchainError as error:
        raise ToolchainError(error.message, hint=f"{error.hint}; `kjit sanitize --sim` works without it") from None


def environment_of(project: Project, *, simulated: bool) -> dict[str, str]:
    """The environment of the tests. The flag for nvcc is also set for this process, which builds their modules."""
    from kjit.cli.test import environment_of as tests_environment

    if simulated:
        os.environ[env.SIM] = "check"
    else:
        os.environ[_APPENDED] = f"{os.environ.get(_APPENDED, '')} -lineinfo".strip()
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return tests_environment(project)


def _lines(built: Sequence[Built]) -> Lines | None:
    """The source lines of the kernels' instructions; None without a disassembler."""
    from kjit.inspection import code_of
    from kjit.sanitizing import Lines

    try:
        return Lines(code_of(variant, artifact) for variant, artifact in built if variant.target.kind == "cuda")
    except ToolchainError:
        return None


def _build(collected: Collected, ops: Sequence[str], *, simulated: bool) -> list[Built]:
    """Build the modules of the tests of `ops`."""
    from kjit.cli.building import build_variants, exit_on_failures, print_errors
    from kjit.cli.test import targets_of_tests
    from kjit.engine.cache.store import Store
    from kjit.runtime.declared import variants_of

    print_errors(error for _, error in collected.failures)
    if collected.failures:
        raise typer.Exit(1)
    specs = list(dict.fromkeys(spec for op, found in collected.modules if op in ops for spec in found))
    targets = targets_of_tests(specs, "sim-check" if simulated else None)
    variants = [each for spec in specs for each in variants_of(spec, targets)]
    outcomes = build_variants(variants, Store.open()) if variants else []
    exit_on_failures(outcomes, "No test was run.")
    return [(outcome.variant, outcome.artifact) for outcome in outcomes if outcome.artifact is not None]


def print_run(run: Run, limit: float) -> None:
    took = text.seconds(run.seconds)
    if run.findings:
        total = sum(each.count for each in run.findings)
        console.say(f"{run.tool}: {text.count(len(run.findings), 'mistake')} in {text.count(total, 'report')} ({took})")
        for each in run.findings:
            console.say(f"  {_sentence(each)}")
    elif not run.failed and not run.timed_out:
        console.say(f"{run.tool}: nothing found ({took})")
    if run.findings and run.failed and run.tool != "sim-check":  # in the simulator a mistake is a failed test
        console.say(f"  {text.count(len(run.failed), 'test')} failed")
    for test, why in run.failed[:3] if not run.findings else ():
        console.say(f"  failed: {test}: {why}")
    if run.timed_out:
        where = f" in {run.test}" if run.test else ""
        console.print_error(
            f"{run.tool} was ended after {text.seconds(limit)}{where}.",
            "--timeout raises the limit, -k runs fewer tests; a kernel that never ends has the same effect",
        )
    if run.findings or run.failed or run.timed_out:
        console.note(f"  all of it: {text.path(run.report)}")


def _sentence(each: Finding) -> str:
    from kjit.inspection import shown_place

    kernel = f"kernel {each.kernel} " if each.kernel else ""
    where = f", at {shown_place((each.file, each.line))}" if each.file else ""
    times = f" ({each.count} times)" if each.count > 1 else ""
    example = f"\n      for example {each.example}" if each.example else ""
    return f"{kernel}{each.what}{where}{times}{example}"


def run_to_json(run: Run) -> dict[str, object]:
    return {
        "tool": run.tool,
        "findings": [asdict(each) for each in run.findings],
        "failed": [{"test": test, "error": why} for test, why in run.failed],
        "timed_out": run.timed_out,
        "test": run.test if run.timed_out else None,
        "seconds": round(run.seconds, 3),
        "report": str(run.report),
    }
