"""The API for benchmark files: `run_benchmark` times one function, `main` runs a benchmark file as a script.

A GPU is timed through CUDA graphs (`triton.testing.do_bench_cudagraph`), so that the kernel is measured and not Python;
a CPU through `torch.utils.benchmark`, with PyTorch's number of threads. Both repeat until the median is known to half a
percent or a time limit is reached, and report the median with the fastest and the slowest sample.

A benchmark file is a script of `triton.testing.perf_report`:

    @triton.testing.perf_report(
        triton.testing.Benchmark(
            x_names=["n"],
            x_vals=kjit.benchmark.get_benchmark_range([2**k for k in range(10, 28)], [1024]),
            line_arg="provider",
            line_vals=["kjit", "torch"],
            line_names=["kjit", "PyTorch"],
            plot_name="scale",
            args={"device": "cuda"},
        )
    )
    def benchmark(n, provider, device):
        x = torch.randn(n, device=device)
        function = {"kjit": lambda: scale(x), "torch": lambda: x * 2.0}[provider]
        return kjit.benchmark.run_benchmark(function, device=device)

    def bytes_moved(n, device):
        return 2 * n * 4

    if __name__ == "__main__":
        kjit.benchmark.main(benchmark)

`bytes_moved` and `flops` are optional: called with the arguments of the benchmark other than the provider, they turn
times into GB/s and TFLOP/s.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kjit.env import is_in_ci as is_in_ci
from kjit.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["BenchTime", "get_benchmark_range", "is_in_ci", "load_file", "main", "quick", "rotated", "run_benchmark"]

_T = TypeVar("_T")

_NOISE = 0.005
"""The precision at which repetition stops: half the median's 95% confidence interval, relative to the median."""


_MIN_SAMPLES = 6
"""Of this many samples, the median is between the smallest and the largest in 97 of 100 cases; of five in 94."""


@dataclass
class Kept:
    """The results of a benchmark's functions: the first of each call of `run_benchmark`.

    Attributes:
        poisons: whether uninitialised memory is NaN in that call, or the largest integer, so that results that are not
            computed are noticed.
    """

    poisons: bool
    results: list[object] = field(default_factory=list)


@dataclass(frozen=True)
class _Mode:
    """The mode of `run_benchmark`, by which `kjit bench` reaches the code of benchmark files.

    Attributes:
        quick: `get_benchmark_range` returns the small range.
        brief: it repeats less.
        calls: it does not measure, but calls the function so often, for a profiler.
        around: entered around these calls; the warm-up call before them is outside.
        kept: what it keeps the results of the measured functions in.
    """

    quick: bool = False
    brief: bool = False
    calls: int | None = None
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    kept: Kept | None = None


_mode: ContextVar[_Mode] = ContextVar("kjit_benchmark_mode", default=_Mode())  # noqa: B039 (it is immutable)


@contextmanager
def mode(**changes: Any) -> Iterator[None]:
    """A context in which `run_benchmark` has these attributes of `_Mode`."""
    token = _mode.set(replace(_mode.get(), **changes))
    try:
        yield
    finally:
        _mode.reset(token)


class BenchTime(NamedTuple):
    """Microseconds per call, as a tuple of three for `triton.testing.perf_report`."""

    median: float
    min: float
    max: float


_MAX_SETS = 256
"""The most sets of `rotated`: tensors that still fit in the cache then are so small that only the launch is timed."""


def get_benchmark_range(full: Sequence[_T], ci: Sequence[_T]) -> Sequence[_T]:
    """The sizes to run: `full`, or the few of `ci` in continuous integration and under `kjit bench --quick`."""
    return ci if is_in_ci() or _mode.get().quick else full


def quick() -> AbstractContextManager[None]:
    """A context with short benchmarks: `get_benchmark_range` returns the small range and `run_benchmark` repeats
    less."""
    return mode(quick=True, brief=True)


def run_benchmark(
    fn: Callable[[], object] | Sequence[Callable[[], object]], *, device: str | torch.device | None = None
) -> BenchTime:
    """Time `fn`.

    Args:
        fn: called without arguments, many times; on a GPU it must be possible to capture it in a CUDA graph (no
            synchronisation, no tensor created from Python values). Several functions are called in turn, and the result
            is the time of one call: with one per set of tensors (`rotated`), the data is not in the cache.
        device: its device; by default that of the tensor that it returns.

    Returns: Microseconds per call: median, fastest and slowest sample. A sample is the mean of many calls.

    Raises:
        UsageError: no device is given, `fn` returns no tensor, and there is a GPU, so that the device is ambiguous.
    """
    import torch

    functions = [fn] if callable(fn) else list(fn)
    if not functions:
        raise UsageError("there is no function to time.")
    wanted = _mode.get()
    with _poisoned() if wanted.kept is not None and wanted.kept.poisons else nullcontext():
        result = functions[0]()
    if wanted.kept is not None:
        wanted.kept.results.append(result)
    kind = torch.device(device) if device is not None else _device_of(result)
    if wanted.calls is not None:
        synchronize = partial(torch.cuda.synchronize, kind) if kind.type == "cuda" else nullcontext
        synchronize()
        with wanted.around():
            # The last ones: their data was not touched by the call that warmed up.
            for index in range(wanted.calls):
                functions[-1 - index % len(functions)]()
            synchronize()
        return BenchTime(math.nan, math.nan, math.nan)
    if kind.type == "cuda":
        with torch.cuda.device(kind):
            samples = _sample_cuda(functions)
    elif kind.type == "cpu":
        samples = _sample_cpu(functions)
    else:
        raise UsageError(f"run_benchmark cannot time the device '{kind}', only cpu and cuda.")
    return BenchTime(statistics.median(samples), min(samples), max(samples))


def load_file(path: Path | str) -> ModuleType:
    """Import a Python file that is not in a package, such as the test that a benchmark takes its inputs from.

    Unlike with `runpy.run_path`, its functions belong to a module that `torch.compile` finds by name. Its folder is put
    on `sys.path`, as pytest does.
    """
    # Under its own name, a file could hide a module of the user.
    module = ModuleType(f"kjit_benchmark_file_{Path(path).stem}")
    if Path(path).suffix != ".py":
        raise UsageError(f"'{path}' is not a Python file.")
    module.__file__ = str(path)
    if (folder := str(Path(path).absolute().parent)) not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[module.__name__] = module
    try:
        # Not by Python's own cache, which does not notice a change of equal size within one second.
        exec(compile(Path(path).read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def rotated(make: Callable[[], _T], *, nbytes: int, device: str | torch.device) -> list[_T]:
    """Several sets of tensors (up to 256), enough to evict the first one from the caches before it is used again.

        sets = rotated(lambda: torch.randn(n, device="cuda"), nbytes=4 * n, device="cuda")
        run_benchmark([lambda x=x: scale(x) for x in sets], device="cuda")

    Args:
        make: a function that creates one set.
        nbytes: the bytes that one call accesses.
        device: the last-level cache of this device counts; for the CPU, 64 MiB are assumed.
    """
    import torch

    kind = torch.device(device)
    cache = torch.cuda.get_device_properties(kind).L2_cache_size if kind.type == "cuda" else 64 * 2**20
    return [make() for _ in range(min(max(1, -(-4 * cache // max(1, nbytes))), _MAX_SETS))]


def main(*benchmarks: Any) -> None:
    """Run the benchmarks of a file (objects made by `triton.testing.perf_report`) and print their tables.

    The runs and tables are those of `kjit bench`, which also has JSON, plots and comparisons.
    """
    from kjit.bench.report import describe
    from kjit.bench.sweep import Sweep, run_sweeps

    sys.stdout.write(f"{describe(run_sweeps([sweep for mark in benchmarks for sweep in Sweep.of(mark)]))}\n")


@contextmanager
def _poisoned() -> Iterator[None]:
    """A context in which PyTorch fills new memory, for deterministic results."""
    import torch

    was_on, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    utils: Any = torch.utils.deterministic
    filled = utils.fill_uninitialized_memory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an op that has no such algorithm
        torch.use_deterministic_algorithms(True, warn_only=True)
        utils.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(was_on, warn_only=warned)
            utils.fill_uninitialized_memory = filled


def _device_of(result: object) -> torch.device:
    import torch

    first = result[0] if isinstance(result, (tuple, list)) and result else result
    if isinstance(first, torch.Tensor):
        return first.device
    if torch.cuda.is_available():
        raise UsageError(
            "run_benchmark cannot tell on which device the function runs, as it returns no tensor.",
            hint='give the device: run_benchmark(fn, device="cuda")',
        )
    return torch.device("cpu")


def _in_turn(functions: list[Callable[[], object]]) -> Callable[[], object]:
    return functions[0] if len(functions) == 1 else lambda: [function() for function in functions]


def _sample_cpu(functions: list[Callable[[], object]]) -> list[float]:
    import torch
    from torch.utils.benchmark import Timer

    # The Timer's default is a single thread, which does not correspond to real use.
    timer = Timer("fn()", globals={"fn": _in_turn(functions)}, num_threads=torch.get_num_threads())
    each, limit = (0.05, 0.1) if _mode.get().brief else (0.1, 0.5)

    def sample() -> list[float]:
        return [seconds * 1e6 / len(functions) for seconds in timer.blocked_autorange(min_run_time=each).times]

    return _until_steady(sample, limit)


def _sample_cuda(functions: list[Callable[[], object]]) -> list[float]:
    import torch
    from triton.testing import do_bench_cudagraph

    all_of_them = _in_turn(functions)
    # An idle GPU lowers its clocks; they must be up before the first sample.
    deadline = time.perf_counter() + (0.01 if _mode.get().brief else 0.05)
    while time.perf_counter() < deadline:
        all_of_them()
        torch.cuda.synchronize()
    rep, limit = (5, 0.1) if _mode.get().brief else (20, 1.0)

    def sample() -> list[float]:
        torch.cuda.synchronize()
        samples = do_bench_cudagraph(all_of_them, rep=rep, return_mode="all")
        return [milliseconds * 1e3 / len(functions) for milliseconds in samples]

    return _until_steady(sample, limit)


def _until_steady(sample: Callable[[], list[float]], limit: float) -> list[float]:
    """Take samples until their median is known to `_NOISE`, or for `limit` seconds."""
    deadline = time.perf_counter() + limit
    samples = sample()
    while median_noise(samples) > _NOISE and time.perf_counter() < deadline:
        samples += sample()
    return samples


def median_noise(samples: Sequence[float]) -> float:
    """The relative error of the median: half its 95% confidence interval.

    The interval lies between two order statistics, whatever the distribution. Source: Conover, "Practical Nonparametric
    Statistics", 3rd edition, section 3.2 (confidence interval for a quantile, normal approximation). Of fewer than six
    samples not even the smallest and the largest have the median between them so often: that is infinitely far.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if count < _MIN_SAMPLES:
        return math.inf
    reach = 0.98 * count**0.5
    low, high = max(0, int(count / 2 - reach)), min(count - 1, int(count / 2 + reach))
    return (ordered[high] - ordered[low]) / 2 / statistics.median(ordered)
