"""Staging folders among the system's temporary files; tests/engine/cache/test_store.py has those in a cache."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kjit.engine.cache import staging
from kjit.engine.cache.folders import make_private
from kjit.engine.cache.staging import make_temporary_folder, sweep, temporary_folder, temporary_lock
from kjit.errors import CacheError

_HOLD = """
import sys
from kjit.engine.cache.staging import temporary_folder
with temporary_folder(sys.argv[1]) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_temporary_folder_is_the_users_alone_and_goes_with_its_home(tmp_path: Path) -> None:
    with temporary_folder(str(tmp_path)) as folder:
        (folder / "file").touch()
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_goes_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with temporary_folder(str(tmp_path)):
            assert theirs.is_dir()
        other.send_signal(signal.SIGKILL)
    with temporary_folder(str(tmp_path)):
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_kjit_did_not_make_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    home = tmp_path / f"kjit-{os.geteuid()}"
    home.mkdir(mode=0o700)
    (home / "notes").mkdir()
    link = home / ("a" * 16)
    link.symlink_to(outside)
    (home / f"{link.name}.lock").write_text(os.uname().nodename)
    with temporary_folder(str(tmp_path)):
        pass
    assert (home / "notes").is_dir()
    assert (outside / "precious").exists()


def test_a_name_that_is_taken_is_left_alone_and_another_one_used(tmp_path: Path) -> None:
    taken = tmp_path / f"kjit-{os.geteuid()}"
    taken.symlink_to("/")
    for number in range(12):
        (tmp_path / f"{taken.name}-{number}").touch()
    writable = tmp_path / f"{taken.name}-writable"
    writable.mkdir()
    writable.chmod(0o777)
    before = set(tmp_path.iterdir())
    with temporary_folder(str(tmp_path)) as folder:
        (home,) = set(tmp_path.iterdir()) - before
        assert folder.parent == home
        assert home.name.startswith(f"{taken.name}-")
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        with temporary_folder(str(tmp_path)) as other:
            assert other.parent == home
    assert set(tmp_path.iterdir()) == before


def test_a_home_whose_name_is_taken_once_it_is_left_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / f"kjit-{os.geteuid()}"
    make = staging._make

    def lose_and_make(folder: Path) -> tuple[Path, int]:
        if folder == home and home.stat().st_mode & 0o777 == 0o700:
            home.chmod(0o777)  # as one that somebody else has put there
        return make(folder)

    monkeypatch.setattr(staging, "_make", lose_and_make)
    with temporary_folder(str(tmp_path)) as folder:
        assert folder.parent != home
    assert list(home.iterdir()) == []


def test_where_no_temporary_file_can_be_written_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", fail)
    with pytest.raises(CacheError, match="No folder for temporary files is writable") as caught:
        make_temporary_folder()
    assert caught.value.hint == "set TMPDIR to a writable folder"


def test_a_folder_in_which_something_stays_keeps_its_lock_and_goes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / ("d" * 16)
    dead.mkdir()
    lock = Path(f"{dead}.lock")
    lock.write_text(os.uname().nodename)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # as where a compiler is just dying
        assert sweep(tmp_path) == 0
    assert lock.exists()
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_lock_is_nobodys_and_goes_at_once(tmp_path: Path) -> None:
    (tmp_path / ("d" * 16) / "deep").mkdir(parents=True)
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_lock_came_while_the_names_were_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = tmp_path / ("a" * 16)
    live.mkdir()
    folder_alone = list(os.scandir(tmp_path))
    lock = Path(f"{live}.lock")
    lock.touch()  # free for `flock` as seen from here: on a network mount, a build of another machine
    monkeypatch.setattr(staging, "scan", lambda _: folder_alone)
    assert sweep(tmp_path) == 0
    assert live.is_dir()
    assert lock.exists()


def test_a_sweep_that_loses_its_new_lock_to_another_one_leaves_it_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ("d" * 16)).mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(staging, "try_lock", lambda _: False)
        assert sweep(tmp_path) == 0
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


_COUNT = """
import sys, tempfile
from pathlib import Path
from kjit.engine.cache.staging import temporary_lock
tempfile.tempdir = sys.argv[1]
count = Path(sys.argv[1]) / "count"
for _ in range(50):
    with temporary_lock("counting", "counts"):
        count.write_text(str(int(count.read_text()) + 1))
"""


def test_one_process_at_a_time_holds_a_temporary_lock_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", _COUNT, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert (tmp_path / "count").read_text() == "200"
    assert [entry.name for entry in tmp_path.iterdir()] == ["count"]


def test_a_home_that_another_process_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def make_and_lose(folder: Path) -> None:
        make_private(folder)
        made.append(folder)
        if len(made) <= 3:
            folder.rmdir()

    monkeypatch.setattr(staging, "make_private", make_and_lose)
    with temporary_folder(str(tmp_path)) as folder:
        assert folder.parent.name == f"kjit-{os.geteuid()}"
    assert len(made) > 3
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_was_there_and_is_gone_a_moment_later_has_no_other_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two processes would hold what they take for the same lock."""
    make = Path.mkdir
    lost: list[Path] = []

    def lose_and_make(folder: Path, *args: Any, **options: Any) -> None:
        if folder.parent == tmp_path and len(lost) < 3:
            lost.append(folder)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        make(folder, *args, **options)

    monkeypatch.setattr(Path, "mkdir", lose_and_make)
    with temporary_folder(str(tmp_path)) as folder:
        assert folder.parent.name == f"kjit-{os.geteuid()}"
    assert len(lost) == 3


def test_a_temporary_lock_that_another_name_holds_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with temporary_lock("one", "tries"), temporary_lock("other", "tries"):
        assert {lock.name for lock in tmp_path.glob("kjit-*/*")} == {"one.lock", "other.lock"}
    assert list(tmp_path.iterdir()) == []
