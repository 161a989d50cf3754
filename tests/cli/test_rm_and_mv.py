"""`kjit rm` and `kjit mv`: removed and renamed files, other mentions, and protection by git."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def op(kjit: Kjit, project: Path) -> Path:
    """A project with an op `scale`, which the package hands on, and an op that uses it; git has all of it."""
    kjit("new", "scale", "x: T[N] -> out: T[N]", "--device", "cpu", "--dtypes", "fp32", "--pattern", "minimal")
    (project / "kernels" / "__init__.py").write_text('from .scale import scale\n\n__all__ = ["scale"]\n')
    (project / "kernels" / "twice.py").write_text("from kernels.scale import scale\n\nTWICE = (scale, scale)\n")
    (project / "notes.md").write_text("See kernels/csrc/scale.cpp.\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "all")
    return project


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def test_an_op_is_removed_and_what_still_names_it_is_listed(op: Path, kjit: Kjit) -> None:
    preview = kjit("rm", "scale", "--dry-run")
    files = ["kernels/scale.py", "kernels/csrc/scale.cpp", "tests/test_scale.py", "benchmarks/bench_scale.py"]
    assert (preview.returncode, preview.stdout.splitlines()) == (0, files)
    assert "  kernels/__init__.py:1: from .scale import scale\n" in preview.stderr
    assert "  kernels/twice.py:1: from kernels.scale import scale\n" in preview.stderr
    assert "  notes.md:1: See kernels/csrc/scale.cpp.\n" in preview.stderr
    assert git(op, "status", "--porcelain") == ""
    asked = kjit("rm", "scale")
    assert (asked.returncode, "add --yes" in asked.stderr) == (2, True)
    assert kjit("rm", "scale", "--yes").returncode == 0
    assert sorted(git(op, "status", "--porcelain").splitlines()) == sorted(f" D {file}" for file in files)


@pytest.mark.parametrize("command", [("rm", "scale"), ("mv", "scale", "double_it")])
def test_what_git_could_not_bring_back_is_refused(op: Path, kjit: Kjit, command: tuple[str, ...]) -> None:
    (op / "kernels" / "csrc" / "scale.cpp").open("a").write("// mine\n")
    git(op, "rm", "-q", "--cached", "tests/test_scale.py")
    done = kjit(*command, "--yes")
    assert done.returncode == 2
    assert "git could not restore kernels/csrc/scale.cpp, tests/test_scale.py" in done.stderr
    assert (op / "kernels" / "scale.py").is_file()
    assert kjit(*command, "--yes", "--force").returncode == 0
    assert not (op / "kernels" / "scale.py").exists()


def test_a_dry_run_shows_what_a_renaming_changes(op: Path, kjit: Kjit) -> None:
    done = kjit("mv", "scale", "times", "--dry-run")
    assert "--- a/kernels/csrc/scale.cpp\n+++ b/kernels/csrc/times.cpp\n" in done.stdout
    assert '-__all__ = ["scale"]\n+__all__ = ["times"]\n' in done.stdout
    assert git(op, "status", "--porcelain") == ""


def test_an_op_is_renamed_with_what_imports_it(op: Path, kjit: Kjit) -> None:
    done = kjit("mv", "scale", "times", "--yes")
    assert done.stdout.splitlines() == [
        "kernels/scale.py -> kernels/times.py",
        "kernels/csrc/scale.cpp -> kernels/csrc/times.cpp",
        "tests/test_scale.py -> tests/test_times.py",
        "benchmarks/bench_scale.py -> benchmarks/bench_times.py",
        "kernels/__init__.py (its imports)",
        "kernels/twice.py (its imports)",
    ]
    assert "notes.md:1: See kernels/csrc/scale.cpp.\n" in done.stderr
    assert (op / "kernels" / "__init__.py").read_text() == 'from .times import times\n\n__all__ = ["times"]\n'
    assert (op / "kernels" / "twice.py").read_text().splitlines()[0] == "from kernels.times import times as scale"
    tested = kjit("test", "times", "--", "-q", "-k", "agrees and not huge")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_names_that_will_not_do_are_wrong_usage_and_change_nothing(op: Path, kjit: Kjit) -> None:
    for arguments, said in (
        (("mv", "scale", "answer"), "there is an op 'answer' already."),
        (("mv", "scale", "double"), "'double' is a keyword of C++."),
        (("mv", "scale", "scale"), "op 'scale' has that name already."),
        (("mv", "scal", "other"), "did you mean scale?"),
        (("rm", "scal"), "did you mean scale?"),
    ):
        done = kjit(*arguments, "--yes")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert git(op, "status", "--porcelain") == ""


def test_an_op_whose_file_cannot_be_read_is_not_renamed(op: Path, kjit: Kjit) -> None:
    (op / "kernels" / "scale.py").write_bytes(b"x = 1\ndef (\n")
    done = kjit("mv", "scale", "times", "--yes", "--force")
    assert (done.returncode, "error: kernels/scale.py:2 is not Python: " in done.stderr) == (1, True), done.stderr
    assert (op / "kernels" / "scale.py").read_bytes() == b"x = 1\ndef (\n"
