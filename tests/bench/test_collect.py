from __future__ import annotations

import sys

import pytest

from kjit.bench.collect import find_files, load_sweeps
from kjit.errors import UsageError
from kjit.project import Project


def _write(project: Project, name: str, source: str) -> None:
    (project.benchmarks_dir / name).write_text(source)


def test_every_bench_file_is_found_and_nothing_else(project: Project) -> None:
    _write(project, "bench_add.py", "")
    _write(project, "helper.py", "")
    assert [path.name for path in find_files(project)] == ["bench_add.py", "bench_scale.py"]


def test_an_op_without_a_benchmark_says_which_file_is_missing(project: Project) -> None:
    project.wrapper_path("other").touch()
    with pytest.raises(UsageError, match=r"op 'other' has no benchmark: there is no benchmarks/bench_other\.py"):
        find_files(project, ["other"])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import triton\nimport no_such_module_here\n",
            "ModuleNotFoundError: No module named 'no_such_module_here' (line 2)",
        ),
        ("x = (\n", "SyntaxError at bench_broken.py:1: '(' was never closed"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 (line 2)"),
    ],
)
def test_a_file_that_fails_to_import_hides_no_other(project: Project, source: str, reason: str) -> None:
    _write(project, "bench_broken.py", source)
    sweeps, failures = load_sweeps(project, find_files(project))
    assert [sweep.name for sweep in sweeps] == ["scale"]
    assert [(f.where, f.reason) for f in failures] == [("benchmarks/bench_broken.py", f"it fails to import: {reason}")]


def test_a_file_without_a_benchmark_says_what_makes_one(project: Project) -> None:
    _write(project, "bench_empty.py", "x = 1\n")
    _, failures = load_sweeps(project, [project.benchmarks_dir / "bench_empty.py"])
    assert "decorated with triton.testing.perf_report" in failures[0].reason


def test_a_benchmark_imports_the_project_and_its_neighbours(project: Project) -> None:
    (project.package_dir / "scale.py").write_text("FACTOR = 3\n")
    _write(project, "helper_of_benchmarks.py", "X = 1\n")
    path = project.benchmark_path("scale")
    path.write_text("from kernels.scale import FACTOR\nfrom helper_of_benchmarks import X\n" + path.read_text())
    sweeps, failures = load_sweeps(project, [path])
    del sys.modules["helper_of_benchmarks"]
    assert (len(sweeps), failures) == (1, [])
