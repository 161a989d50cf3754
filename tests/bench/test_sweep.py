from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kjit.bench.collect import load_sweeps
from kjit.bench.sweep import Report, run_sweeps
from kjit.project import Project

Run = Callable[..., Report]


def test_every_provider_is_measured_at_every_point(run: Run) -> None:
    measured = [(m.args["n"], m.provider, m.time and m.time.median) for m in run().measurements]
    assert measured == [(1000, "kjit", 2.0), (1000, "torch", 4.0), (2000, "kjit", 4.0), (2000, "torch", 8.0)]


def test_bytes_and_time_give_a_bandwidth(run: Run) -> None:
    first = run().measurements[0]
    assert first.gbps == pytest.approx(100 * 1000 / 2e-6 / 1e9)


def test_flops_and_time_give_a_rate(run: Run) -> None:
    first = run(
        ("def bytes_moved(n, device, dtype):\n    return 100 * n", "def flops(n, **_):\n    return n")
    ).measurements[0]
    assert first.tflops == pytest.approx(1000 / 2e-6 / 1e12)
    assert first.gbps is None


def test_a_speed_up_is_against_pytorch(run: Run) -> None:
    assert [m.speedup for m in run().measurements[:2]] == [2.0, 1.0]


def test_a_speed_up_is_against_the_second_provider_where_pytorch_is_not_one(run: Run) -> None:
    report = run(('"torch"', '"old"'))
    assert [m.speedup for m in report.measurements[:2]] == [2.0, 1.0]


def test_a_single_provider_has_no_speed_up(run: Run) -> None:
    report = run(('["kjit", "torch"], ["mine", "PyTorch"]', '["kjit"], ["mine"]'))
    assert [m.speedup for m in report.measurements] == [None, None]


def test_a_provider_that_raises_hides_no_other(run: Run) -> None:
    report = run(("    median =", "    assert provider != 'kjit', 'no such kernel'\n    median ="))
    assert [m.provider for m in report.measurements if m.time is not None] == ["torch", "torch"]
    assert report.failures[0].where == "bench_scale.py: scale (device=cpu, dtype=float32, n=1000, kjit)"
    assert report.failures[0].reason.startswith("AssertionError: no such kernel (line ")


def test_a_speed_up_needs_a_baseline_that_ran(run: Run) -> None:
    report = run(("    median =", "    assert provider != 'torch'\n    median ="))
    assert report.measurements[0].speedup is None


def test_only_the_first_line_of_a_long_error_is_reported(run: Run) -> None:
    report = run(("    median =", "    raise ValueError('first\\nsecond')\n    median ="))
    assert report.failures[0].reason.startswith("ValueError: first ... (line ")


def test_a_benchmark_that_returns_no_times_says_what_to_return(run: Run) -> None:
    report = run(("return BenchTime(median, median * 0.98, median * 1.1)", "return median"))
    assert report.failures[0].reason == ("the benchmark returned float, not the times of kjit.benchmark.run_benchmark.")


def test_a_cuda_benchmark_without_a_gpu_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = run(('"device": "cpu"', '"device": "cuda"'))
    assert report.failures[0].reason == "this benchmark needs an NVIDIA GPU, and PyTorch sees none here."


def test_a_dtype_is_reported_by_its_name(run: Run) -> None:
    report = run(("import triton", "import triton, torch"), ('"float32"', "torch.float32"))
    assert report.measurements[0].args["dtype"] == "float32"


def test_several_names_take_a_value_each(run: Run) -> None:
    report = run(
        ('["n"], [1000, 2000]', '["n", "m"], [(1000, 3)]'),
        ("n, provider,", "n, m, provider,"),
        ("bytes_moved(n,", "bytes_moved(n, m,"),
    )
    assert report.measurements[0].args == {"device": "cpu", "dtype": "float32", "n": 1000, "m": 3}


def test_one_value_for_several_names_is_given_to_each(run: Run) -> None:
    report = run(
        ('["n"], [1000, 2000]', '["n", "m"], [1000]'),
        ("n, provider,", "n, m, provider,"),
        ("bytes_moved(n,", "bytes_moved(n, m,"),
    )
    assert (report.measurements[0].args["n"], report.measurements[0].args["m"]) == (1000, 1000)


def test_an_x_value_of_the_wrong_length_is_refused(project: Project) -> None:
    path = project.benchmark_path("scale")
    path.write_text(path.read_text().replace("[1000, 2000]", "[(1, 2)]"))
    _, failures = load_sweeps(project, [path])
    assert "has the x value (1, 2) for the names ['n']" in failures[0].reason


def test_every_measurement_is_announced(project: Project) -> None:
    sweeps, _ = load_sweeps(project, [project.benchmark_path("scale")])
    announced: list[str] = []
    run_sweeps(sweeps, lambda sweep, what: announced.append(f"{sweep.name}: {what}"))
    assert len(announced) == sweeps[0].size == 4
    assert announced[0] == "scale: device=cpu, dtype=float32, n=1000, kjit"


def test_an_interruption_is_not_taken_for_a_failure(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(("    median =", "    raise KeyboardInterrupt\n    median ="))


def test_an_error_of_kjit_is_reported_in_its_own_words(run: Run) -> None:
    raising = ("    median =", "    raise kjit.UsageError('say more')\n    median =")
    assert run(raising, ("import triton", "import kjit, triton")).failures[0].reason == "say more"
