from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kjit.bench.collect import load_sweeps
from kjit.bench.sweep import Report
from kjit.project import Project

Run = Callable[..., Report]


def test_every_provider_is_measured_at_every_point(run: Run) -> None:
    measured = [(m.args["n"], m.provider, m.time and m.time.median) for m in run().measurements]
    assert measured == [(1000, "kjit", 2.0), (1000, "torch", 4.0), (2000, "kjit", 4.0), (2000, "torch", 8.0)]


def test_flops_and_time_give_a_rate(run: Run) -> None:
    first = run(
        ("def bytes_moved(n, device, dtype):\n    return 100 * n", "def flops(n, **_):\n    return n")
    ).measurements[0]
    assert first.tflops == pytest.approx(1000 / 2e-6 / 1e12)
    assert first.gbps is None


@pytest.mark.parametrize(
    ("change", "speedups"),
    [
        (("import triton", "import triton"), [2.0, 1.0]),
        (('"torch"', '"old"'), [2.0, 1.0]),  # the second provider stands for PyTorch
        (('["kjit", "torch"], ["mine", "PyTorch"]', '["kjit"], ["mine"]'), [None, None]),
        (("    median =", "    assert provider != 'torch'\n    median ="), [None, None]),
    ],
)
def test_a_speed_up_is_against_pytorch_or_the_second_provider(
    run: Run, change: tuple[str, str], speedups: list[float | None]
) -> None:
    assert [m.speedup for m in run(change).measurements[:2]] == speedups


def test_a_provider_that_raises_hides_no_other(run: Run) -> None:
    report = run(("    median =", "    assert provider != 'kjit', 'no such kernel'\n    median ="))
    assert [m.provider for m in report.measurements if m.time is not None] == ["torch", "torch"]
    assert report.failures[0].where == "bench_scale.py: scale (device=cpu, dtype=float32, n=1000, kjit)"
    assert report.failures[0].reason.startswith("AssertionError: no such kernel (line ")


RETURNS = "return BenchTime(median, median * 0.98, median * 1.1)"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("    median =", "    raise ValueError('first\\nsecond')\n    median ="), "ValueError: first ... (line "),
        ((RETURNS, "return median"), "the benchmark returned float, not the times of kjit.benchmark.run_benchmark."),
    ],
)
def test_a_failure_is_one_line(run: Run, change: tuple[str, str], reason: str) -> None:
    assert run(change).failures[0].reason.startswith(reason)


def test_a_cuda_benchmark_without_a_gpu_says_so_and_runs_in_the_simulator(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("KJIT_SIM", "1")
    assert [m.args["device"] for m in run(('"device": "cpu"', '"device": "cuda"')).measurements] == ["cpu"] * 4
    monkeypatch.delenv("KJIT_SIM")
    report = run(('"device": "cpu"', '"device": "cuda"'))
    assert report.failures[0].reason == "this benchmark needs an NVIDIA GPU, and PyTorch sees none here."


@pytest.mark.parametrize(("x", "args"), [("(1000, 3)", (1000, 3)), ("1000", (1000, 1000))])
def test_several_names_take_a_value_each_or_the_same(run: Run, x: str, args: tuple[int, int]) -> None:
    report = run(
        ('["n"], [1000, 2000]', f'["n", "m"], [{x}]'),
        ("n, provider,", "n, m, provider,"),
        ("bytes_moved(n,", "bytes_moved(n, m,"),
    )
    assert (report.measurements[0].args["n"], report.measurements[0].args["m"]) == args


def test_an_x_value_of_the_wrong_length_is_refused(project: Project) -> None:
    path = project.benchmark_path("scale")
    path.write_text(path.read_text().replace("[1000, 2000]", "[(1, 2)]"))
    _, failures = load_sweeps(project, [path])
    assert "has the x value (1, 2) for the names ['n']" in failures[0].reason
