"""Running benchmarks: a `triton.testing.Mark` is unrolled into sweeps, and every point of a sweep is measured.

triton's own `Mark.run` does this too, but needs pandas and matplotlib, stops at the first provider that raises, and
keeps only the numbers of its plot. Here a failure replaces a time, and the rest is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kjit import env
from kjit.bench.hardware import Hardware, Share, find_hardware
from kjit.bench.outputs import Agreement, compare
from kjit.benchmark import BenchTime, Kept, mode
from kjit.errors import KjitError, UsageError
from kjit.project import describe_error

BASELINE = "torch"
"""The provider that speed-ups are relative to; if there is none of this name, the second provider."""


@dataclass(frozen=True)
class Sweep:
    """One plot of a benchmark: its function over the x values, for every provider.

    Args:
        file: name of the benchmark file.
        name: of the plot.
        function: takes `x_names`, `line_arg` and `args` as keyword arguments, returns a `BenchTime`.
        x_names, points: the arguments that vary, and their values.
        line_arg, providers, labels: the argument that selects the provider, its values, and their labels.
        args: the constant arguments.
    """

    file: str
    name: str
    function: Callable[..., object]
    x_names: tuple[str, ...]
    points: tuple[tuple[Any, ...], ...]
    line_arg: str
    providers: tuple[Any, ...]
    labels: tuple[str, ...]
    args: Mapping[str, Any]

    @classmethod
    def of(cls, mark: Any) -> list[Sweep]:
        """The sweeps of an object of `triton.testing.perf_report`.

        Raises:
            UsageError: an x value has more or fewer parts than there are x names.
        """
        listed = mark.benchmarks if isinstance(mark.benchmarks, (list, tuple)) else [mark.benchmarks]
        file = Path(mark.fn.__code__.co_filename).name
        sweeps = []
        for bench in listed:
            names = tuple(bench.x_names)
            points = tuple(tuple(x) if isinstance(x, (list, tuple)) else (x,) * len(names) for x in bench.x_vals)
            for point in points:
                if len(point) != len(names):
                    raise UsageError(f"{file}: {bench.plot_name} has the x value {point} for the names {list(names)}.")
            providers, labels = tuple(bench.line_vals), tuple(str(name) for name in bench.line_names)
            name = bench.plot_name or mark.fn.__name__
            args = dict(bench.args)
            if env.simulation() is not None and str(args.get("device")).startswith("cuda"):
                args["device"] = "cpu"  # for tensors of the CPU, ops run CUDA kernels in the simulator
            sweeps.append(cls(file, name, mark.fn, names, points, bench.line_arg, providers, labels, args))
        return sweeps

    @property
    def baseline(self) -> str | None:
        """The provider that speed-ups are relative to."""
        names = [str(provider) for provider in self.providers]
        return BASELINE if BASELINE in names else names[1] if len(names) > 1 else None

    def label_of(self, provider: object) -> str:
        """The label of a provider; empty for None."""
        return dict(zip(map(str, self.providers), self.labels, strict=True)).get(str(provider), "")

    @property
    def judged(self) -> tuple[Any, ...]:
        """The providers for comparisons with another report: the first, and the baseline."""
        return tuple(p for p in self.providers if str(p) in (str(self.providers[0]), self.baseline))

    def only_first(self) -> Sweep:
        """This sweep with its first provider only."""
        return replace(self, providers=self.providers[:1], labels=self.labels[:1])

    def at(self, args: Mapping[str, Any]) -> Sweep:
        """This sweep with its first provider only, at one point, with arguments `args`."""
        return replace(self.only_first(), points=(tuple(args[name] for name in self.x_names),))

    @property
    def size(self) -> int:
        """The number of measurements."""
        return len(self.points) * len(self.providers)

    def arguments(self) -> Iterator[dict[str, Any]]:
        """The arguments of the function at each point, without the provider."""
        for point in self.points:
            yield {**self.args, **dict(zip(self.x_names, point, strict=True))}


@dataclass(frozen=True)
class Measurement:
    """One point of a sweep with one provider.

    Args:
        args: all arguments except the provider, as JSON values.
        time: None if it failed; then `error` has the reason.
        nbytes, flops: bytes and operations of one call, if the benchmark defines them.
        share: the share of the hardware's limit.
        speedup: relative to the baseline provider.
        agreement: the comparison of the results with the baseline provider's, if both return tensors.
        runs: the median in each process, in microseconds, this one first (`kjit.bench.repeat`).
    """

    sweep: Sweep
    provider: str
    label: str
    args: Mapping[str, Any]
    hardware: Hardware | None
    time: BenchTime | None
    error: str | None = None
    nbytes: float | None = None
    flops: float | None = None
    share: Share | None = None
    speedup: float | None = None
    agreement: Agreement | None = None
    runs: tuple[float, ...] = ()

    @property
    def gbps(self) -> float | None:
        return None if self.time is None or self.nbytes is None else self.nbytes / self.time.median / 1e3

    @property
    def tflops(self) -> float | None:
        return None if self.time is None or self.flops is None else self.flops / self.time.median / 1e6

    @property
    def key(self) -> tuple[object, ...]:
        """An id that is the same for this measurement in other runs."""
        return identify(self.sweep, self.provider, self.args)


@dataclass(frozen=True)
class Failure:
    """A failed file, or a failed provider of a benchmark."""

    where: str
    reason: str


@dataclass
class Report:
    """The measurements in order, and the failures."""

    measurements: list[Measurement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def sweeps(self) -> list[tuple[Sweep, list[Measurement]]]:
        """The measurements, by sweep."""
        grouped: dict[int, tuple[Sweep, list[Measurement]]] = {}
        for measurement in self.measurements:
            grouped.setdefault(id(measurement.sweep), (measurement.sweep, []))[1].append(measurement)
        return list(grouped.values())

    @property
    def hardware(self) -> list[Hardware]:
        """All devices of the measurements."""
        devices = {m.hardware.device: m.hardware for m in self.measurements if m.hardware is not None}
        return list(devices.values())


def run_sweeps(sweeps: Iterable[Sweep], on_start: Callable[[Sweep, str], None] | None = None) -> Report:
    """Measure every point of every sweep.

    Args:
        on_start: called before each measurement with its sweep and a description of it.
    """
    report = Report()
    known: dict[str, Hardware] = {}
    for sweep in sweeps:
        for given in sweep.arguments():
            row = []
            results = []
            for provider, label in zip(sweep.providers, sweep.labels, strict=True):
                if on_start is not None:
                    on_start(sweep, describe(plain(given), str(provider)))
                # Only the first is judged; poisoned memory may make PyTorch compile others again.
                keeper = Kept(poisons=provider == sweep.providers[0])
                with mode(kept=keeper):
                    row.append(_measure(sweep, given, provider, label, known))
                results.append(keeper.results[:1])
            report.measurements += _compared(sweep, row, results)
    report.failures += [
        Failure(f"{m.sweep.file}: {m.sweep.name} ({describe(m.args, m.provider)})", m.error)
        for m in report.measurements
        if m.error is not None
    ]
    return report


def _measure(
    sweep: Sweep, given: dict[str, Any], provider: object, label: str, known: dict[str, Hardware]
) -> Measurement:
    import torch

    args = plain(given)
    hardware: Hardware | None = None
    try:
        hardware = _hardware(given, known)
        torch.manual_seed(0)  # the same random inputs for each provider
        time = measure_time(sweep, given, provider)
        nbytes, flops = (_cost(sweep, name, given) for name in ("bytes_moved", "flops"))
    except Exception as error:  # noqa: BLE001 (a benchmark is the user's code; what it raises is what there is to report)
        reason = describe_error(error, Path(sweep.function.__code__.co_filename))
        return Measurement(sweep, str(provider), label, args, hardware, None, error=reason)
    runs = (time.median,)
    measured = Measurement(sweep, str(provider), label, args, hardware, time, nbytes=nbytes, flops=flops, runs=runs)
    return replace(measured, share=hardware.share(measured.gbps, measured.tflops, args.get("dtype")))


def measure_time(sweep: Sweep, given: Mapping[str, Any], provider: object) -> BenchTime:
    """Call the benchmark once.

    Raises:
        UsageError: it does not return a time. Exceptions of the benchmark itself are passed on.
    """
    result = sweep.function(**given, **{sweep.line_arg: provider})
    if isinstance(result, tuple) and len(result) == 3:
        return BenchTime(*(float(part) for part in result))
    raise UsageError(
        f"the benchmark returned {type(result).__name__}, not the times of kjit.benchmark.run_benchmark.",
        hint="end it with: return kjit.benchmark.run_benchmark(function, device=device)",
    )


def _cost(sweep: Sweep, name: str, given: dict[str, Any]) -> float | None:
    """The value of the file's function `name` for one call, if there is such a function."""
    function = sweep.function.__globals__.get(name)
    return None if function is None else float(function(**given))


def _hardware(given: dict[str, Any], known: dict[str, Hardware]) -> Hardware:
    import torch

    device = str(given.get("device", "cuda" if torch.cuda.is_available() else "cpu"))
    if device not in known:
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise KjitError("this benchmark needs an NVIDIA GPU, and PyTorch sees none here.")
        known[device] = find_hardware(device)
    return known[device]


def _compared(sweep: Sweep, row: list[Measurement], results: list[list[object]]) -> list[Measurement]:
    """Measurements with their speed-ups over the baseline provider, and with the agreement of their results."""
    times = {m.provider: (m.time, result) for m, result in zip(row, results, strict=True) if m.time is not None}
    if sweep.baseline not in times:
        return row
    base, expected = times[sweep.baseline]
    return [
        replace(
            m,
            speedup=base.median / m.time.median,
            agreement=None if m.provider == sweep.baseline else compare(result, expected),
        )
        if m.time is not None
        else m
        for m, result in zip(row, results, strict=True)
    ]


def identify(sweep: Sweep, provider: str, args: Mapping[str, Any]) -> tuple[object, ...]:
    """The parts of a measurement's id."""
    return (sweep.file, sweep.name, provider, *sorted(plain(args).items()))


def plain(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as JSON values: numbers, bools and None unchanged, others as text."""
    return {
        name: value if value is None or isinstance(value, (bool, int, float)) else str(value).removeprefix("torch.")
        for name, value in args.items()
    }


def describe(args: Mapping[str, Any], provider: str) -> str:
    """`n=1024, dtype=float16, kjit`: one measurement, for display."""
    return ", ".join([*(f"{name}={value}" for name, value in args.items()), provider])
