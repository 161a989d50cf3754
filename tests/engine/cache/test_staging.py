"""Folders for builds: among the system's temporary files, and what is left of killed builds there and in caches."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kjit.engine.cache import staging
from kjit.engine.cache.staging import make_temporary_folder, spare_name, sweep, temporary_folder
from kjit.errors import CacheError

_HOLD = """
import sys
from kjit.engine.cache.staging import temporary_folder
with temporary_folder(sys.argv[1]) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_temporary_folder_is_the_users_alone_and_goes_afterwards(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), temporary_folder(str(tmp_path)) as folder:
        (folder / "deep").mkdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        raise RuntimeError
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
    (tmp_path / "notes").mkdir()
    spare_name(tmp_path).symlink_to(outside)
    assert sweep(tmp_path) == 0
    assert (tmp_path / "notes").is_dir()
    assert (outside / "precious").exists()


def test_the_folder_of_another_machine_is_left_alone_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(staging, "_machine", lambda: "0" * 8)
        theirs = spare_name(tmp_path)
    theirs.mkdir()
    assert sweep(tmp_path) == 0
    os.utime(theirs, (time.time() - 2 * 86400,) * 2)
    assert sweep(tmp_path) == 1


def test_without_locks_a_folder_is_left_alone_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "try_lock", lambda _: None)
    with temporary_folder(str(tmp_path)) as folder:
        assert sweep(tmp_path, f"kjit-{os.geteuid()}-") == 0
        os.utime(folder, (time.time() - 2 * 86400,) * 2)
        assert sweep(tmp_path, f"kjit-{os.geteuid()}-") == 1


def test_a_folder_in_which_something_stays_goes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spare_name(tmp_path).mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # as where a compiler is just dying
        assert sweep(tmp_path) == 0
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_sweep_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[int] = []
    real = staging.open_folder

    def sweep_first(folder: Path) -> int:
        if not swept:
            swept.append(0)
            swept[0] = sweep(tmp_path)
        return real(folder)

    monkeypatch.setattr(staging, "open_folder", sweep_first)
    with staging.staging_folder(tmp_path) as folder:
        assert folder.is_dir()
    assert swept == [1]


def test_builds_that_start_together_leave_nothing(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(50):
            sweep(tmp_path)
            with staging.staging_folder(tmp_path) as folder:
                assert folder.is_dir()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(tmp_path.iterdir()) == []


def test_where_no_temporary_file_can_be_written_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", fail)
    with pytest.raises(CacheError, match="No folder for temporary files is writable") as caught:
        make_temporary_folder()
    assert caught.value.hint == "set TMPDIR to a writable folder"


_COUNT = """
import sys, tempfile
from pathlib import Path
from kjit.engine.cache.staging import temporary_lock
tempfile.tempdir = sys.argv[1]
count = Path(sys.argv[1]) / "count"
for _ in range(50):
    with temporary_lock("counting", "counts"), temporary_lock("another", "counts"):
        count.write_text(str(int(count.read_text()) + 1))
"""


def test_one_process_at_a_time_holds_a_temporary_lock_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", _COUNT, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in processes] == [0] * 2
    assert (tmp_path / "count").read_text() == "100"
    assert [entry.name for entry in tmp_path.iterdir()] == ["count"]
