"""`kjit list`: the table of ops."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


def listed(kjit: Kjit) -> dict[str, dict[str, Any]]:
    return {each["op"]: each for each in json.loads(kjit("list", "--json").stdout)}


def test_an_op_is_not_built_then_built_then_stale(kjit: Kjit, project: Path) -> None:
    def states() -> list[dict[str, Any]]:
        targets: list[dict[str, Any]] = listed(kjit)["answer"]["targets"]
        return targets

    assert states() == [{"target": "cpu", "state": "not built", "built": 0, "variants": 2}]
    kjit("build")
    assert states() == [{"target": "cpu", "state": "built", "built": 2, "variants": 2}]
    (project / "csrc" / "answer.h").write_text("#define ANSWER 43\n")
    assert states() == [{"target": "cpu", "state": "stale", "built": 0, "variants": 2}]
    header, row = kjit("list").stdout.splitlines()
    assert header.split() == ["op", "pattern", "devices", "dtypes", "variants", "state"]
    assert row.split() == ["answer", "-", "cpu", "-", "2", "cpu", "stale"]


def test_what_another_project_has_built_of_an_op_of_this_name_is_not_stale(
    kjit: Kjit, kjit_in: Kjit, project: Path, tmp_path: Path
) -> None:
    kjit("build")
    other = tmp_path / "other"
    shutil.copytree(project, other)
    (other / "csrc" / "answer.h").write_text("#define ANSWER 43\n")
    (found,) = json.loads(kjit_in(other, "list", "--json").stdout)
    assert found["targets"] == [{"target": "cpu", "state": "not built", "built": 0, "variants": 2}]


def test_the_last_benchmark_is_shown_beside_what_is_built(kjit: Kjit, project: Path) -> None:
    (project / ".kjit" / "bench").mkdir(parents=True)
    bench = {"when": "2026-11-27T07:00:00+00:00", "device": "NVIDIA H100", "point": "answer: n=1, kjit", "us": 706.7}
    bench |= {"share": 0.9, "share_of": "peak bandwidth"}
    (project / ".kjit" / "bench" / "answer.json").write_text(json.dumps(bench))
    assert listed(kjit)["answer"]["last_bench"] == bench
    header, row = kjit("list").stdout.splitlines()
    assert header.endswith("last bench")
    assert row.endswith("707 us, 90% of peak bandwidth (2026-11-27)")


def test_what_kjit_new_wrote_is_listed(kjit: Kjit) -> None:
    kjit("new", "bump_", "x: mut T[...], amount: const int = 1", "--dtypes", "int32,bf16", "--device", "cuda,cpu")
    op = listed(kjit)["bump_"]
    assert (op["pattern"], op["signature"]) == ("elementwise", "x: mut T[...], amount: const int = 1")
    assert (op["devices"], op["dtypes"], op["variants"]) == (["cuda", "cpu"], ["int32", "bfloat16"], 2)
    assert op["files"] == [
        "kernels/bump_.py",
        "kernels/csrc/bump_.cpp",
        "kernels/csrc/bump_.cuh",
        "kernels/csrc/bump_.h",
        "tests/test_bump_.py",
        "benchmarks/bench_bump_.py",
    ]


def test_a_wrapper_that_does_not_import_is_listed_as_broken(kjit: Kjit, project: Path) -> None:
    (project / "kernels" / "bad.py").write_text("import nothing_of_this_name\n")
    done = kjit("list")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["answer", "bad"]
    assert "broken" in done.stdout.splitlines()[2]
    assert "nothing_of_this_name" in done.stderr


def test_an_unknown_op_is_wrong_usage_and_an_empty_project_is_not(kjit: Kjit, project: Path) -> None:
    done = kjit("list", "anser")
    assert (done.returncode, "did you mean answer?" in done.stderr) == (2, True)
    (project / "kernels" / "answer.py").unlink()
    done = kjit("list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "There is no op" in done.stderr
