from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest
import torch
import triton

import kjit
from kjit.benchmark import BenchTime, get_benchmark_range, load_file, quick, rotated, run_benchmark
from kjit.errors import UsageError


@pytest.fixture(autouse=True)
def _not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def test_a_cpu_call_is_timed_in_microseconds() -> None:
    with quick():
        time = run_benchmark(lambda: math.factorial(3000), device="cpu")
    assert 1 < time.min <= time.median <= time.max < 1e6


def test_a_function_without_a_tensor_needs_a_device_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UsageError, match="cannot tell on which device"):
        run_benchmark(lambda: None)


def test_of_several_functions_the_time_of_one_call_is_given() -> None:
    calls: list[int] = []
    with quick():
        time = run_benchmark([lambda: calls.append(1), lambda: calls.append(2)], device="cpu")
    assert abs(calls.count(1) - calls.count(2)) <= 1
    assert time.median > 0


@pytest.mark.gpu
def test_a_gpu_kernel_is_timed_without_python() -> None:
    x = torch.zeros(2**20, device="cuda")
    with quick():
        assert run_benchmark(lambda: x.add_(1)).median < 100


def test_the_range_is_small_when_it_must_be_quick_and_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick():
        assert get_benchmark_range([1, 2, 3], [1]) == [1]
    assert get_benchmark_range([1, 2, 3], [1]) == [1, 2, 3]
    monkeypatch.setenv("CI", "true")
    assert get_benchmark_range([1, 2, 3], [1]) == [1]


def test_rotated_sets_outgrow_the_cache_together() -> None:
    nbytes = 2**20
    sets = rotated(lambda: object(), nbytes=nbytes, device="cpu")
    assert len(sets) * nbytes >= 256 * 2**20
    assert len(set(map(id, sets))) == len(sets)


@pytest.mark.parametrize(
    ("functions", "device", "message"),
    [
        ([], None, "no function to time"),
        ([lambda: None], "meta", "cannot time the device 'meta'"),
    ],
)
def test_what_cannot_be_timed_is_refused(functions: list[object], device: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_benchmark(functions, device=device)


def test_a_benchmark_file_prints_its_table_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    @triton.testing.perf_report(
        triton.testing.Benchmark(["n"], [8], "provider", ["kjit"], ["mine"], "plot", {"device": "cpu"})
    )
    def benchmark(**_: object) -> BenchTime:
        return BenchTime(2.0, 1.0, 3.0)

    kjit.benchmark.main(benchmark)
    shown = capsys.readouterr().out
    assert "plot (device=cpu)" in shown
    assert "mine" in shown


def test_a_loaded_file_can_be_imported_with_its_neighbours_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "helper_of_test_x.py").write_text("ONE = 1\n")
    path = tmp_path / "test_x.py"
    for factor in (2, 3):  # within one second
        path.write_text(
            f"from helper_of_test_x import ONE\nFACTOR = {factor}\n\ndef times(x):\n    return FACTOR * x\n"
        )
        module = load_file(path)
        assert module.times(3) == 3 * factor
        assert importlib.import_module(module.times.__module__) is module


def test_the_example_of_the_docstring_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = kjit.benchmark.__doc__ or ""
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ") or not line]
    code = "\n".join(lines).replace('"cuda"', '"cpu"')
    names = {"triton": triton, "torch": torch, "kjit": kjit, "scale": lambda x: x * 2, "__name__": "__main__"}
    path = tmp_path / "bench_scale.py"
    with pytest.MonkeyPatch.context() as patch, quick():
        patch.setenv("CI", "1")
        exec(compile(code, str(path), "exec"), names)
    assert "GB/s" in capsys.readouterr().out
