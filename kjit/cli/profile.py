"""`kjit profile`: what limits a kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import JsonNumbers, Op
from kjit.errors import KjitError, ToolchainError

if TYPE_CHECKING:
    from kjit.bench.counters import Launch
    from kjit.profiling import Point


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
    from kjit.bench import collect, counters
    from kjit.project import find_project, keep_folder
    from kjit.runtime import gpus

    project = find_project()
    (file,) = collect.find_files(project, [op])
    sweeps, failures = collect.load_sweeps(project, [file])
    for failure in failures:
        raise KjitError(f"{failure.where}: {failure.reason}")
    chosen = profiling.choose_point(sweeps, point)
    folder = keep_folder(project, "profile")
    if torch:
        _trace(chosen, folder / f"{op}.trace.json", json=json)
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
        launches = profiling.profile(project, file, chosen, report)
    except (profiling.NotPermittedError, ToolchainError) as error:
        console.note(f"{error.message[:1].upper()}{error.message[1:]} {_capital(error.hint)}")
        _without_counters(chosen, folder / f"{op}.trace.json", json=json)
        return
    if json:
        console.print_json([_to_json(launch, report) for launch in launches])
        return
    for launch in launches:
        for line in counters.describe_launch(launch):
            console.say(line)
    console.say(f"report: {text.path(report)}")


def _capital(hint: str | None) -> str:
    return "" if hint is None else f"{hint[:1].upper()}{hint[1:]}."


def _to_json(launch: Launch, report: Path) -> dict[str, object]:
    from kjit.bench.counters import verdict

    return {
        "kernel": launch.kernel,
        "grid": launch.grid,
        "block": launch.block,
        "verdict": verdict(launch),
        "metrics": dict(launch.metrics),
        "report": str(report),
    }


def _trace(point: Point, path: Path, *, json: bool) -> None:
    from kjit import profiling

    rows = profiling.trace(point, path)
    if json:
        console.print_json({"point": point.label, "trace": str(path), "events": [_row(*row) for row in rows]})
        return
    console.say(point.label)
    _print_rows(rows)
    console.say(f"trace: {text.path(path)} (https://ui.perfetto.dev opens it)")


def _print_rows(rows: list[tuple[str, float, int, Mapping[str, Any]]]) -> None:
    shown = [(name, f"{micros:.1f}", str(count), _launch(args)) for name, micros, count, args in rows[:12]]
    if shown:
        text.print_rows(("what", "time (us)", "calls", "launch"), shown, ("time (us)", "calls"))


def _launch(args: Mapping[str, Any]) -> str:
    if "grid" not in args:
        return ""
    grid, block = (" x ".join(map(str, args[name])) for name in ("grid", "block"))
    more = [f"{args['registers per thread']} registers"] if "registers per thread" in args else []
    if "est. achieved occupancy %" in args:
        more.append(f"about {args['est. achieved occupancy %']}% occupancy")
    return ", ".join([f"grid {grid}, blocks of {block}", *more])


def _row(name: str, micros: float, count: int, args: Mapping[str, Any]) -> dict[str, object]:
    kept = ("grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %")
    return {"name": name, "us": micros, "calls": count, **{key: args[key] for key in kept if key in args}}


def _without_counters(point: Point, path: Path, *, json: bool) -> None:
    """The summary without counters: time, share of peak, launch configuration."""
    from kjit import profiling
    from kjit.bench.sweep import run_sweeps

    single = point.sweep.at(point.args)
    (measured,) = run_sweeps([single]).measurements
    if measured.time is None:
        raise KjitError(f"the benchmark fails: {measured.error}")
    rows = profiling.trace(point, path)
    share = "" if measured.share is None else f"{measured.share.value:.0%} of {measured.share.of}"
    bound = _bound(measured.share.value, measured.share.of) if measured.share is not None else "no verdict: "
    if json:
        console.print_json(
            {
                "point": point.label,
                "us": measured.time.median,
                "gbps": measured.gbps,
                "tflops": measured.tflops,
                "share": None if measured.share is None else measured.share.value,
                "share_of": None if measured.share is None else measured.share.of,
                "trace": str(path),
                "events": [_row(*row) for row in rows],
            }
        )
        return
    rate = f", {measured.gbps:,.0f} GB/s" if measured.gbps is not None else ""
    console.say(f"{point.label}: {measured.time.median:.1f} us{rate}")
    console.say(
        f"  {bound}{share or 'the benchmark says neither bytes nor operations'} (from the time, without counters)"
    )
    _print_rows(rows)
    console.say(f"trace: {text.path(path)}")


def _bound(share: float, of: str) -> str:
    if share < 0.6:
        return "latency-bound, or wasteful with memory: "
    return "compute-bound: " if "compute" in of else "memory-bound: "
