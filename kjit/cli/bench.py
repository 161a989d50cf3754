"""`kjit bench`: run the project's benchmarks, show the times, and report regressions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kjit import env
from kjit.cli import console
from kjit.cli.options import Ops, require
from kjit.errors import UsageError

if TYPE_CHECKING:
    from kjit.bench.sweep import Report, Sweep


def bench(
    ops: Ops = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON (also the format of --baseline).")
    ] = False,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Also write a CSV file.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="DIR", help="Also draw plots (needs matplotlib).")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Compare with a report written by --json.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="REV",
            help="Compare with this git revision: both are measured, alternating, in one run.",
        ),
    ] = None,
    max_regression: Annotated[
        str, typer.Option("--max-regression", metavar="PERCENT", help="The allowed slowdown against the baseline.")
    ] = "5%",
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            min=1,
            metavar="N",
            help="The number of processes to measure in, for comparisons. Default: 5 with --json, --baseline or "
            "--against, else 1.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few sizes and short runs, to check that the benchmarks work.")
    ] = False,
) -> None:
    """Run benchmarks: time, bandwidth, share of peak, speed-up.

    Exit status 1: a benchmark failed, or its samples show it slower than the baseline by more than --max-regression.
    """
    from kjit.bench import collect, compare, last, repeat, report
    from kjit.project import find_project, prints_to_stderr

    if json and markdown:
        raise UsageError("--json and --markdown exclude each other.")
    if baseline is not None and against is not None:
        raise UsageError("--baseline and --against exclude each other.")
    if csv is not None:
        csv.open("a").close()  # an error before anything runs
    if env.simulation() is not None:
        console.note(f"{env.SIM} is set: times in the simulator do not predict those on a GPU.")
    allowed = _percent(max_regression)
    compares = baseline is not None or against is not None
    wanted = runs or (repeat.RUNS if json or compares else 1)
    known = compare.read_baseline(baseline) if baseline is not None else None
    project = find_project()
    files = collect.find_files(project, ops or [])
    if plot is not None:
        require("matplotlib", "plots need", "bench")

    from contextlib import ExitStack, nullcontext

    from kjit.benchmark import quick as quickly
    from kjit.revision import checked_out

    with ExitStack() as stack:
        revision = None
        if against is not None:
            otherwise = "--baseline takes a report that `kjit bench --json` wrote"
            revision = stack.enter_context(checked_out(project, against, otherwise))
        with quickly() if quick else nullcontext():
            sweeps, failures = collect.load_sweeps(project, files)
            with prints_to_stderr():
                measured = _run(sweeps)
        measured.failures[:0] = failures
        if revision is not None:
            revision.bring([project.benchmarks_dir, project.tests_dir], project)
        if revision is not None or wanted > 1:
            what = "run" if revision is None else f"this and {against}: pair"
            samples = repeat.repeat(
                measured,
                project,
                files,
                wanted,
                is_quick=quick,
                then=None if revision is None else revision.project,
                on_run=lambda run: console.note(f"{what} {run} of {wanted}, in a process of its own"),
            )
        if revision is not None:
            hardware = {device.device: device.name for device in measured.hardware}
            known = compare.Baseline(Path(revision.name), hardware, samples)
    if not quick and env.simulation() is None:
        try:
            last.keep(measured, project)
        except OSError as error:
            console.note(f"`kjit list` will not show these times: {error}")
    comparisons = compare.compare(measured, known, allowed) if known is not None and known.samples else []

    if json:
        document = report.to_json(measured)
        if known is not None:
            document["comparisons"] = compare.to_json(comparisons)
            for sentence in compare.explain(comparisons):
                console.note(sentence)
        console.print_json(document)
    else:
        grids = report.grids(measured)
        if known is not None:
            grids.append(report.comparison_grid(comparisons, str(known.path), judged=against is None))
        for line in report.hardware_lines(measured):
            console.say(line)
        console.say("\n" * markdown + report.to_text(grids, markdown=markdown))
    if csv is not None:
        report.write_csv(measured, csv)
        console.note(f"wrote {csv}")
    if plot is not None:
        from kjit.bench.plot import write_plots

        for path in write_plots(measured, plot):
            console.note(f"wrote {path}")

    for failed in report.describe_failures(measured.failures):
        console.print_error(failed, None)
    slower = [c for c in comparisons if c.regressed]
    if slower:
        console.print_error(
            f"{len(slower)} of {len(comparisons)} measurements are more than {allowed:.0%} slower than"
            f" {'the baseline' if against is None else against}.",
            "noise is taken into account; --max-regression allows more",
        )
    if measured.failures or slower:
        raise typer.Exit(1)


def _run(sweeps: list[Sweep]) -> Report:
    """Run with a progress bar on a terminal, or one line per sweep in a pipe or CI."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kjit.bench.sweep import run_sweeps

    begun: set[int] = set()

    def note(sweep: Sweep, _: str) -> None:
        if id(sweep) not in begun:
            begun.add(id(sweep))
            console.note(f"{sweep.file}: {sweep.name}: {sweep.size} measurements")

    if not console.is_live():
        return run_sweeps(sweeps, note)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console.err(), transient=True) as progress:
        task = progress.add_task("starting", total=sum(sweep.size for sweep in sweeps), completed=-1)
        return run_sweeps(
            sweeps, lambda sweep, what: progress.update(task, description=f"{sweep.name}: {what}", advance=1)
        )


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"--max-regression is '{text}', not a percentage.", hint="write it like 5%")
    return value
