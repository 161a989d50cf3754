"""`kjit test`: run the tests of ops with pytest."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import Check, Ops, Sim
from kjit.errors import KjitError, ToolchainError, UsageError
from kjit.spec import Spec, Target

if TYPE_CHECKING:
    from kjit.project import Project

_FOR_PYTEST = "kjit.for_pytest"
# `python -m pytest` would put the current folder first on sys.path, where an op may have the name of a module of
# Python.
_START_PYTEST = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)];"
    " import runpy; runpy.run_module('pytest', run_name='__main__', alter_sys=True)"
)
# A warning of torch about itself, a dozen times when torch.compile is first used.
_OF_TORCH = "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
_USAGE, _NOTHING_RAN = 4, 5  # pytest's exit statuses
# With these, pytest runs few tests or none: their modules are unknown here, and are built when they are loaded.
_NARROWED = re.compile(
    r"-k.*|-m.*|.*::.*|--lf|--last-failed|--sw|--stepwise|--deselect.*|--co|--collect-only|--fixtures.*|--markers"
    r"|--setup-plan|-h|--help|-V|--version"
)


class Command(TyperCommand):
    """A command that passes the arguments after `--` to pytest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_FOR_PYTEST] = args[at + 1 :]
            args = args[:at]
        try:
            return super().parse_args(ctx, args)
        except console.Unreadable as error:
            if (option := getattr(error, "option_name", None)) is None:
                raise
            raise UsageError(
                f"no such option: {option}.", hint=f"options for pytest follow --: -- {option} ..."
            ) from error


def test(
    context: typer.Context,
    ops: Ops = None,
    sim: Sim = False,
    check: Check = False,
) -> None:
    """Run the tests of ops with pytest.

    Arguments after -- are passed to pytest: kjit test scale -- -x -k agrees.

    The declared modules of the ops are built first, in parallel, unless only some tests are selected. If they do not
    compile, no test runs.

    Exit status 1: a test failed, or none ran, or something does not compile.
    """
    from kjit.project import find_project

    project = find_project()
    files = find_tests(project, ops or [])
    environment = environment_of(project, sim=sim, check=check)
    for_pytest: list[str] = context.meta.get(_FOR_PYTEST, [])
    command = pytest_command(project, *map(text.path, files), *for_pytest)
    if not any(map(_NARROWED.fullmatch, for_pytest)):
        _build_first(project, ops or [file.stem.removeprefix("test_") for file in files], sim=sim, check=check)
    raise typer.Exit(_status(subprocess.run(command, env=environment, check=False).returncode))


def pytest_command(project: Project, *arguments: str) -> list[str]:
    """The command that runs pytest with these arguments.

    Raises:
        KjitError: it is not installed.
    """
    if importlib.util.find_spec("pytest") is None:
        raise KjitError(f"pytest is not installed for {sys.executable}.", hint="pip install pytest")
    return [sys.executable, "-c", _START_PYTEST, str(project.root), "-W", _OF_TORCH, *arguments]


def environment_of(project: Project, *, sim: bool = False, check: bool = False) -> dict[str, str]:
    """The environment of tests: wrappers are imported from the project, whatever the current folder."""
    path = os.pathsep.join(filter(None, [str(project.import_root), os.environ.get("PYTHONPATH", "")]))
    simulator = {env.SIM: "check" if check else "1"} if sim or check else {}
    return {**os.environ, **simulator, "PYTHONPATH": path}


def _build_first(project: Project, ops: Sequence[str], *, sim: bool, check: bool) -> None:
    """Build the modules of the tests of `ops`, so that it is done in parallel and errors are reported once.

    Anything that cannot be built here, without a compiler or a cache, is left to the tests.
    """
    from kjit.cli.building import build_variants, exit_on_failures
    from kjit.engine.cache.store import Store
    from kjit.planning.wrappers import collect
    from kjit.runtime import bundle
    from kjit.runtime.declared import variants_of

    store = Store.open()
    if env.no_compile() or not store.is_writable():
        return
    collected = collect(project, ops)
    simulator: env.Simulation | None = "sim-check" if check else "sim" if sim else env.simulation()
    targets = targets_of_tests(collected.specs(), simulator)
    wrappers = {spec: str(project.wrapper_path(op)) for op, specs in collected.modules for spec in specs}
    variants = [
        variant
        for spec, wrapper in wrappers.items()
        for variant in variants_of(spec, targets)
        if bundle.find(variant, wrapper).library is None
    ]
    if not variants:
        return
    outcomes = build_variants(variants, store)
    exit_on_failures(outcomes, "No test was run.")


def targets_of_tests(specs: Sequence[Spec], simulator: env.Simulation | None) -> list[Target]:
    """The targets of the tests of `specs`, given the available compilers: those of `kjit.testing.device_fixture`.

    Args:
        simulator: the requested simulator.
    """
    from kjit.engine.toolchain.toolchain import Toolchain
    from kjit.runtime import gpus
    from kjit.runtime.load import runtime_target

    sides = {side for spec in specs for side in spec.kinds}
    if simulator is None and "cuda" in sides and not env.forbids_simulation() and not gpus.visible_gpus():
        simulator = "sim"
    targets = []
    for side in sorted(sides):
        with contextlib.suppress(ToolchainError):
            target = Target(simulator) if side == "cuda" and simulator is not None else runtime_target(side, None)
            targets.append(Toolchain.for_target(target).target)
    return targets


def find_tests(project: Project, ops: Sequence[str]) -> list[Path]:
    """The test files of `ops`, or of all ops that have one.

    Raises:
        UsageError: there is no such op, or no test.
    """
    named = project.check_ops(list(ops))
    files = [project.test_path(op) for op in named]
    missing = [(op, file) for op, file in zip(named, files, strict=True) if not file.is_file()]
    for op, file in missing if ops else ():
        raise UsageError(
            f"op '{op}' has no test: there is no {project.display(file)}.",
            hint=f"`kjit new {op} --dry-run` shows what the scaffold would contain",
        )
    found = [file for file in files if file.is_file()]
    if not found:
        raise UsageError(
            f"there is no test of an op in {project.display(project.tests_dir)}.",
            hint="`kjit new OP` writes one with the op; a test file is named test_<op>.py",
        )
    if missing:
        console.note(f"without a test: {', '.join(op for op, _ in missing)}")
    return found


def _status(pytests: int) -> int:
    """kjit's exit status for that of pytest, where a test file that fails to import is an interruption."""
    if pytests < 0:
        raise KjitError(f"pytest was ended by {signal.Signals(-pytests).name}.", hint="`-- -x -v` shows in which test")
    if pytests == _NOTHING_RAN:
        raise KjitError("no test ran.", hint="the arguments after -- may exclude all of them")
    return {0: 0, _USAGE: 2}.get(pytests, 1)
