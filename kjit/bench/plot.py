"""Plots of a report: for each sweep, those that it has numbers for.

- `<name>.png`: time over size, with a line and a band (fastest to slowest) per provider.
- `<name>-bandwidth.png`: GB/s over size, with the hardware's limit, if the benchmark defines bytes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.bench.sweep import Measurement, Report, Sweep, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Write the plots of each sweep into `folder`, which is created.

    Returns:
        The files, in the order of the report. Sweeps of one name get a number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for sweep, measurements in report.sweeps:
        stem = re.sub(r"[^\w.-]+", "_", sweep.name)
        taken = sum(
            path.stem == stem or re.fullmatch(rf"{re.escape(stem)}-\d+", path.stem) is not None for path in written
        )
        stem = f"{stem}-{taken + 1}" if taken else stem
        pictures = {f"{stem}.png": _draw_times}
        if any(m.gbps for m in measurements):
            pictures[f"{stem}-bandwidth.png"] = _draw_bandwidth
        for name, draw in pictures.items():
            draw(sweep, measurements, folder / name)
            written.append(folder / name)
    return written


_Series = tuple[str, list[tuple[float, Measurement]]]


def _title(sweep: Sweep) -> str:
    return ", ".join([sweep.name, *(f"{name}={value}" for name, value in plain(sweep.args).items())])


def _figure(title: str) -> tuple[Figure, Axes]:
    # The object interface: pyplot would choose a display and keep every figure open.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _finish(figure: Figure, axes: Axes, path: Path) -> None:
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def _over_size(sweep: Sweep, measurements: list[Measurement], axes: Axes) -> list[_Series]:
    """Prepare the axis of sizes; the positions of the measurements on it, one series per provider."""
    ticks = [", ".join(str(m.args[name]) for name in sweep.x_names) for m in measurements]
    # Several names, or values that are not numbers, have no order on an axis: they are put side by side.
    numeric = len(sweep.x_names) == 1 and all(isinstance(m.args[sweep.x_names[0]], (int, float)) for m in measurements)
    places = {tick: float(tick) if numeric else float(index) for index, tick in enumerate(dict.fromkeys(ticks))}
    if numeric and all(place > 0 for place in places.values()):
        axes.set_xscale("log", base=2)
    elif not numeric:
        axes.set_xticks(list(places.values()), list(places), rotation=30, ha="right")
    axes.set_xlabel(", ".join(sweep.x_names))
    found = []
    for provider, label in zip(sweep.providers, sweep.labels, strict=True):
        points = [
            (places[tick], m)
            for tick, m in zip(ticks, measurements, strict=True)
            if m.provider == str(provider) and m.time is not None
        ]
        found.append((label, points))
    return found


def _draw_times(sweep: Sweep, measurements: list[Measurement], path: Path) -> None:
    figure, axes = _figure(_title(sweep))
    for label, points in _over_size(sweep, measurements, axes):
        xs = [x for x, _ in points]
        times = [m.time for _, m in points if m.time is not None]
        (line,) = axes.plot(xs, [time.median for time in times], marker="o", markersize=3, label=label)
        axes.fill_between(
            xs, [time.min for time in times], [time.max for time in times], alpha=0.15, color=line.get_color()
        )
    axes.set_yscale("log")
    axes.set_ylabel("time (us)")
    _finish(figure, axes, path)


def _draw_bandwidth(sweep: Sweep, measurements: list[Measurement], path: Path) -> None:
    figure, axes = _figure(_title(sweep))
    for label, points in _over_size(sweep, measurements, axes):
        known = [(x, m.gbps) for x, m in points if m.gbps is not None]
        axes.plot([x for x, _ in known], [rate for _, rate in known], marker="o", markersize=3, label=label)
    limit = _bandwidth(measurements)
    if limit is not None:
        axes.axhline(limit[0], color="black", linestyle="--", linewidth=1, label=f"{limit[1]}: {limit[0]:,.0f} GB/s")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("GB/s")
    _finish(figure, axes, path)


def _bandwidth(measurements: list[Measurement]) -> tuple[float, str] | None:
    """The limit of memory in GB/s, and its description: a published peak, or a copy."""
    for m in measurements:
        if m.hardware is not None and m.hardware.peaks is not None:
            return m.hardware.peaks.gbps, "peak bandwidth"
        if m.hardware is not None and m.hardware.copy_gbps is not None:
            return m.hardware.copy_gbps, "a copy"
    return None
