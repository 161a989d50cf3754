"""`kjit clean-cache`: the selection of artifacts, the confirmation, and everything that must stay."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.engine.cache.store import Store
from kjit.runtime import LAYOUT, manifest

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


def ops_in(cache: Path) -> list[str]:
    return [entry.op for entry in Store.open(cache).entries()]


@pytest.fixture
def filled(project: Path, add: Callable[[str], None], cache_dir: Path, built_once: Path) -> Path:
    """A cache with two artifacts of each of two ops, without files about toolchains."""
    del project
    add("other")
    shutil.copytree(built_once, cache_dir / LAYOUT / "cpu", dirs_exist_ok=True)
    assert ops_in(cache_dir) == ["answer", "answer", "other", "other"]
    return cache_dir


@pytest.fixture
def filled_here(kjit: Kjit, add: Callable[[str], None], cache_dir: Path) -> Path:
    """As `filled`, but built from the project of the test, so that changes in it make artifacts stale."""
    add("other")
    kjit("build")
    assert ops_in(cache_dir) == ["answer", "answer", "other", "other"]
    return cache_dir


def test_everything_goes_after_it_was_shown(kjit: Kjit, filled: Path) -> None:
    texts = Store.open(filled).texts
    (texts / "0123").mkdir(parents=True)
    (texts / "0123" / "scale.cpp").touch()
    done = kjit("clean-cache", "--yes")
    assert done.returncode == 0
    assert ops_in(filled) == []
    assert not texts.exists()
    header, answer, other, *_ = done.stdout.splitlines()
    assert header.split()[:3] == ["op", "target", "artifacts"]
    assert (answer.split()[:3], other.split()[:3]) == (["answer", "cpu", "2"], ["other", "cpu", "2"])
    assert "removed 4 artifacts, " in done.stdout
    assert Store.open(filled).support_size() == 0


@pytest.mark.parametrize("chosen", [[], ["answer"]])
def test_what_is_known_of_toolchains_goes_with_everything(kjit: Kjit, filled: Path, chosen: list[str]) -> None:
    known = filled / LAYOUT / manifest.TOOLCHAINS / ("0" * 32)
    known.parent.mkdir(mode=0o700, exist_ok=True)
    known.touch()
    kjit("clean-cache", *chosen, "--yes")
    assert known.exists() == bool(chosen)


def test_only_what_was_not_used_for_so_long_goes(kjit: Kjit, filled: Path) -> None:
    entry = next(iter(Store.open(filled).entries()))
    os.utime(entry.folder / "record.jsonl", (time.time() - 31 * 86400,) * 2)
    kjit("clean-cache", "--older-than", "30d", "--yes")
    assert ops_in(filled) == ["answer", "other", "other"]


@pytest.mark.parametrize(("answer", "left"), [("n", 4), ("y", 0)])
def test_on_a_terminal_it_asks(project: Path, filled: Path, answer: str, left: int) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kjit", "clean-cache"],
        cwd=project,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ):
        os.write(ours, f"{answer}\n".encode())
    os.close(ours)
    os.close(theirs)
    assert len(ops_in(filled)) == left


def test_what_kjit_did_not_make_stays(kjit: Kjit, filled: Path) -> None:
    entry = next(iter(Store.open(filled).entries()))
    mine = [filled / "mine.txt", filled / LAYOUT / "mine.txt", entry.folder / "mine.txt", entry.folder.parent / "mine"]
    for path in mine:
        path.write_text("mine")
    kjit("clean-cache", "--yes")
    assert all(path.exists() for path in mine)


def test_what_is_stale_goes_with_the_reason(kjit: Kjit, filled_here: Path, project: Path) -> None:
    (project / "csrc" / "answer.h").write_text("#define ANSWER 43\n")
    kjit("build")
    done = kjit("clean-cache", "--stale", "--yes")
    assert done.returncode == 0, done.stderr
    header, row, *_ = done.stdout.splitlines()
    assert header.split()[-1] == "why"
    assert row.split()[:3] == ["answer", "cpu", "2"] and row.endswith("csrc/answer.h changed")
    assert ops_in(filled_here) == ["answer", "answer", "other", "other"]
    assert "none was chosen" in kjit("clean-cache", "--stale", "--yes").stderr
    built = json.loads(kjit("build", "--json").stdout)
    assert {variant["state"] for variant in built["variants"]} == {"hit"}


def test_as_json_it_says_what_goes_and_never_asks(kjit: Kjit, filled: Path) -> None:
    assert kjit("clean-cache", "--json").returncode == 2
    asked = kjit("clean-cache")
    assert (asked.returncode, "add --yes" in asked.stderr) == (2, True)
    shown = json.loads(kjit("clean-cache", "answer", "--json", "--dry-run").stdout)
    assert (shown["dry_run"], len(shown["artifacts"]), shown["freed"]) == (True, 2, 0)
    assert len(ops_in(filled)) == 4
    gone = json.loads(kjit("clean-cache", "answer", "--json", "--yes").stdout)
    assert gone["freed"] == sum(item["bytes"] for item in shown["artifacts"])
    assert ops_in(filled) == ["other", "other"]


def test_nothing_goes_from_a_shared_cache(kjit: Kjit, filled: Path, tmp_path: Path) -> None:
    kjit("clean-cache", "--yes", KJIT_CACHE_DIR=str(tmp_path / "mine"), KJIT_SHARED_CACHE_DIR=str(filled))
    assert len(ops_in(filled)) == 4


def test_what_may_not_be_deleted_is_an_error_that_stops_nothing_else(kjit: Kjit, filled: Path) -> None:
    entry = next(iter(Store.open(filled).entries()))
    (entry.folder / "answer.so").unlink()
    (entry.folder / "answer.so").mkdir()  # not even root deletes it as a file
    done = kjit("clean-cache", "--yes", "--json")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: '{entry.folder}' cannot be removed: ")
    assert ops_in(filled) == ["answer"]
    assert Store.open(filled).support_size() == 0
    document = json.loads(done.stdout)
    assert (len(document["artifacts"]), len(document["errors"])) == (3, 1)
