"""Fixtures of the tests of `kjit.bench`: a project with benchmark files whose times are given, not measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kjit.bench.collect import load_sweeps
from kjit.bench.sweep import Report, run_sweeps
from kjit.project import Project, find_project

BENCHMARK = """
import triton
from kjit.benchmark import BenchTime

TIMES = {"kjit": 2.0, "torch": 4.0}

@triton.testing.perf_report(
    triton.testing.Benchmark(
        ["n"], [1000, 2000], "provider", ["kjit", "torch"], ["mine", "PyTorch"], "scale",
        {"device": "cpu", "dtype": "float32"},
    )
)
def benchmark(n, provider, device, dtype):
    median = TIMES[provider] * n / 1000
    return BenchTime(median, median * 0.98, median * 1.1)

def bytes_moved(n, device, dtype):
    return 100 * n
"""


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No copy is measured, and what a benchmark file does to `sys.path` and `sys.modules` does not last."""
    monkeypatch.setattr("kjit.bench.hardware.measure_copy", lambda _: 100.0)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("kjit_benchmark_file_", "kernels")):
            del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with one benchmark, `bench_scale.py`, which is `BENCHMARK`."""
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").touch()
    (tmp_path / "kernels" / "scale.py").touch()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "bench_scale.py").write_text(BENCHMARK)
    return find_project(tmp_path)


@pytest.fixture
def run(project: Project) -> Callable[..., Report]:
    """Run `bench_scale.py`, with parts of its source replaced."""

    def run_changed(*changes: tuple[str, str]) -> Report:
        source = BENCHMARK
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        path = project.benchmark_path("scale")
        path.write_text(source)
        sweeps, failures = load_sweeps(project, [path])
        assert failures == []
        return run_sweeps(sweeps)

    return run_changed
