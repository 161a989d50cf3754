"""Are the headers that the compiler read still the ones that are there?

What a compile read is known only after it, so it is written into the artifact's record and compared on every lookup:
first by what one `stat` tells (size, inode, date of change), and by content where that differs. A header that was
touched and not changed is therefore a hit, and the record learns its new date.

The date is the kernel's own (`ctime`), which every write, copy and rename sets to now. The date that `ls` shows says
too little: in reproducible images, archives and package stores all files bear the same one, and two versions of a
header that differ in a digit have the same size. A date in whole seconds is not the kernel's but of whoever made the
disk's image; there the content is compared, once in a process.

Four cases need more than that:

- A header may be edited twice within one tick of the file system's clock. A date that is younger than two seconds is
  therefore not recorded, and the content is compared until it has aged.
- A new file may come before a header that was read, in a folder that the compiler searches earlier. So the folders
  where that can happen are watched by their date; when one changed, the files in it are compared with the names that
  the compiler may have looked for (in the widest reading: a needless compile is better than a wrong hit).
- A file may appear that was asked for by `__has_include`. Those names are looked for in the same folders. Where an
  `#include` or `__has_include` climbs out of a folder (`../`), or where `/usr/include` is searched, no folder is
  watched: the places that such a name can mean are recorded, and whether there is a file. So are those where a linker
  looks for a library.
- A header may change while the compiler runs, or the folder that it is in may be exchanged for another. That is what
  `Observation.changed_since` finds.

Not recorded are the headers that come with a compiler, a toolkit or tvm-ffi (system_headers.py).

Known gaps: a file that inline assembly reads (`.incbin`), which no compiler reports; a file server whose clock is
behind ours, and a header on it that is edited during its first compile.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from kjit.build.include_names import names_in
from kjit.build.key import Anchors, FileState, Key, digest_of
from kjit.build.system_headers import SystemFolders, searched_folders
from kjit.build.toolchain import Toolchain, kjit_include

_SETTLING_NS = 2_000_000_000
_CLOCK_STEP_NS = 10_000_000
_TICK_S = 0.0005
_PATIENCE_NS = 100_000_000  # several ticks: it takes longer only when the clock was set back meanwhile
_CLOCK_REALTIME_COARSE = 5  # of Linux; Python has no name for it
_YOUNG = 0
_ABSENT = -1
_GONE = -1
# Between paths in one string; no path has it inside. One long string is read faster than hundreds of short ones.
_SEPARATOR = "//"

# Searched before `/usr/include` by every compiler that searches that.
_LOCAL_INCLUDE = "/usr/local/include"
# Where most is added, and no header of the op's own is: searched last, so that nothing in it comes before a header.
_PACKAGES_INCLUDE = ("/usr/include", f"/usr/include/{platform.machine()}-linux-gnu")


class Header(NamedTuple):
    """A header that was read. `ctime_ns` is 0 where its date cannot be trusted: too young, or in whole seconds."""

    anchor: str
    path: str
    size: int
    inode: int
    ctime_ns: int
    digest: str


class Folder(NamedTuple):
    """A watched folder. `ctime_ns` is 0 while its date is too young to be trusted, and -1 where there is no folder."""

    anchor: str
    path: str
    inode: int
    ctime_ns: int


class Sought(NamedTuple):
    """A place at which a compiler or linker looks for a file, and whether there was one."""

    anchor: str
    path: str
    is_there: bool


# Where headers are, with size, inode and date; where folders are, with inode and date; which files are there and which
# not. What has no place is "".
_Located = tuple[list[tuple[str, int, int, int]], list[tuple[str, int, int]], list[tuple[str, bool]]]


@dataclass(frozen=True)
class Reads:
    """What a compile read besides the direct sources.

    Attributes:
        headers: compared on every lookup.
        system: the names of the headers that are not compared, and those that `__has_include` asks for; each after a
            `/`, joined by `//`.
        roots: `(anchor, path)` of the folders that the compiler searches before those of system headers.
        folders: the roots and the folders in them where a new file could come before a header.
        present: `(anchor, path)` of the files there that are called like a header. Some were read, some come later.
        sought: places outside of those folders.
    """

    headers: tuple[Header, ...]
    system: str
    roots: tuple[tuple[str, str], ...]
    folders: tuple[Folder, ...]
    present: tuple[tuple[str, str], ...]
    sought: tuple[Sought, ...]

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Reads:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it did not write this.
        """
        system = document["system"]
        if not isinstance(system, str):
            raise TypeError("a record's system headers are one string")
        return cls(
            tuple(Header._make(row) for row in _rows(document["headers"])),
            system,
            tuple((anchor, path) for anchor, path in _rows(document["roots"])),
            tuple(Folder._make(row) for row in _rows(document["folders"])),
            tuple((anchor, path) for anchor, path in _rows(document["present"])),
            tuple(Sought._make(row) for row in _rows(document["sought"])),
        )

    def to_json(self) -> dict[str, object]:
        return {
            "headers": [list(row) for row in self.headers],
            "system": self.system,
            "roots": [list(row) for row in self.roots],
            "folders": [list(row) for row in self.folders],
            "present": [list(row) for row in self.present],
            "sought": [list(row) for row in self.sought],
        }

    @property
    def key2(self) -> str:
        """The second half of an artifact's key: which headers, with which content."""
        return digest_of([[header.anchor, header.path, header.digest] for header in self.headers])

    def compare(self, anchors: Anchors) -> str | Reads:
        """Compare with what is there now.

        Returns:
            A sentence that says what differs; or, when nothing does, what to record from now on: `self`, or a copy
            with newer dates.

        Raises:
            TypeError, ValueError: this was read from a record that holds something else.
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
                return f"{_written(anchor, path)} is {'gone' if is_there else 'new'}, and was looked for"
        if headers is self.headers and watched is self.folders:
            return self
        return replace(self, headers=headers, folders=watched)

    def _is_as_recorded(self, anchors: Anchors) -> bool:
        """Whether all is as it was by what one `stat` tells: then there is nothing else to look at.

        Most loads ask no more than this, so where each file is (which does not change) is worked out once.
        """
        headers, folders, sought = self._places.get(anchors) or self._places.setdefault(anchors, self._locate(anchors))
        stat = os.stat
        try:
            for where, size, inode, ctime_ns in headers:
                status = stat(where)
                if status.st_ctime_ns != ctime_ns or status.st_size != size or status.st_ino != inode:
                    return False
            for where, inode, ctime_ns in folders:
                if (inode, ctime_ns) != _dated(where):
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
                return f"{_written(anchor, path)} is not part of this module's folders"
            try:
                status = os.stat(where)
                if status.st_ctime_ns == ctime_ns and status.st_size == size and status.st_ino == inode:
                    continue
                state = read_state(where, status) if status.st_size == size else None
            except OSError:
                return f"{_written(anchor, path)} is gone"
            if state is None or state.digest != digest:
                return f"{_written(anchor, path)} changed"
            if _telling(state.ctime_ns) != _YOUNG:
                renewed = renewed or list(self.headers)
                renewed[index] = Header(anchor, path, size, state.inode, state.ctime_ns, digest)
        return self.headers if renewed is None else tuple(renewed)

    def _compare_folders(self, anchors: Anchors) -> str | tuple[Folder, ...]:
        _, recorded, _ = self._locate(anchors)
        if all((inode, date) == _dated(where) for where, inode, date in recorded):
            return self.folders
        folders, present = _watch(self.roots, self.headers, self.system, anchors)
        known = frozenset(self.present)
        for anchor, path in present:
            if (anchor, path) not in known:
                return f"{_written(anchor, path)} is new and may come before a header of that name"
        # A young date would be no better than the one that is recorded: both mean to look again.
        is_young = any(folder.ctime_ns == _YOUNG for folder in folders)
        return self.folders if is_young or folders == self.folders else folders


@dataclass(frozen=True)
class Observation:
    """The files that a compile read, as they are right after it.

    Attributes:
        reads: for the record.
        states: sources, recorded headers, and files that a header of the same name could have been taken for.
    """

    reads: Reads
    states: Mapping[str, FileState]

    @classmethod
    def of(
        cls,
        files: Iterable[str],
        key: Key,
        toolchain: Toolchain,
        *,
        others: Iterable[str] = (),
        sought: Iterable[str] = (),
    ) -> Observation:
        """Look at the files that the compiler says it read.

        Args:
            others: what was read besides, and is compared wherever it is.
            sought: where the linker looks for libraries.
        """
        spec = key.variant.spec
        system_folders = SystemFolders.of(key, toolchain)
        sources = {state.path: _state(state.path) for state in key.sources}
        headers: dict[str, FileState] = {}
        system: dict[str, None] = {}
        for path in files:
            if path in sources:
                continue
            if system_folders.have(path):
                system[system_folders.name_of(path)] = None
            else:
                headers[path] = _state(path)
        asked, climbing = names_in((*sources, *headers), (*spec.extra_cflags, *spec.extra_cuda_cflags))
        headers.update((path, _state(path)) for path in others)
        anchors = key.anchors
        recorded = tuple(
            Header(*anchors.relative(state.path), state.size, state.inode, _telling(state.ctime_ns), state.digest)
            for state in headers.values()
        )
        named = [*spec.extra_include_paths, str(kjit_include()), _LOCAL_INCLUDE, *searched_folders(toolchain, spec)]
        system.update((f"/{name}", None) for name in asked)
        places = [
            *sought,
            *(f"{folder}/{name}" for name in asked for folder in _PACKAGES_INCLUDE),
            *(os.path.normpath(f"{each}/{name}") for folder, name in climbing for each in (folder, *named)),
        ]
        looked_at = {path: os.path.isfile(path) for path in places}
        searched = {*named, *(os.path.dirname(path) for path in (*sources, *headers))}
        roots = tuple(anchors.relative(path) for path in sorted(searched))
        names = _SEPARATOR.join(system)
        folders, present = _watch(roots, recorded, names, anchors)
        states = {**sources, **headers}
        for anchor, path in present:
            where = anchors.absolute(anchor, path)
            if where is not None and where not in states:
                states[where] = _state(where)
        for where, is_there in looked_at.items():
            if is_there and where not in states:
                states[where] = _undigested(where)
        at = tuple(Sought(*anchors.relative(path), is_there) for path, is_there in looked_at.items())
        return cls(Reads(recorded, names, roots, folders, present, at), states)

    def changed_since(self, start_ns: int, before: Mapping[str, FileState]) -> list[str]:
        """The files that may have changed while the compiler ran.

        Args:
            start_ns: when it started, by `Start`.
            before: states from before the start, where they are known. They decide, so that a file server whose clock
                is ahead of ours does not make every file look new.
        """
        changed = []
        moved: dict[str, bool] = {}
        for path, state in self.states.items():
            known = before.get(path)
            if state.size == _GONE:  # and never recorded: it would be a miss each time
                changed.append(path)
            elif known is None:
                if state.ctime_ns >= start_ns or _has_moved(path, start_ns, moved):
                    changed.append(path)
            elif (known.ctime_ns, known.digest) != (state.ctime_ns, state.digest):
                changed.append(path)
        return changed


@dataclass(frozen=True)
class Start:
    """When a compile starts: by the clock of files, by the clock on the wall, and by one that is never set."""

    file_ns: int
    wall_ns: int
    steady_ns: int

    @classmethod
    def now(cls) -> Start:
        """Wait some milliseconds, until every file that was written before has an older date than one written after.

        Since Linux 6.13 a file may bear the exact time at which it changed, which lies ahead of the clock that other
        files are dated by: that clock has to come past the exact time of now.
        """
        called_ns, patience_ns = time.time_ns(), time.monotonic_ns() + _PATIENCE_NS
        while (file_ns := now_ns()) <= called_ns and time.monotonic_ns() < patience_ns:
            time.sleep(_TICK_S)
        return cls(file_ns, time.time_ns(), time.monotonic_ns())

    def earliest_ns(self) -> int:
        """The earliest date that a file can bear which was written since, though the clock was set back meanwhile."""
        set_by = (time.time_ns() - self.wall_ns) - (time.monotonic_ns() - self.steady_ns)
        return self.file_ns + (set_by if set_by < -_CLOCK_STEP_NS else 0)


def now_ns() -> int:
    """The time as the kernel writes it into a file that changes now: on Linux by the tick, some milliseconds late."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) if sys.platform == "linux" else time.time_ns()


def _watch(
    roots: Iterable[tuple[str, str]], headers: Iterable[Header], system: str, anchors: Anchors
) -> tuple[tuple[Folder, ...], tuple[tuple[str, str], ...]]:
    """The folders to watch, and the files in them that are called like a header.

    A name is any end of a header's path, because which part of it stood in the `#include` is not known.
    """
    names = _SEPARATOR.join([system, *(f"/{header.path}" for header in headers), ""])
    folders: dict[tuple[str, str], Folder] = {}
    present: dict[tuple[str, str], None] = {}

    def visit(anchor: str, folder: str, below: str) -> None:
        # The date comes first: what appears after it changes it.
        where = anchors.absolute(anchor, folder) or ""
        inode, date = _dated(where)
        folders[anchor, folder] = Folder(anchor, folder, inode, _aged(date))
        for entry in _entries(where):
            name = f"{below}{entry.name}"
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir():
                if f"/{name}/" in names:
                    visit(anchor, path, f"{name}/")
            elif f"/{name}{_SEPARATOR}" in names:
                present[anchor, path] = None

    for anchor, root in roots:
        visit(anchor, root, "")
    return tuple(folders.values()), tuple(present)


def _state(path: str) -> FileState:
    try:
        return FileState.read(path)
    except OSError:
        return FileState(path, _GONE, _YOUNG, _YOUNG, "")


def read_state(path: str, status: os.stat_result) -> FileState:
    """The file's state, read no more than once in a process as long as it stays as `status` says.

    Raises:
        OSError: it cannot be read.
    """
    if _aged(status.st_ctime_ns) == _YOUNG:
        return FileState.read(path)
    return _read_once(path, status.st_size, status.st_ino, status.st_ctime_ns)


@lru_cache(maxsize=4096)
def _read_once(path: str, *_as_it_was: int) -> FileState:
    return FileState.read(path)


def _undigested(path: str) -> FileState:
    """The file's state without its content: a library may have a gigabyte."""
    try:
        status = os.stat(path)
    except OSError:
        return FileState(path, _GONE, _YOUNG, _YOUNG, "")
    return FileState(path, status.st_size, status.st_ino, status.st_ctime_ns, "")


def _has_moved(path: str, start_ns: int, known: dict[str, bool]) -> bool:
    """Whether a folder above `path`, or a link on the way to it, may have been put there since `start_ns`.

    Then the file, which is as old as it was, may not be the one that the compiler read.
    """
    folder = os.path.dirname(path)
    if folder not in known:
        known[folder] = any(_was_put(way, start_ns) for way in {folder, os.path.realpath(folder)})
    return known[folder]


def _was_put(folder: str, start_ns: int) -> bool:
    while True:
        try:
            status = os.lstat(folder)
        except OSError:
            return True
        # What appears in a folder changes both of its dates, a new name for it only the kernel's.
        if status.st_ctime_ns >= start_ns and (stat.S_ISLNK(status.st_mode) or status.st_mtime_ns < start_ns):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []  # no folder, nothing in it: `_dated` tells when that changes


def _dated(folder: str) -> tuple[int, int]:
    """A folder's inode and date."""
    try:
        status = os.stat(folder)
    except OSError:
        return 0, _ABSENT
    return status.st_ino, status.st_ctime_ns


def _aged(ctime_ns: int) -> int:
    return ctime_ns if ctime_ns < time.time_ns() - _SETTLING_NS else _YOUNG


def _telling(ctime_ns: int) -> int:
    """The date of a header, where it tells one version of the header from another."""
    return _aged(ctime_ns) if ctime_ns % 1_000_000_000 else _YOUNG


def _written(anchor: str, path: str) -> str:
    # Relative to the project is how people name their files.
    return path if anchor in ("", "project") else f"{{{anchor}}}/{path}"


def _rows(value: object) -> list[list[Any]]:
    # What is in the rows is not looked at: this is on the path of every load, and `compare` stumbles over garbage.
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
