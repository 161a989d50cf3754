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
- A file may appear that `__has_include` tested for. Its name is searched for in the same folders; if the name is not
  literally in the text, any new file in them is a miss. For an `#include` or `__has_include` that leaves a folder
  (`../`), and in `/usr/include`, no folder is watched: all paths that such a name can mean are recorded, each with
  whether the file exists. So are the paths where a linker searches for a library, and dangling links.
- A header may change while the compiler runs (observation.py).

A path is recorded as the compiler wrote it, starting from the including file: `/home/me/app/csrc/../../inc/a.h` is
`csrc/../../inc/a.h` of its project, so that a second copy of the whole tree compares its own `inc/a.h`. Other paths are
recorded unchanged.

Headers that come with a compiler, a toolkit or tvm-ffi (system_headers.py) are not recorded.

Known gaps: a file that inline assembly reads (`.incbin`), which no compiler reports, if its absolute path is not
literally in the text; a header that is edited during its first compile on a file server whose clock is slow.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from kjit.engine.key.anchors import Anchors
from kjit.engine.key.key import FileState, digest_of
from kjit.runtime import LAYOUT, SOURCE_TEXTS
from kjit.runtime.recall import YOUNG as YOUNG
from kjit.runtime.recall import aged, dated
from kjit.runtime.recall import telling as telling

# Separates paths in one string; no path contains it. One long string is parsed faster than hundreds of short ones.
SEPARATOR = "//"

# Every compiler that searches `/usr/include` searches this folder before it.
LOCAL_INCLUDE = "/usr/local/include"
# They change often, and have no header of the op: searched last, so nothing in them shadows a header.
PACKAGES_INCLUDE = ("/usr/include", f"/usr/include/{platform.machine()}-linux-gnu")


class Header(NamedTuple):
    """A header that was read. `ctime_ns` is 0 if it cannot be trusted: too recent, or in whole seconds."""

    anchor: str
    path: str
    size: int
    inode: int
    ctime_ns: int
    digest: str


class Folder(NamedTuple):
    """A watched folder. `ctime_ns` is 0 while it is too recent to be trusted, and -1 if there is no folder."""

    anchor: str
    path: str
    inode: int
    ctime_ns: int


class Sought(NamedTuple):
    """A path at which a compiler or linker looks for a file, and whether there was one."""

    anchor: str
    path: str
    is_there: bool


# Paths of headers, with size, inode and time; of folders, with inode and time; of files that exist, and of those that
# do not. A missing path is "".
_Located = tuple[list[tuple[str, int, int, int]], list[tuple[str, int, int]], list[tuple[str, bool]]]


@dataclass(frozen=True)
class Reads:
    """The files that a compile read in addition to the direct sources.

    Attributes:
        headers: compared on every look-up.
        system: the names of the headers that are not compared, and those tested by `__has_include`; each after a `/`,
            joined by `//`.
        roots: `(anchor, path)` of the folders that the compiler searches before those of system headers.
        folders: the roots, and the folders in them where a new file could shadow a header.
        present: `(anchor, path)` of the files in them with the name of a header: those that were read, and those found
            later in the search.
        sought: paths outside of these folders.
        every_file: whether any new file in the folders may have been searched for.
    """

    headers: tuple[Header, ...]
    system: str
    roots: tuple[tuple[str, str], ...]
    folders: tuple[Folder, ...]
    present: tuple[tuple[str, str], ...]
    sought: tuple[Sought, ...]
    every_file: bool = False

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Reads:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of its.
        """
        system = document["system"]
        if not isinstance(system, str):
            raise TypeError("a record's system headers are one string")
        if not isinstance(every_file := document["every_file"], bool):
            raise TypeError("a record's every_file is true or false")
        return cls(
            tuple(Header._make(row) for row in _rows(document["headers"])),
            system,
            tuple((anchor, path) for anchor, path in _rows(document["roots"])),
            tuple(Folder._make(row) for row in _rows(document["folders"])),
            tuple((anchor, path) for anchor, path in _rows(document["present"])),
            tuple(Sought._make(row) for row in _rows(document["sought"])),
            every_file,
        )

    def to_json(self) -> dict[str, object]:
        return {
            "headers": [list(row) for row in self.headers],
            "system": self.system,
            "roots": [list(row) for row in self.roots],
            "folders": [list(row) for row in self.folders],
            "present": [list(row) for row in self.present],
            "sought": [list(row) for row in self.sought],
            "every_file": self.every_file,
        }

    @property
    def key2(self) -> str:
        """The second half of an artifact's key: a hash of its headers and their contents."""
        headers = [[header.anchor, header.path, header.digest] for header in self.headers]
        return digest_of(headers)

    def compare(self, anchors: Anchors) -> str | Reads:
        """Compare with the current files.

        Returns: The difference, as a sentence; or, if there is none, the value to record from now on: `self`, or a copy
            with newer times.

        Raises:
            TypeError, ValueError: the record was malformed.
        """
        if self._is_as_recorded(anchors):
            return self
        headers = self._compare_headers(anchors)
        if isinstance(headers, str):
            return headers
        watched = self._compare_folders(anchors)
        if isinstance(watched, str):
            return watched
        for anchor, path, is_there in self.sought:
            if os.path.isfile(anchors.absolute(anchor, path) or "") != is_there:
                return f"{_named(anchors, anchor, path)} is {'gone' if is_there else 'new'}, and was searched for"
        if headers is self.headers and watched is self.folders:
            return self
        return replace(self, headers=headers, folders=watched)

    def _is_as_recorded(self, anchors: Anchors) -> bool:
        """Whether everything is unchanged by `stat` alone: then no content is compared.

        Most loads stop here, so the absolute paths (which do not change) are computed once.
        """
        headers, folders, sought = self._places.get(anchors) or self._places.setdefault(anchors, self._locate(anchors))
        stat = os.stat
        try:
            for where, size, inode, ctime_ns in headers:
                status = stat(where)
                if status.st_ctime_ns != ctime_ns or status.st_size != size or status.st_ino != inode:
                    return False
            for where, inode, ctime_ns in folders:
                if (inode, ctime_ns) != dated(where):
                    return False
        except OSError:
            return False
        return all(os.path.isfile(where) == is_there for where, is_there in sought)

    @cached_property
    def _places(self) -> dict[Anchors, _Located]:
        return {}

    def _locate(self, anchors: Anchors) -> _Located:
        headers = []
        for anchor, path, size, inode, ctime_ns, _ in self.headers:
            headers.append((anchors.absolute(anchor, path) or "", size, inode, ctime_ns))
        folders = []
        for anchor, path, inode, ctime_ns in self.folders:
            folders.append((anchors.absolute(anchor, path) or "", inode, ctime_ns))
        sought = [(anchors.absolute(anchor, path) or "", is_there) for anchor, path, is_there in self.sought]
        return headers, folders, sought

    def _compare_headers(self, anchors: Anchors) -> str | tuple[Header, ...]:
        renewed: list[Header] | None = None
        for index, header in enumerate(self.headers):
            anchor, path, size, inode, ctime_ns, digest = header
            where = anchors.absolute(anchor, path)
            if where is None:
                return f"{_named(anchors, anchor, path)} is not part of this module's folders"
            try:
                status = os.stat(where)
                if status.st_ctime_ns == ctime_ns and status.st_size == size and status.st_ino == inode:
                    continue
                state = read_state(where, status) if status.st_size == size else None
            except OSError:
                return f"{_named(anchors, anchor, path)} is gone"
            if state is None or state.digest != digest:
                return f"{_named(anchors, anchor, path)} changed"
            if telling(state.ctime_ns) != YOUNG:
                renewed = renewed or list(self.headers)
                renewed[index] = Header(anchor, path, size, state.inode, state.ctime_ns, digest)
        return self.headers if renewed is None else tuple(renewed)

    def _compare_folders(self, anchors: Anchors) -> str | tuple[Folder, ...]:
        _, recorded, _ = self._locate(anchors)
        if all((inode, date) == dated(where) for where, inode, date in recorded):
            return self.folders
        folders, present = watch(self.roots, self.headers, self.system, anchors, every_file=self.every_file)
        known = frozenset(self.present)
        for anchor, path in present:
            if (anchor, path) not in known:
                may = "be one that was searched for" if self.every_file else "shadow a header of that name"
                return f"{_named(anchors, anchor, path)} is new and may {may}"
        # A recent time would be no better than the recorded one: both mean another comparison.
        is_young = any(folder.ctime_ns == YOUNG for folder in folders)
        return self.folders if is_young or folders == self.folders else folders


def watch(
    roots: Iterable[tuple[str, str]], headers: Iterable[Header], system: str, anchors: Anchors, *, every_file: bool
) -> tuple[tuple[Folder, ...], tuple[tuple[str, str], ...]]:
    """The folders to watch, and the files in them with the name of a header.

    A name is any suffix of a header's path, because the part that the `#include` contained is unknown. A dangling link
    counts as a file, and as a folder if a folder has that name.

    Args:
        every_file: all files count, whatever their names, except those of caches and builds; in folders of installed
            packages, folders too.
    """
    names = SEPARATOR.join([system, *(f"/{header.path}" for header in headers), ""])
    words = frozenset(names.split("/"))  # most files there have none of these names
    folders: dict[tuple[str, str], Folder] = {}
    present: dict[tuple[str, str], None] = {}
    inside: set[int] = set()

    def visit(anchor: str, folder: str, below: str) -> None:
        # The time is read first: a file that appears later changes it.
        where = anchors.absolute(anchor, folder) or ""
        inode, date = dated(where)
        folders[anchor, folder] = Folder(anchor, folder, inode, aged(date))
        is_shared = every_file and where in (LOCAL_INCLUDE, *PACKAGES_INCLUDE)
        for entry in _entries(where):
            name = f"{below}{entry.name}"
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder, is_link = entry.is_dir(), entry.is_symlink()
            header = name.removesuffix(".gch").removesuffix(".pch")  # a precompiled header is preferred
            is_called_so = entry.name in words or os.path.basename(header) in words
            if is_shared or (not is_folder and (every_file or (is_called_so and f"/{header}{SEPARATOR}" in names))):
                present[anchor, path] = None
            may_be_folder = is_folder or (is_link and not os.path.exists(entry.path))
            if not may_be_folder or is_shared:
                continue
            if is_called_so and f"/{name}/" in names:
                visit(anchor, path, f"{name}/")
            elif every_file and not _is_of_builds(where, entry.name) and (number := entry.inode()) not in inside:
                inside.add(number)  # a link may lead to a folder around it
                visit(anchor, path, f"{name}/")

    for anchor, root in roots:
        visit(anchor, root, "")
    return tuple(folders.values()), tuple(present)


def _is_of_builds(folder: str, name: str) -> bool:
    """Whether a folder is hidden, part of a cache, or for temporary files of builds (staging.py)."""
    if name in (LAYOUT, SOURCE_TEXTS):
        return os.path.isdir(f"{folder}/{LAYOUT}/locks")
    return name.startswith((".", f"kjit-{os.geteuid()}", f"kjit-units-{os.geteuid()}"))


def read_state(path: str, status: os.stat_result) -> FileState:
    """The file's state, read once per process while its `status` stays the same.

    Raises:
        OSError: it cannot be read.
    """
    if aged(status.st_ctime_ns) == YOUNG:
        return FileState.read(path)
    return _read_once(path, status.st_size, status.st_ino, status.st_ctime_ns)


@lru_cache(maxsize=4096)
def _read_once(path: str, *_as_it_was: int) -> FileState:
    return FileState.read(path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []  # no such folder yet: `dated` notices when it appears


def _named(anchors: Anchors, anchor: str, path: str) -> str:
    """A file as users name it: relative to the project."""
    normal = os.path.normpath(path)
    folders = [os.path.dirname(anchors.absolute(anchor, each) or "") for each in (path, normal)]
    if normal != path and os.path.realpath(folders[0]) == os.path.realpath(folders[1]):
        path = normal  # there is no link in the path
    return path if anchor in ("", "project") else f"{{{anchor}}}/{path}"


def _rows(value: object) -> list[list[Any]]:
    # The rows are not validated: every load runs this, and `compare` raises on garbage.
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
