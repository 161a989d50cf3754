"""`kjit replay`: recorded calls, made again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import Json, Timeout
from kjit.errors import KjitError, UsageError

if TYPE_CHECKING:
    from kjit.replay import Call, Outcome, Replay

replay_app = typer.Typer(
    help="Test, time or sanitize calls recorded with KJIT_RECORD.",
    no_args_is_help=True,
)

_Paths = Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders of recorded calls, or files of them.")]
_Ops = Annotated[
    list[str] | None, typer.Option("--op", metavar="NAME", help="Only calls of this op; may be given several times.")
]
_Sim = Annotated[bool, typer.Option("--sim", help="Make calls on a GPU in the simulator, even if there is a GPU.")]

_SHOWN_LAST = 3
_TEST = '''"""The calls that `kjit replay sanitize` makes."""

from pathlib import Path

import pytest

from kjit import replay

CALLS, _ = replay.read([Path(path) for path in {paths!r}], {ops!r})


class TestReplayed:
    """Like the class of an op: the recording plugin records the arguments of `run` for reports."""

    op = replay.Replay(replay.project_here(), simulated={simulated!r}, check={simulated!r})
    outputs = ()

    @pytest.mark.parametrize("call", CALLS, ids=lambda call: call.file.stem)
    def test_recorded_call(self, call: replay.Call) -> None:
        type(self).call = call
        self.run(self.op.arguments(call))

    @classmethod
    def run(cls, arguments: dict[str, object]) -> tuple[()]:
        cls.op.run(cls.call, arguments)
        return ()
'''


@replay_app.command("test")
def test(paths: _Paths, ops: _Ops = None, sim: _Sim = False, json: Json = False) -> None:
    """Make the calls, and compare the results with the reference.

    The reference is in the op's test, tests/test_<module>.py of this project: that of its class OpTest, or in the
    dictionary REFERENCES. Calls of an op without one are made but not compared. Without a GPU, calls on a GPU are made
    in the simulator. Tensors whose values were not recorded are random.

    Exit status 1: a call differs or fails, or a file cannot be read.
    """
    from kjit.replay import last_calls

    calls, errors, again = _begin(paths, ops, sim)
    outcomes: list[Outcome] = []
    for call in calls:
        outcomes.append(again.test(call))
        if again.is_lost():
            console.note(f"The GPU can no longer be used: {len(calls) - len(outcomes)} calls were not made.")
            break
    if json:
        rows = [{"state": each.state, "detail": each.detail, **_to_json(each.call)} for each in outcomes]
        _print_json(rows, errors)
    else:
        text.print_rows(
            ("op", "tensors", "result"), [(each.call.name, each.call.shapes(), each.state) for each in outcomes]
        )
        for each in outcomes:
            if each.detail:
                console.print_error(f"{each.call.name} {each.state}: {each.detail}", f"the call is {each.call.file}")
        for process, name in [each for path in paths for each in last_calls(path)][-_SHOWN_LAST:]:
            console.note(f"The last call of process {process} is {name}.")
    _end(errors, failed=any(each.state in ("differs", "failed") for each in outcomes) or len(outcomes) < len(calls))


@replay_app.command("bench")
def bench(paths: _Paths, ops: _Ops = None, json: Json = False) -> None:
    """Time the calls.

    They have their recorded shapes and strides, and the reference in the op's test is timed as well.

    Exit status 1: a call cannot be made, or a file cannot be read.
    """
    calls, errors, again = _begin(paths, ops, sim=False)
    if again.is_simulated and any(call.is_of_cuda for call in calls):
        console.note("There is no GPU here: times in the simulator do not predict those on a GPU.")
    timings = [again.bench(call) for call in calls]
    if json:
        rows = [
            {"us": each.median, "reference_us": each.reference, "error": each.error or None, **_to_json(each.call)}
            for each in timings
        ]
        _print_json(rows, errors)
    else:
        header = ("op", "tensors", "us", "reference us")
        found = [
            (
                each.call.name,
                each.call.shapes(),
                *("-" if t is None else f"{t:.2f}" for t in (each.median, each.reference)),
            )
            for each in timings
        ]
        text.print_rows(header, found, header[2:])
        for each in timings:
            if each.error:
                console.print_error(f"{each.call.name}: {each.error}", f"the call is {each.call.file}")
    _end(errors, failed=any(each.error for each in timings))


@replay_app.command("sanitize")
def sanitize(
    paths: _Paths,
    ops: _Ops = None,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="NAME", help="memcheck, racecheck, initcheck, synccheck; default: memcheck."),
    ] = None,
    sim: _Sim = False,
    timeout: Timeout = "5m",
    json: Json = False,
) -> None:
    """Make the calls under compute-sanitizer.

    Without a GPU, and with --sim, they are made in the simulator, which checks every access.

    Exit status 1: a mistake was found, a call fails, or the time limit was reached.
    """
    from kjit import sanitizing
    from kjit.cli.sanitize import check_tools, environment_of, print_run, require_sanitizer, run_to_json
    from kjit.cli.test import pytest_command
    from kjit.project import find_project, keep_folder

    limit = text.duration(timeout)
    check_tools(tool or ())
    project = find_project()
    calls, errors, again = _begin(paths, ops, sim)
    if again.is_simulated and tool:
        raise UsageError(
            "--tool is for compute-sanitizer, and the calls are made in the simulator.", hint="leave it out"
        )
    on_cpu = sum(1 for call in calls if not call.is_of_cuda)
    if on_cpu == len(calls):
        raise UsageError("these calls ran CPU kernels, and the sanitizers check CUDA kernels.")
    if on_cpu:
        console.note(f"{text.count(on_cpu, 'call')} of CPU kernels: the sanitizers do not check these.")
    if not again.is_simulated:
        require_sanitizer()
    folder = keep_folder(project, "sanitize")
    file = folder / "test_replayed.py"
    named = [str(path.absolute()) for path in paths]
    file.write_text(_TEST.format(paths=named, ops=list(ops or ()), simulated=again.is_simulated))
    options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", f"--rootdir={project.root}"]
    command = pytest_command(project, *options, str(file))
    environment = environment_of(project, simulated=again.is_simulated)
    runs = []
    for each in ("sim-check",) if again.is_simulated else tuple(tool or ("memcheck",)):
        run = sanitizing.run_tests(each, command, environment, folder, "replayed", limit=limit)
        runs.append(run)
        if not json:
            print_run(run, limit)
    if json:
        console.print_json([run_to_json(run) for run in runs])
    _end(errors, failed=not all(run.is_clean for run in runs))


def _begin(paths: list[Path], ops: list[str] | None, sim: bool) -> tuple[list[Call], list[KjitError], Replay]:
    from kjit import replay

    os.environ.pop(env.RECORD, None)  # these calls are not recorded again
    calls, errors = replay.read(paths, ops or ())
    again = replay.Replay(replay.project_here(), simulated=True if sim else None, check=env.simulation() == "sim-check")
    made_up = sum(1 for call in calls if not call.document.get("has_values"))
    if made_up:
        console.note(f"{text.count(made_up, 'call')} without values: they are generated.")
    return calls, errors, again


def _end(errors: list[KjitError], *, failed: bool) -> None:
    for error in errors:
        console.print_error(error.message, error.hint)
    if failed or errors:
        raise typer.Exit(1)


def _print_json(rows: list[dict[str, object]], errors: list[KjitError]) -> None:
    console.print_json({"calls": rows, "unreadable": [error.message for error in errors]})


def _to_json(call: Call) -> dict[str, object]:
    return {"file": str(call.file), "op": call.op, "name": call.name, "arguments": call.document["arguments"]}
