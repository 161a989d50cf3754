from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from kjit import cli
from kjit.bench import collect, repeat
from kjit.benchmark import quick
from kjit.project import Project, prints_to_stderr

BENCHMARK = """
import triton
import kjit
from kjit.benchmark import BenchTime

TIMES = {"kjit": 2.0, "torch": 4.0}

@triton.testing.perf_report(
    triton.testing.Benchmark(
        ["n"], kjit.benchmark.get_benchmark_range([1000, 2000], [1000]), "provider", ["kjit", "torch"],
        ["kjit", "PyTorch"], "NAME", {"device": "cpu"},
    )
)
def benchmark(n, provider, device):
    median = TIMES[provider] * n / 1000
    return BenchTime(median, median * 0.98, median * 1.1)

def bytes_moved(n, device):
    return 100 * n
"""


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with two benchmarks, as the working folder; no copy is measured, and imports do not last."""
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "benchmarks").mkdir()
    for op in ("add", "scale"):
        (tmp_path / "kernels" / f"{op}.py").touch()
        (tmp_path / "benchmarks" / f"bench_{op}.py").write_text(BENCHMARK.replace("NAME", op))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kjit.bench.hardware.measure_copy", lambda _: 100.0)
    monkeypatch.setattr("kjit.bench.repeat._measure_in_a_process", _measure_here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("kjit_benchmark_file_"):
            del sys.modules[name]


def _measure_here(_: Project, files: list[Path], *, is_quick: bool, tells: bool = False) -> dict[str, float] | str:
    """Benchmarks whose times are made up need no process of their own."""
    del tells
    with prints_to_stderr(), quick() if is_quick else nullcontext():
        return repeat._measure([sweep for file in files for sweep in collect._sweeps_in(file)])


@pytest.fixture
def bench(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run `kjit bench` in the project."""
    del project

    def run(*args: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["kjit", "bench", *map(str, args)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        shown = capsys.readouterr()
        return Done(int(leaving.value.code or 0), shown.out, shown.err)

    return run


def _break(project: Path, op: str, line: str) -> None:
    path = project / "benchmarks" / f"bench_{op}.py"
    path.write_text(path.read_text().replace("    median =", f"    {line}\n    median ="))


def test_all_benchmarks_run_or_those_that_are_named(bench: Callable[..., Done]) -> None:
    done = bench()
    assert done.status == 0
    assert "add (device=cpu)" in done.out
    assert "scale (device=cpu)" in done.out
    assert "2.00x" in done.out
    done = bench("scale")
    assert "add (device=cpu)" not in done.out
    assert done.err == "bench_scale.py: scale: 4 measurements\n"


def test_json_is_all_of_stdout(bench: Callable[..., Done]) -> None:
    document = json.loads(bench("--json").out)
    assert [m["provider"] for m in document["measurements"][:2]] == ["kjit", "torch"]
    assert "comparisons" not in document


def test_a_csv_that_cannot_be_written_is_refused_before_anything_runs(bench: Callable[..., Done]) -> None:
    done = bench("--csv", "no/such/folder/report.csv")
    assert (done.status, done.out) == (1, "")
    assert done.err == "error: No such file or directory ('no/such/folder/report.csv').\n"


def test_plots_without_matplotlib_are_refused_before_anything_runs(
    bench: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = bench("--plot", "plots")
    assert (done.status, done.out) == (1, "")
    assert done.err == "error: plots need matplotlib, which is not installed.\nhint: pip install 'kjit[bench]'\n"


def test_a_regression_is_exit_status_1(bench: Callable[..., Done], project: Path) -> None:
    (project / "base.json").write_text(bench("--json").out)
    _break(project, "scale", "TIMES['kjit'] = 3.0")
    done = bench("--baseline", "base.json", "--max-regression", "10%")
    assert done.status == 1
    assert "error: 2 of 4 measurements are more than 10% slower than the baseline." in done.err
    rows = [line.split() for line in done.out[done.out.index("against base.json") :].splitlines() if "(device" in line]
    assert [row[-1] for row in rows] == ["slower", "slower", "ok", "ok"]
    assert bench("--baseline", "base.json", "--max-regression", "60").status == 0


@pytest.fixture
def set_speed(project: Path) -> Callable[[float], None]:
    """A function that sets the time of kjit's `scale` in this state of the project; git has one with 2.0."""

    def set_to(time: float) -> None:
        (project / "kernels" / "speed.txt").write_text(str(time))

    file = project / "benchmarks" / "bench_scale.py"
    speed = 'float((Path(__file__).parents[1] / "kernels" / "speed.txt").read_text())'
    file.write_text("from pathlib import Path\n" + file.read_text().replace('"kjit": 2.0', f'"kjit": {speed}'))
    set_to(2.0)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", "-C", str(project), *who, *command], check=True)
    return set_to


@pytest.mark.parametrize(("time", "direction", "status"), [(3.0, "slower", 1), (1.0, "faster", 0), (2.0, "level", 0)])
def test_a_revision_is_measured_in_the_same_run(
    bench: Callable[..., Done], set_speed: Callable[[float], None], time: float, direction: str, status: int
) -> None:
    set_speed(time)
    done = bench("scale", "--against", "HEAD", "--quick")
    assert done.status == status
    assert "against HEAD" in done.out
    change = f"{time / 2 - 1:+.1%}"
    row = next(line for line in done.out.splitlines() if "scale (device=cpu" in line and "%" in line)
    assert row.split()[-6:] == [f"{time:.3g}", *[change, change, "to", change], direction]
    assert done.err.count("pair ") == 5


def test_todays_benchmark_is_measured_on_both_sides(
    bench: Callable[..., Done], project: Path, set_speed: Callable[[float], None]
) -> None:
    set_speed(2.0)
    file = project / "benchmarks" / "bench_scale.py"
    file.write_text(file.read_text().replace("* n / 1000", "* n / 500"))
    document = json.loads(bench("scale", "--against", "HEAD", "--json").out)
    assert [(c["before_us"], c["now_us"]) for c in document["comparisons"]] == [(4.0, 4.0), (8.0, 8.0)]


def test_an_unknown_revision_is_wrong_usage(bench: Callable[..., Done], set_speed: Callable[[float], None]) -> None:
    set_speed(2.0)
    done = bench("scale", "--against", "no-such-thing")
    assert (done.status, "there is no revision 'no-such-thing'" in done.err) == (2, True)
    assert bench("--against", "HEAD", "--baseline", "x.json").status == 2


def test_a_project_without_git_is_pointed_to_reports(bench: Callable[..., Done], project: Path) -> None:
    done = bench("scale", "--against", "HEAD")
    assert (done.status, f"{project} is not under git" in done.err) == (2, True)
    assert "hint: --baseline takes a report" in done.err


def test_the_last_time_is_kept_for_kjit_list_but_not_of_a_quick_run(bench: Callable[..., Done], project: Path) -> None:
    def kept() -> list[str]:
        return sorted(path.name for path in (project / ".kjit" / "bench").glob("*"))

    bench("--quick")
    assert kept() == []
    bench("scale")
    assert kept() == ["scale.json"]


def test_what_cannot_be_measured_in_a_revision_is_said(
    bench: Callable[..., Done], set_speed: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_speed(2.0)

    def measure(project: Project, files: list[Path], *, is_quick: bool, tells: bool) -> dict[str, float] | str:
        is_then = "kjit-revision" in str(project.root)
        assert tells == is_then
        return {} if is_then else _measure_here(project, files, is_quick=is_quick)

    monkeypatch.setattr("kjit.bench.repeat._measure_in_a_process", measure)
    done = bench("scale", "--against", "HEAD", "--quick", "--runs", "1")
    assert done.status == 1
    assert "the state of before: none of this can be measured there" in done.err
