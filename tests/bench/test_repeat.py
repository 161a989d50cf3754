"""kjit.bench.repeat: the processes are real ones, the times that they report are made up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.bench.repeat import repeat
from kjit.bench.sweep import Report
from kjit.project import Project

Run = Callable[..., Report]

IN_A_PROCESS = ("    median =", "    import os\n    print('measuring')\n    n += os.getpid() * 1000\n    median =")


def again(report: Report, project: Project, runs: int = 2, **options: bool) -> None:
    repeat(report, project, [project.benchmark_path("scale")], runs, is_quick=options.get("is_quick", False))


def test_each_judged_sample_is_of_a_process_of_its_own(
    run: Run, project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run(
        IN_A_PROCESS, ('"torch"], ["mine"', '"torch", "other"], ["mine", "theirs"'), ("4.0}", '4.0, "other": 3.0}')
    )
    again(report, project, runs=3)
    assert {m.provider: len(m.runs) for m in report.measurements} == {"kjit": 3, "torch": 3, "other": 1}
    processes = [round(time / 2.0 - 1) for time in report.measurements[0].runs]
    assert processes[0] == os.getpid()
    assert len(set(processes)) == 3
    assert (report.failures, capfd.readouterr().out.count("measuring")) == ([], 6)


def test_the_sizes_of_quick_are_those_of_quick_again(run: Run, project: Project) -> None:
    report = run(("import triton", "import kjit.benchmark\nimport triton"))
    path = project.benchmark_path("scale")
    path.write_text(
        path.read_text().replace("[1000, 2000]", "kjit.benchmark.get_benchmark_range([1000, 2000], [2000])")
    )
    again(report, project, is_quick=True)
    assert {m.args["n"]: len(m.runs) for m in report.measurements} == {1000: 1, 2000: 2}


def test_a_process_that_dies_is_a_failure_and_no_sample(run: Run, project: Project) -> None:
    report = run()
    path = project.benchmark_path("scale")
    path.write_text(f"{path.read_text()}\nimport os\nos._exit(3)\n")
    again(report, project, runs=3)
    assert [(f.where, f.reason) for f in report.failures] == [
        ("run 2 of 3", "its process ended with status 3; its output is above.")
    ]
    assert {len(m.runs) for m in report.measurements} == {1}


def test_a_measurement_that_fails_is_not_tried_again(run: Run, project: Project, tmp_path: Path) -> None:
    report = run(
        ("    median =", f"    open({str(tmp_path / 'log')!r}, 'a').write('x')\n    assert False\n    median =")
    )
    again(report, project)
    assert (tmp_path / "log").read_text() == "xxxx"
