"""Changes in the headers that a compiler has read.

The headers are known only after the compile, so they are written into the artifact's record and compared on every
look-up: first by one `stat` (size, inode, change time), then by content if that differs. A header that was touched but
not changed is therefore a hit, and its new time is recorded.

The time is `ctime`, which the kernel sets on every write, copy and rename. `mtime` is not enough: in reproducible
images, archives and package stores all files have the same one, and two versions of a header may have the same size. A
`ctime` in whole seconds was set by the tool that made the disk image, not by the kernel; then the content is compared,
once per process.

Four cases need more:

- A header may be edited twice within one tick of the file system's clock. A time less than two seconds old is therefore
  not recorded, and the content is compared until it is older.
- A new file may shadow a header that was read, in a folder that is searched earlier. The times of such folders are
  recorded; if one changed, the files in it are compared with the names that the compiler may have searched for
  (conservatively: a needless compile is better than a wrong hit).
- A file may appear that `__has_include` tested for. Its name is searched for in the same folders. For an `#include` or
  `__has_include` that leaves a folder (`../`), and in `/usr/include`, no folder is watched: all paths that such a name
  can mean are recorded, each with whether the file exists. So are the paths where a linker searches for a library, and
  dangling links.
- A header may change while the compiler runs (observation.py).

Headers that come with a compiler, a toolkit or tvm-ffi (system_headers.py) are not recorded.

Known gaps: a file that inline assembly reads (`.incbin`), which no compiler reports; a file that `__has_include` tests
for by a name that is composed (`#`, `##`); one that a compiler's own header tests for, and that is installed later; a
header that is edited during its first compile on a file server whose clock is slow.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kjit.engine.key.paths import shown
from kjit.runtime.manifest import YOUNG, Reads, absolute, digest_of, inode_and_ctime, settled_ctime, trusted_ctime

# Separates paths in one string; no path contains it. One long string is parsed faster than hundreds of short ones.
SEPARATOR = "//"

# Every compiler that searches `/usr/include` searches this folder before it.
LOCAL_INCLUDE = "/usr/local/include"
# They change often, and have no header of the op: searched last, so nothing in them shadows a header.
PACKAGES_INCLUDE = ("/usr/include", f"/usr/include/{platform.machine()}-linux-gnu")


class Folder(NamedTuple):
    """A watched folder. `ctime_ns` is `YOUNG` while it is too recent to be trusted, and `ABSENT` if there is none."""

    path: str
    inode: int
    ctime_ns: int


def compare(reads: Reads, project: str) -> str | Reads:
    """Compare the files of a compile with the current ones.

    Args:
        project: the folder that messages are relative to.

    Returns: The difference, as a sentence; or, if there is none, the value to record from now on: `reads`, or a copy
        with newer times.

    Raises:
        LookupError, TypeError, ValueError: the record was malformed.
    """
    try:
        if reads.is_as_recorded():
            return reads
    except OSError:
        pass  # the comparison by content says which one is gone
    headers = _compare_headers(reads, project)
    if isinstance(headers, str):
        return headers
    folders = _compare_folders(reads, project)
    if isinstance(folders, str):
        return folders
    for path, is_there in zip(*reads.sought, strict=True):
        if os.path.isfile(absolute(path)) != is_there:
            return f"{shown(path, project)} is {'gone' if is_there else 'new'}, and was searched for"
    if headers is None and folders is None:
        return reads
    document = reads.to_json()
    return Reads({**document, "headers": headers or document["headers"], "folders": folders or document["folders"]})


def _compare_headers(reads: Reads, project: str) -> str | list[list[object]] | None:
    """The difference; or the headers with newer times; or None if no time is newer."""
    renewed: list[list[object]] | None = None
    for number, (path, size, inode, ctime_ns, digest) in enumerate(zip(*reads.headers, strict=True)):
        where = absolute(path)
        try:
            status = os.stat(where)
            if (status.st_ctime_ns, status.st_size, status.st_ino) == (ctime_ns, size, inode):
                continue
            is_same = status.st_size == size and digest_of(where, status) == digest
        except OSError:
            return f"{shown(path, project)} is gone"
        if not is_same:
            return f"{shown(path, project)} changed"
        if trusted_ctime(status.st_ctime_ns) != YOUNG:
            renewed = renewed or [list(column) for column in reads.headers]
            renewed[2][number], renewed[3][number] = status.st_ino, status.st_ctime_ns
    return renewed


def _compare_folders(reads: Reads, project: str) -> str | list[list[object]] | None:
    """The difference; or the folders with newer times; or None if no time is newer."""
    rows = [Folder(*row) for row in zip(*reads.folders, strict=True)]
    if all((row.inode, row.ctime_ns) == inode_and_ctime(absolute(row.path)) for row in rows):
        return None
    folders, present = watch(reads.roots, reads.headers[0], reads.system)
    known = frozenset(reads.present)
    for path in present:
        if path not in known:
            return f"{shown(path, project)} is new and may shadow a header of that name"
    # A recent time would be no better than the recorded one: both mean another comparison.
    is_young = any(folder.ctime_ns == YOUNG for folder in folders)
    return None if is_young or folders == rows else columns(folders, 3)


def columns(rows: Iterable[Sequence[object]], width: int) -> list[list[object]]:
    """A list of each field."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def watch(roots: Iterable[str], headers: Iterable[str], system: str) -> tuple[list[Folder], list[str]]:
    """The folders to watch, and the files in them with the name of a header, or dangling links.

    A name is any suffix of a header's path, because the part that the `#include` contained is unknown.
    """
    names = SEPARATOR.join([system, *(f"/{path}" for path in headers), ""])
    words = frozenset(names.split("/"))  # most files there have none of these names
    folders: dict[str, Folder] = {}
    present: dict[str, None] = {}

    def visit(folder: str, below: str) -> None:
        # The time is read first: a file that appears later changes it.
        where = absolute(folder)
        inode, date = inode_and_ctime(where)
        folders[folder] = Folder(folder, inode, settled_ctime(date))
        for entry in _entries(where):
            header = entry.name.removesuffix(".gch").removesuffix(".pch")  # a precompiled header is preferred
            if header not in words:
                continue
            path = f"{folder}/{entry.name}"
            if not entry.is_dir():
                if f"/{below}{header}{SEPARATOR}" in names:
                    present[path] = None
                is_folder = entry.is_symlink() and not os.path.exists(entry.path)  # which may lead to one
            else:
                is_folder = True
            if is_folder and f"/{below}{entry.name}/" in names:
                visit(path, f"{below}{entry.name}/")

    for root in roots:
        visit(root, "")
    return list(folders.values()), list(present)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []  # no such folder yet: its time tells when it appears
