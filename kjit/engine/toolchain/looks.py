"""Questions to the disk by which compilers and headers are found, noted with their answers.

What is found so is as it was found while the disk gives the same answers, which is what a recalled hit has to know
(`kjit.runtime.recall`). So code that looks for something asks through these functions, and in no other way.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from kjit.runtime import recall
from kjit.runtime.recall import Look

_notes = threading.local()


@contextlib.contextmanager
def noted() -> Iterator[list[Look]]:
    """The questions that this thread asks inside, with their answers."""
    before: list[Look] | None = getattr(_notes, "taken", None)
    taken: list[Look] = []
    _notes.taken = taken
    try:
        yield taken
    finally:
        _notes.taken = before
        if before is not None:
            before += taken


def note(*looks: Look) -> None:
    """Note what was asked elsewhere."""
    taken: list[Look] | None = getattr(_notes, "taken", None)
    if taken is not None:
        taken += looks


def _ask(kind: int, path: Path | str) -> bool:
    name = os.fspath(path)
    yes = recall.answer(kind, name)
    note((kind, name, yes))
    return yes


def is_file(path: Path | str) -> bool:
    """Whether there is a file."""
    return _ask(recall.FILE, path)


def is_folder(path: Path | str) -> bool:
    """Whether there is a folder."""
    return _ask(recall.FOLDER_THERE, path)


def exists(path: Path | str) -> bool:
    """Whether there is a file or a folder."""
    return _ask(recall.THERE, path)


def status(path: Path | str) -> os.stat_result:
    """The status of a file (of the file behind a link).

    Raises:
        OSError: it is not there.
    """
    name = os.fspath(path)
    try:
        found = os.stat(name)
    except OSError:
        note((recall.THERE, name, False))
        raise
    note((recall.STAMP, name, found.st_size, found.st_mtime_ns, found.st_ino))
    return found


def names_in(folder: Path | str) -> list[str]:
    """The names in a folder.

    Raises:
        OSError: it is not there, or may not be read.
    """
    name = os.fspath(folder)
    inode, ctime_ns = recall.dated(name)  # first: what appears after it changes the date
    is_young = ctime_ns != recall.ABSENT and recall.aged(ctime_ns) == recall.YOUNG
    note((recall.DATED, name, inode, recall.YOUNG if is_young else ctime_ns))
    return os.listdir(name)


def package_folders(name: str) -> tuple[str, ...]:
    """Where the parts of a Python package are; nothing where there is none."""
    folders = recall.package_folders(name)
    note((recall.PACKAGE, name, folders))
    return folders


def which(name: str, path: str | None = None) -> str | None:
    """As `shutil.which`: the program `name`, on `path` or PATH."""
    found = shutil.which(name, path=path)
    if found is not None:
        status(found)  # where it is a link, another file may be behind it tomorrow
    if os.path.dirname(name):
        note((recall.PROGRAM, name, found is not None))
        return found
    for folder in os.get_exec_path() if path is None else path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        note((recall.PROGRAM, candidate, candidate == found))
        if candidate == found:
            break
    return found
