"""Reports as tables, Markdown, JSON and CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kjit import __version__
from kjit.bench.compare import CONFIDENCE, Comparison, explain
from kjit.bench.outputs import Agreement
from kjit.bench.sweep import Failure, Measurement, Report, Sweep, plain


@dataclass(frozen=True)
class Grid:
    """An unformatted table: the first `left` columns are text, the rest are numbers. `notes` go below it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int
    notes: tuple[str, ...] = ()


_LISTED = 4  # failures with the same reason to list
_BUSY = 1.5  # of the fastest sample, from which a median is in doubt


def grids(report: Report) -> list[Grid]:
    """One table per sweep."""
    return [_grid(sweep, measurements) for sweep, measurements in report.sweeps]


def _grid(sweep: Sweep, measurements: Sequence[Measurement]) -> Grid:
    columns: list[tuple[str, list[str]]] = [
        (name, [_value(m.args[name]) for m in measurements]) for name in sweep.x_names
    ]
    columns.append(("provider", [m.label for m in measurements]))
    columns.append(("time (us)", ["failed" if m.time is None else number(m.time.median) for m in measurements]))
    # Empty columns are left out.
    optional = [
        ("GB/s", ["" if m.gbps is None else number(m.gbps) for m in measurements]),
        ("TFLOP/s", ["" if m.tflops is None else number(m.tflops) for m in measurements]),
        ("share", [_share(m) for m in measurements]),
        (
            f"vs {sweep.label_of(sweep.baseline)}",
            ["" if m.speedup is None else f"{m.speedup:.2f}x" for m in measurements],
        ),
        ("results", _agreements(measurements)),
    ]
    columns += [(name, cells) for name, cells in optional if any(cells)]
    fixed = ", ".join(f"{name}={value}" for name, value in plain(sweep.args).items())
    title = f"{sweep.name} ({fixed})" if fixed else sweep.name
    rows = tuple(zip(*(cells for _, cells in columns), strict=True))
    return Grid(title, tuple(name for name, _ in columns), rows, len(sweep.x_names) + 1, _notes(sweep, measurements))


def comparison_grid(comparisons: Sequence[Comparison], name: str, *, judged: bool) -> Grid:
    """Before and now, slowest first; with the verdict for a limit, or with the direction: faster, slower, or level."""
    rows = []
    for c in sorted(comparisons, key=lambda c: -c.change):
        interval = "" if c.interval is None else f"{c.interval.low:+.1%} to {c.interval.high:+.1%}"
        result = c.verdict if judged else c.direction
        rows.append((c.where, number(c.before), number(c.now), f"{c.change:+.1%}", interval, result))
    header = ("measurement", "before (us)", "now (us)", "change", f"{CONFIDENCE:.0%} interval", "")
    return Grid(f"against {name}", header, tuple(rows), 1, explain(comparisons))


def to_text(tables: Sequence[Grid], *, markdown: bool = False) -> str:
    """The tables for a terminal, at their full width, or in GitHub's Markdown."""
    lines = []
    for grid in tables:
        rows = [grid.header, *grid.rows]
        if markdown:
            rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rules = tuple("-" * width if i < grid.left else f"{'-' * (width - 1)}:" for i, width in enumerate(widths))
        rows[1:1] = [rules] if markdown else []
        lines += [f"### {grid.title}" if markdown else grid.title, ""]
        for row in rows:
            cells = [
                cell.ljust(width) if i < grid.left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append(f"| {' | '.join(cells)} |" if markdown else f"  {'  '.join(cells)}".rstrip())
        lines += ["", *(f"{'' if markdown else '  '}{note}\n" for note in grid.notes)]
    return "\n".join(lines)


def describe(report: Report) -> str:
    """The hardware, the tables, and what failed."""
    failures = [f"failed: {failed}" for failed in describe_failures(report.failures)]
    return "\n".join([*hardware_lines(report), to_text(grids(report)), *failures])


def describe_failures(failures: Sequence[Failure]) -> list[str]:
    """Failures with reasons; those with the same reason in one text, with a line for each of the first few."""
    places: dict[str, list[str]] = {}
    for failure in failures:
        places.setdefault(failure.reason, []).append(failure.where)
    texts = []
    for reason, wheres in places.items():
        if len(wheres) == 1:
            texts.append(f"{wheres[0]}: {reason}")
            continue
        listed = [*wheres[:_LISTED], *([f"and {len(wheres) - _LISTED} more"] if len(wheres) > _LISTED else [])]
        texts.append("\n  ".join([f"{reason.removesuffix('.')}, {len(wheres)} times:", *listed]))
    return texts


def hardware_lines(report: Report) -> list[str]:
    """The devices, and the limits that shares refer to."""
    lines = []
    for device in report.hardware:
        if device.peaks is not None:
            limit = f"peak {number(device.peaks.gbps)} GB/s ({device.peaks.source})"
        elif device.copy_gbps is not None:
            limit = f"no published peak known; a copy reaches {number(device.copy_gbps)} GB/s"
        else:
            limit = "no published peak known"
        lines.append(f"{device.device}: {device.name}; {limit}")
    return lines


def to_json(report: Report) -> dict[str, Any]:
    """The full report, for programs and for `kjit bench --baseline`."""
    return {
        "kjit": __version__,
        "hardware": [device.to_json() for device in report.hardware],
        "measurements": [_record(m) for m in report.measurements],
        "failures": [asdict(failure) for failure in report.failures],
    }


def write_csv(report: Report, path: Path) -> None:
    """One line per measurement; each argument of a benchmark is a column."""
    names = list(dict.fromkeys(name for m in report.measurements for name in m.args))
    records = []
    for measurement in report.measurements:
        record = _record(measurement)
        args: Mapping[str, Any] = record.pop("args")
        record["runs_us"] = "; ".join(map(str, record["runs_us"]))
        records.append({"file": record.pop("file"), "benchmark": record.pop("benchmark"), **args, **record})
    fixed = [key for key in (records[0] if records else ()) if key not in ("file", "benchmark", *names)]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, ["file", "benchmark", *names, *fixed], restval="")
        writer.writeheader()
        writer.writerows(records)


def _record(m: Measurement) -> dict[str, Any]:
    median, fastest, slowest = m.time or (None, None, None)
    share, share_of = m.share or (None, None)
    matches, difference = m.agreement or (None, None)
    return {
        "file": m.sweep.file,
        "benchmark": m.sweep.name,
        "args": dict(m.args),
        "provider": m.provider,
        "hardware": None if m.hardware is None else m.hardware.device,
        "median_us": median,
        "min_us": fastest,
        "max_us": slowest,
        "runs_us": list(m.runs),
        "bytes": m.nbytes,
        "flops": m.flops,
        "gbps": m.gbps,
        "tflops": m.tflops,
        "share": share,
        "share_of": share_of,
        "speedup": m.speedup,
        "match": matches,
        "difference": None if difference == math.inf else difference,
        "error": m.error,
    }


def _agreements(measurements: Sequence[Measurement]) -> list[str]:
    """The differences of results; empty if all match, which a note says."""
    if all(m.agreement is None or m.agreement.matches for m in measurements):
        return [""] * len(measurements)
    return ["" if m.agreement is None else agreement(m.agreement) for m in measurements]


def agreement(found: Agreement) -> str:
    """For display: `match`, or the difference."""
    if found.matches:
        return "match"
    return "differ" if math.isinf(found.difference) else f"differ by {found.difference:.2g}"


def _notes(sweep: Sweep, measurements: Sequence[Measurement]) -> tuple[str, ...]:
    notes = []
    compared = [m.agreement for m in measurements if m.agreement is not None]
    if compared and all(each.matches for each in compared):
        notes.append(f"All results match {sweep.label_of(sweep.baseline)}'s.")
    elif compared:
        notes.append(
            f"Some results differ from {sweep.label_of(sweep.baseline)}'s by more than rounding, as a part of the"
            " largest one: a wrong kernel's time says little."
        )
    if any(m.share is not None and m.share.value > 1 and m.share.of.endswith("bandwidth") for m in measurements):
        notes.append("More than 100%: the data stayed in the cache between calls, and memory was not the limit.")
    busy = sum(m.time is not None and m.time.median > _BUSY * m.time.min for m in measurements)
    if busy:
        notes.append(
            f"In {busy} of {len(measurements)} the median is far above the fastest sample: something else may be"
            " running here, or the clocks changed. Measure again when the machine is idle."
        )
    return tuple(notes)


def _share(m: Measurement) -> str:
    if m.share is None:
        return ""
    return f"{m.share.value:.0%} of {m.share.of.removesuffix(' bandwidth').removesuffix(' compute')}"


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def number(value: float) -> str:
    """Three or four significant digits: 0.0123, 1.23, 12.3, 1,234."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
