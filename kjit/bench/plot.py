"""Plots of a report: one picture a sweep, time over size, a line and a band (fastest to slowest) a provider."""

from __future__ import annotations

import re
from pathlib import Path

from kjit.bench.sweep import Measurement, Report, Sweep
from kjit.errors import KjitError


def require_matplotlib() -> None:
    """Ask before the measurements, not after.

    Raises:
        KjitError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise KjitError("plots need matplotlib, which is not installed.", hint="pip install 'kjit[bench]'") from None


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Write `<plot name>.png` for each sweep into `folder`, which is created.

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
        path = folder / (f"{stem}-{taken + 1}.png" if taken else f"{stem}.png")
        _draw(sweep, measurements, path)
        written.append(path)
    return written


def _draw(sweep: Sweep, measurements: list[Measurement], path: Path) -> None:
    # The object interface: pyplot would choose a display and keep every figure open.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    ticks = [", ".join(str(m.args[name]) for name in sweep.x_names) for m in measurements]
    # Several names, or values that are not numbers, have no place on an axis: they are put side by side.
    numeric = len(sweep.x_names) == 1 and all(isinstance(m.args[sweep.x_names[0]], (int, float)) for m in measurements)
    places = {tick: float(tick) if numeric else float(index) for index, tick in enumerate(dict.fromkeys(ticks))}
    for provider, label in zip(sweep.providers, sweep.labels, strict=True):
        points = [
            (places[tick], m.time)
            for tick, m in zip(ticks, measurements, strict=True)
            if m.provider == str(provider) and m.time is not None
        ]
        xs = [x for x, _ in points]
        (line,) = axes.plot(xs, [time.median for _, time in points], marker="o", markersize=3, label=label)
        low, high = [time.min for _, time in points], [time.max for _, time in points]
        axes.fill_between(xs, low, high, alpha=0.15, color=line.get_color())
    if numeric and all(place > 0 for place in places.values()):
        axes.set_xscale("log", base=2)
    elif not numeric:
        axes.set_xticks(list(places.values()), list(places), rotation=30, ha="right")
    axes.set_yscale("log")
    axes.set_xlabel(", ".join(sweep.x_names))
    axes.set_ylabel("time (us)")
    axes.set_title(", ".join([sweep.name, *(f"{name}={value}" for name, value in sweep.args.items())]))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
