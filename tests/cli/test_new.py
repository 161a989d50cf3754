"""The command `kjit new`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.scaffold.patterns import PATTERNS

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kjit_new(tmp_path: Path, kjit_in: Run) -> Run:
    """A function that runs `kjit new` in an empty folder."""
    return lambda *arguments: kjit_in(tmp_path, "new", *arguments, COLUMNS="100")


def test_it_says_what_was_written_and_what_to_change(kjit_new: Run, tmp_path: Path) -> None:
    done = kjit_new("scale", "--device", "cuda,cpu")
    assert done.returncode == 0, done.stderr
    kernels = ["kernels/csrc/scale.h", "kernels/csrc/scale.cuh", "kernels/csrc/scale.cpp"]
    files = [*kernels, "kernels/scale.py", "tests/test_scale.py"]
    assert set(files) <= set(done.stdout.splitlines())
    assert "kjit test scale" in done.stdout
    places = [line.strip().rsplit(":", 1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [file for file, _ in places] == [files[0], files[-1]]
    for file, line in places:
        assert "x * alpha" in (tmp_path / file).read_text().splitlines()[int(line) - 1]


def test_a_dry_run_shows_the_tree_and_a_diff_and_writes_nothing(kjit_new: Run, tmp_path: Path) -> None:
    done = kjit_new("scale", "--dry-run")
    assert done.returncode == 0
    assert "            scale.cuh" in done.stdout
    assert "+++ b/kernels/scale.py" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_diff_of_a_dry_run_can_be_applied(kjit_new: Run, tmp_path: Path) -> None:
    diff = kjit_new("scale", "--dry-run").stdout
    diff = diff[diff.index("--- ") :]
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, text=True, check=True)
    again = kjit_new("scale", "--dry-run", "--force").stdout
    assert "---" not in again


def test_an_op_that_exists_needs_force(kjit_new: Run, tmp_path: Path) -> None:
    kjit_new("scale")
    (tmp_path / "kernels" / "scale.py").write_text("# mine\n")
    refused = kjit_new("scale")
    assert refused.returncode == 2
    assert "kernels/scale.py" in refused.stderr
    assert "--force" in refused.stderr
    assert kjit_new("scale", "--force").returncode == 0
    assert "def scale" in (tmp_path / "kernels" / "scale.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["../x"], "is a path"),
        (["class"], "keyword of Python"),
        (["f", "x T[N]"], "expected ':'"),
        (["f", "x: T[N], w: T[M] -> out: T[N]"], "one shape"),
        (["f", "--pattern", "scater"], "no pattern 'scater'"),
        (["f", "--pattern", "gemm"], "--pattern custom"),
        (["f", "--device", "tpu"], "'tpu' is none of cuda and cpu"),
        (["f", "--dtypes", "fp7"], "'fp7' is not a dtype"),
    ],
)
def test_wrong_usage_is_one_sentence_a_hint_and_status_2(
    kjit_new: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = kjit_new(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_pattern(kjit_new: Run) -> None:
    help_text = kjit_new("--help").stdout
    for pattern in PATTERNS:
        assert f"{pattern}:" in help_text
