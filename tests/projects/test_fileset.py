"""kjit.projects.fileset: all files or none, whatever goes wrong in between."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.errors import KjitError, UsageError
from kjit.projects.fileset import FileSet


def snapshot(root: Path) -> dict[str, str | None]:
    """Everything below `root`: the text of each file, None for a folder."""
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def files(tmp_path: Path) -> FileSet:
    """Two new files, one of them in new folders, one that exists, a new folder, and a file that goes."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "old.txt").write_text("before\n")
    files = FileSet(root, removed=[root / "gone.txt"])
    files.add(root / "a" / "b" / "new.py", "x = 1\n")
    files.add(root / "old.txt", "after\n")
    files.add(root / "new.txt", "new\n")
    files.add_folder(root / "empty")
    (root / "gone.txt").write_text("gone\n")
    return files


def fail_at(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, call: int, error: BaseException) -> None:
    """Let the call number `call` of a function raise `error`."""
    original: Callable[..., object] = getattr(owner, name)
    calls: list[int] = []

    def fails(*args: object, **kwargs: object) -> object:
        calls.append(1)
        if len(calls) == call:
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, fails)


def test_all_files_and_folders_are_written(files: FileSet) -> None:
    files.write(force=True)
    assert snapshot(files.root) == {
        "a": None,
        "a/b": None,
        "a/b/new.py": "x = 1\n",
        "empty": None,
        "new.txt": "new\n",
        "old.txt": "after\n",
    }


def test_nothing_is_overwritten_without_force(files: FileSet) -> None:
    before = snapshot(files.root)
    with pytest.raises(UsageError, match=r"old\.txt exists already; nothing was written(.|\n)*--force"):
        files.write()
    assert snapshot(files.root) == before


@pytest.mark.parametrize("call", [1, 3])
@pytest.mark.parametrize("name", ["write_text", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, None])
def test_after_a_failure_or_an_interrupt_while_files_are_prepared_everything_is_as_before(
    files: FileSet, monkeypatch: pytest.MonkeyPatch, name: str, call: int, number: int | None
) -> None:
    before = snapshot(files.root)
    error = KeyboardInterrupt() if number is None else OSError(number, os.strerror(number))
    with monkeypatch.context() as patch:
        fail_at(patch, Path, name, call, error)
        with pytest.raises(KeyboardInterrupt if number is None else KjitError):
            files.write(force=True)
    assert snapshot(files.root) == before


def test_a_file_where_a_folder_is_needed_is_named(files: FileSet) -> None:
    (files.root / "a").write_text("a file\n")
    with pytest.raises(KjitError, match=r"'a/b' cannot be written: (File exists|Not a directory)"):
        files.write(force=True)
    assert "new.txt" not in snapshot(files.root)


def test_a_folder_where_a_file_belongs_is_not_replaced(files: FileSet) -> None:
    (files.root / "new.txt").mkdir()
    with pytest.raises(KjitError, match=r"'new\.txt' cannot be written: Is a directory"):
        files.write(force=True)


@pytest.mark.parametrize("name", ["../x", "a/../b"])
def test_a_path_that_leaves_the_root_is_a_mistake(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        FileSet(tmp_path / "root").add(tmp_path / "root" / name, "")


def test_a_file_that_is_a_link_is_replaced_and_what_it_leads_to_stays(files: FileSet, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (files.root / "new.txt").symlink_to(tmp_path / "precious")
    files.write(force=True)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (files.root / "new.txt").is_symlink()


def test_what_a_link_leads_to_is_edited(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "shared").write_text("before")
    (root / "x.txt").symlink_to(tmp_path / "shared")
    files = FileSet(root)
    files.add(root / "x.txt", "changed", edits=True)
    files.write()
    assert (tmp_path / "shared").read_text() == "changed"


def test_the_tree_marks_what_exists(files: FileSet) -> None:
    assert files.tree() == "root/\n    a/\n        b/\n            new.py\n    new.txt\n    old.txt  (exists)"


def test_the_diff_is_what_patch_would_apply(files: FileSet) -> None:
    assert files.diff() == (
        "--- /dev/null\n+++ b/a/b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
        "--- a/old.txt\n+++ b/old.txt\n@@ -1 +1 @@\n-before\n+after\n"
        "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
    )
