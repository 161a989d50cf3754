"""The files that a compile read, and whether one of them changed during the compile.

The files that the compiler lists are read right after it, for the record (headers.py); so are other files, existing or
not, that could have been read instead. A header that was written while the compiler ran, or whose folder was replaced,
is found by times (`Observation.changed_since`).
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kjit.engine.key.headers import LOCAL_INCLUDE, PACKAGES_INCLUDE, SEPARATOR, columns, watch
from kjit.engine.key.include_names import definitions_in, names_in
from kjit.engine.key.key import Key
from kjit.engine.key.paths import collapse_slashes
from kjit.engine.key.system_headers import SystemFolders, searched_folders
from kjit.engine.toolchain.locations import kjit_include
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime.manifest import YOUNG, FileState, Reads, absolute, trusted_ctime, written

_CLOCK_STEP_NS = 10_000_000
_TICK_S = 0.0005
_PATIENCE_NS = 100_000_000  # several ticks: it takes longer only if the clock was set back
_CLOCK_REALTIME_COARSE = 5  # Linux; Python has no name for it
_GONE = -1


@dataclass(frozen=True)
class Observation:
    """The files that a compile read, in their states right after it.

    Attributes:
        reads: for the record.
        states: sources, recorded headers, and files that could have been read in place of a header.
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
        """Read the states of the files that the compiler lists.

        Args:
            others: further files that were read, compared wherever they are.
            sought: the paths where the linker looks for libraries.
        """
        spec = key.variant.spec
        sources = {state.path: _state(state.path) for state in key.sources}
        headers, system = _by_owner(files, key, toolchain)
        own = [*sources, *(path for path in headers if not _is_of_packages(path))]
        texts = {path: _text(path) for path in own if path in sources or written(path) == path}
        flags = b"".join(definitions_in(words, dialect) for words, dialect in toolchain.given(spec))
        names = names_in(texts, flags)

        named = [*spec.extra_include_paths, str(kjit_include()), LOCAL_INCLUDE, *searched_folders(toolchain, spec)]
        headers |= {path: _state(path) for path in others}
        roots = [written(path) for path in sorted({*named, *map(os.path.dirname, own)})]
        looked_for = SEPARATOR.join(dict.fromkeys((*system, *(f"/{name}" for name in names.tested))))
        folders, present = watch(roots, map(written, headers), looked_for)

        places = [
            *sought,
            *(f"{folder}/{name}" for folder in PACKAGES_INCLUDE for name in names.tested),
            *(collapse_slashes(f"{each}/{name}") for folder, name in names.climbing for each in (folder, *named)),
        ]
        looked_at = {path: os.path.isfile(path) for path in places}
        states = {**sources, **headers}
        for where in (*map(absolute, present), *looked_at):
            if not os.path.exists(where):
                looked_at[where] = False  # a name, or a dangling link
            elif where not in states:
                states[where] = _undigested(where)
        meant = (collapse_slashes(f"{each}/{name}") for folder, name in names.named for each in (folder, *named))
        twins = _twins(headers, (*states, *dict.fromkeys(meant)))
        rows = [
            (written(state.path), state.size, state.inode, trusted_ctime(state.ctime_ns), state.digest)
            for state in (*headers.values(), *twins.values())
        ]
        reads = Reads(
            {
                "headers": columns(rows, 5),
                "system": looked_for,
                "roots": roots,
                "folders": columns(folders, 3),
                "present": present,
                "sought": columns([(written(path), is_there) for path, is_there in looked_at.items()], 2),
            }
        )
        return cls(reads, states | twins)

    def changed_since(self, start_ns: int, before: Mapping[str, FileState]) -> list[str]:
        """The files that may have changed while the compiler ran.

        Args:
            start_ns: its start, from `Start`.
            before: known states from before the start. They take precedence, so that on a file server whose clock is
                fast, not every file counts as new.
        """
        changed = []
        moved: dict[str, bool] = {}
        for path, state in self.states.items():
            known = before.get(path)
            if state.size == _GONE:  # never recorded: it would be a miss each time
                changed.append(path)
            elif known is None:
                if state.ctime_ns >= start_ns or _has_moved(path, start_ns, moved):
                    changed.append(path)
            elif (known.ctime_ns, known.digest) != (state.ctime_ns, state.digest):
                changed.append(path)
        return changed


def _by_owner(files: Iterable[str], key: Key, toolchain: Toolchain) -> tuple[dict[str, FileState], list[str]]:
    """The headers in a compiler's list that are compared, and the names of those that come with a compiler, a toolkit
    or tvm-ffi, each after a `/`."""
    folders = SystemFolders.of(key, toolchain)
    sources = {state.path for state in key.sources}
    headers: dict[str, FileState] = {}
    system: list[str] = []
    for path in files:
        real = f"{_real_folder(os.path.dirname(path))}/{os.path.basename(path)}"
        if folders.have(real):
            system.append(folders.name_of(real))
        elif path not in sources:
            headers[path] = _state(path)
    return headers, system


@lru_cache(maxsize=1024)
def _real_folder(folder: str) -> str:
    """A folder in a compiler's list, without `..` and links."""
    return os.path.realpath(folder)


@dataclass(frozen=True)
class Start:
    """The start of a compile: by the clock of files, by the wall clock, and by the monotonic clock."""

    file_ns: int
    wall_ns: int
    steady_ns: int

    @classmethod
    def now(cls) -> Start:
        """Wait some milliseconds, until every file written before is older than any file written after.

        Since Linux 6.13 a file may have the exact time of its change, which is later than the coarse clock of other
        files: the coarse clock has to pass the exact current time.
        """
        called_ns, patience_ns = time.time_ns(), time.monotonic_ns() + _PATIENCE_NS
        while (file_ns := now_ns()) <= called_ns and time.monotonic_ns() < patience_ns:
            time.sleep(_TICK_S)
        return cls(file_ns, time.time_ns(), time.monotonic_ns())

    def earliest_ns(self) -> int:
        """The earliest time that a file written since the start can have, even if the clock was set back."""
        set_by = (time.time_ns() - self.wall_ns) - (time.monotonic_ns() - self.steady_ns)
        return self.file_ns + (set_by if set_by < -_CLOCK_STEP_NS else 0)


def now_ns() -> int:
    """The time that the kernel gives to a file that changes now: on Linux that of the last tick, up to some
    milliseconds ago."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) if sys.platform == "linux" else time.time_ns()


def _twins(headers: Mapping[str, FileState], candidates: Iterable[str]) -> dict[str, FileState]:
    """The `candidates` equal to one of `headers`: GCC reads a file that equals one with `#pragma once`, and does not
    list it."""
    sizes = {state.size for state in headers.values()}
    contents = {(state.size, state.digest) for state in headers.values()}
    twins: dict[str, FileState] = {}
    for path in candidates:
        if path not in headers and path not in twins and _undigested(path).size in sizes:
            state = _state(path)
            if (state.size, state.digest) in contents:
                twins[path] = state
    return twins


def _is_of_packages(path: str) -> bool:
    """Whether a header is installed in a folder that all compilers search last."""
    return path.startswith(f"{PACKAGES_INCLUDE[0]}/")


def _text(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # the comparison notices that


def _state(path: str) -> FileState:
    try:
        return FileState.read(path)
    except OSError:
        return _undigested(path)


def _undigested(path: str) -> FileState:
    """The file's state without its content: a library may be a gigabyte."""
    try:
        status = os.stat(path)
    except OSError:
        return FileState(path, _GONE, YOUNG, YOUNG, "")
    return FileState(path, status.st_size, status.st_ino, status.st_ctime_ns, "")


def _has_moved(path: str, start_ns: int, known: dict[str, bool]) -> bool:
    """Whether a parent folder of `path`, or a link in it, may be newer than `start_ns`.

    Then the file may be old, and yet not the one that the compiler read.
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
        # A new entry changes both times of a folder, a new name only its ctime.
        if status.st_ctime_ns >= start_ns and (stat.S_ISLNK(status.st_mode) or status.st_mtime_ns < start_ns):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
