"""`kjit profile`: what limits a kernel."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import JsonNumbers, Op
from kjit.errors import KjitError, ToolchainError

if TYPE_CHECKING:
    from kjit.profiling import Launch, Point

_SHOWN = (
    ("Memory Throughput (%)", "DRAM Throughput (%)", "Compute (SM) Throughput (%)"),
    ("L1/TEX Hit Rate (%)", "L2 Hit Rate (%)", "Issue Slots Busy (%)"),
    ("Achieved Occupancy (%)", "Theoretical Occupancy (%)"),
)
"""The metrics of the summary, by line."""

_ADVICE = 5  # rules whose findings are shown


def profile(
    op: Op,
    point: Annotated[
        str | None,
        typer.Option(
            "--point",
            metavar="WORDS",
            help="The point of the benchmark, like 'size=4096 dtype=float16'. Default: the last of its first table.",
            show_default=False,
        ),
    ] = None,
    torch: Annotated[bool, typer.Option("--torch", help="Write a trace of PyTorch's profiler, for Perfetto.")] = False,
    json: JsonNumbers = False,
) -> None:
    """Profile one call of an op with Nsight Compute.

    Measures a call of its benchmark, and summarises what limits it. The full report is kept in .kjit/profile, for
    Nsight Compute's GUI. If the GPU's counters cannot be read, the launch is taken from PyTorch's profiler and the time
    from the benchmark.
    """
    from kjit import profiling
    from kjit.bench import collect
    from kjit.project import find_project, keep_folder
    from kjit.runtime import gpus

    project = find_project()
    (file,) = collect.find_files(project, [op])
    sweeps, failures = collect.load_sweeps(project, [file])
    for failure in failures:
        raise KjitError(f"{failure.where}: {failure.reason}")
    chosen = profiling.choose_point(sweeps, point)
    folder = keep_folder(project, "profile")
    trace = folder / f"{op}.trace.json"
    if torch:
        _print_trace(chosen, trace, json=json)
        return
    if env.simulation() is not None or not gpus.visible_gpus():
        why = "there is no GPU here" if env.simulation() is None else f"{env.SIM} is set"
        raise KjitError(
            f"{why}, and only a GPU has counters.",
            hint="--torch profiles what PyTorch sees, `kjit inspect` reads the machine code",
        )
    os.environ.setdefault("NVCC_APPEND_FLAGS", "-lineinfo")  # for the report's source page
    report = folder / f"{op}.ncu-rep"
    report.unlink(missing_ok=True)
    console.note(f"profiling {chosen.label}")
    try:
        launches = profiling.profile(project, file, point, report)
    except (profiling.NotPermittedError, ToolchainError) as error:
        console.print_error(error.message, error.hint)
        _print_trace(chosen, trace, json=json, measures=True)
        return
    if json:
        console.print_json([{**asdict(launch), "report": str(report)} for launch in launches])
        return
    for launch in launches:
        _print_launch(launch)
    console.say(f"report: {text.path(report)}")


def _print_launch(launch: Launch) -> None:
    time = next((f"{value:g} {name[10:-1]}, " for name, value in launch.metrics.items() if name[:9] == "Duration "), "")
    console.say(f"{launch.kernel}: {time}grid {launch.grid}, blocks of {launch.block}")
    for names in _SHOWN:
        known = [f"{name.removesuffix(' (%)')} {launch.metrics[name]:.0f}%" for name in names if name in launch.metrics]
        console.say(f"  {', '.join(known)}")
    for advice in launch.advice[:_ADVICE]:
        console.say(f"  - {'. '.join(advice.split('. ')[:2]).removesuffix('.')}.")


def _print_trace(point: Point, path: Path, *, json: bool, measures: bool = False) -> None:
    """Print the kernels of a trace, and with `measures` the time without a profiler before them."""
    from kjit import profiling
    from kjit.bench import report
    from kjit.bench.sweep import run_sweeps

    measured = run_sweeps([point.sweep.at(point.args)] if measures else [])
    for failure in measured.failures:
        raise KjitError(f"the benchmark fails: {failure.reason}")
    events = profiling.trace(point, path)
    if json:
        document: dict[str, Any] = {"point": point.label, "trace": str(path), "events": events}
        console.print_json(document | (report.to_json(measured)["measurements"][0] if measures else {}))
        return
    if measures:
        console.say(report.describe(measured))
    else:
        console.say(point.label)
    rows = [(each["name"], f"{each['us']:.1f}", str(each["calls"]), _launch(each)) for each in events[:12]]
    if rows:
        text.print_rows(("what", "time (us)", "calls", "launch"), rows, ("time (us)", "calls"))
    console.say(f"trace: {text.path(path)} (https://ui.perfetto.dev opens it)")


def _launch(event: dict[str, Any]) -> str:
    if "grid" not in event:
        return ""
    grid, block = (" x ".join(map(str, event[name])) for name in ("grid", "block"))
    more = [f"{event['registers per thread']} registers"] if "registers per thread" in event else []
    if "est. achieved occupancy %" in event:
        more.append(f"about {event['est. achieved occupancy %']}% occupancy")
    return ", ".join([f"grid {grid}, blocks of {block}", *more])
