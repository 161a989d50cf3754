"""Questions to the disk in the search for compilers and headers, recorded with their answers.

While the disk gives the same answers, the search has the same result, which look-ups depend on
(`kjit.runtime.manifest`). So all code that searches uses these functions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from kjit.runtime import manifest
from kjit.runtime.manifest import Probe

_notes = threading.local()


@contextlib.contextmanager
def noted() -> Iterator[list[Probe]]:
    """The questions of this thread inside the `with`, and their answers."""
    before: list[Probe] | None = getattr(_notes, "taken", None)
    taken: list[Probe] = []
    _notes.taken = taken
    try:
        yield taken
    finally:
        _notes.taken = before
        if before is not None:
            before += taken


def note(*probes: Probe) -> None:
    """Record a question that was asked elsewhere."""
    taken: list[Probe] | None = getattr(_notes, "taken", None)
    if taken is not None:
        taken += probes


def _ask(kind: int, path: Path | str) -> bool:
    name = os.fspath(path)
    yes = manifest.answer(kind, name)
    note((kind, name, yes))
    return yes


def is_file(path: Path | str) -> bool:
    """Whether there is a file."""
    return _ask(manifest.FILE, path)


def is_folder(path: Path | str) -> bool:
    """Whether there is a folder."""
    return _ask(manifest.FOLDER_THERE, path)


def exists(path: Path | str) -> bool:
    """Whether there is a file or a folder."""
    return _ask(manifest.THERE, path)


def status(path: Path | str) -> os.stat_result:
    """The status of a file; of a link, that of its target.

    Raises:
        OSError: it does not exist.
    """
    name = os.fspath(path)
    try:
        found = os.stat(name)
    except OSError:
        note((manifest.THERE, name, False))
        raise
    note((manifest.STAMP, name, found.st_size, found.st_mtime_ns, found.st_ino))
    return found


def names_in(folder: Path | str) -> list[str]:
    """The names in a folder.

    Raises:
        OSError: it is not there, or may not be read.
    """
    name = os.fspath(folder)
    inode, ctime_ns = manifest.inode_and_ctime(name)  # first: a later change of the folder changes the time
    is_young = ctime_ns != manifest.ABSENT and manifest.settled_ctime(ctime_ns) == manifest.YOUNG
    note((manifest.DATED, name, inode, manifest.YOUNG if is_young else ctime_ns))
    return os.listdir(name)


def package_folders(name: str) -> tuple[str, ...]:
    """The folders of a Python package; none if it is not installed."""
    folders = manifest.package_folders(name)
    note((manifest.PACKAGE, name, folders))
    return folders


def which(name: str, path: str | None = None) -> str | None:
    """The program `name` on `path` or PATH, as by `shutil.which`."""
    found = shutil.which(name, path=path)
    if found is not None:
        status(found)  # a link may point to another file later
    if os.path.dirname(name):
        note((manifest.PROGRAM, name, found is not None))
        return found
    for folder in os.get_exec_path() if path is None else path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        note((manifest.PROGRAM, candidate, candidate == found))
        if candidate == found:
            break
    return found
