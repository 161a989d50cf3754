"""Changes in the headers that a compiler has read.

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
- A file may appear that was asked for by `__has_include`. Those names are looked for in the same folders; where a name
  cannot be told from the text, any new file in them is a miss. Where an `#include` or `__has_include` climbs out of a
  folder (`../`), or where `/usr/include` is searched, no folder is watched: the places that such a name can mean are
  recorded, and whether there is a file. So are those where a linker looks for a library, and links that lead nowhere.
- A header may change while the compiler runs (observation.py).

A path is recorded as the compiler wrote it, from the file that includes the header: `/home/me/app/csrc/../../inc/a.h`
is `csrc/../../inc/a.h` of its project, so that a second copy of all that compares its own `inc/a.h`. What does not
begin with one of the folders that move with a project is recorded as it is. A module that is right in one copy only
(own_place.py) is recorded with the place of that copy.

Not recorded are the headers that come with a compiler, a toolkit or tvm-ffi (system_headers.py).

Known gaps: a file that inline assembly reads (`.incbin`), which no compiler reports; a file server whose clock is
behind ours, and a header on it that is edited during its first compile.
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
from kjit.runtime.recall import YOUNG as YOUNG
from kjit.runtime.recall import aged, dated
from kjit.runtime.recall import telling as telling

# Between paths in one string; no path has it inside. One long string is read faster than hundreds of short ones.
SEPARATOR = "//"

# Searched before `/usr/include` by every compiler that searches that.
LOCAL_INCLUDE = "/usr/local/include"
# Where most is added, and no header of the op's own is: searched last, so that nothing in it comes before a header.
PACKAGES_INCLUDE = ("/usr/include", f"/usr/include/{platform.machine()}-linux-gnu")


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


class Place(NamedTuple):
    """A project's folder, for a module that is right only while it is there, and the reason."""

    anchor: str
    folder: str
    why: str


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
        every_file: any new file in the folders may have been asked for.
        places: where projects must be.
    """

    headers: tuple[Header, ...]
    system: str
    roots: tuple[tuple[str, str], ...]
    folders: tuple[Folder, ...]
    present: tuple[tuple[str, str], ...]
    sought: tuple[Sought, ...]
    every_file: bool = False
    places: tuple[Place, ...] = ()

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Reads:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: it did not write this.
        """
        system = document["system"]
        if not isinstance(system, str):
            raise TypeError("a record's system headers are one string")
        if not isinstance(every_file := document["every_file"], bool):
            raise TypeError("either any new file counts or not")
        return cls(
            tuple(Header._make(row) for row in _rows(document["headers"])),
            system,
            tuple((anchor, path) for anchor, path in _rows(document["roots"])),
            tuple(Folder._make(row) for row in _rows(document["folders"])),
            tuple((anchor, path) for anchor, path in _rows(document["present"])),
            tuple(Sought._make(row) for row in _rows(document["sought"])),
            every_file,
            tuple(Place._make(row) for row in _rows(document["places"])),
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
            "places": [list(row) for row in self.places],
        }

    @property
    def key2(self) -> str:
        """The second half of an artifact's key: which headers, with which content, and where it has to be used."""
        headers = [[header.anchor, header.path, header.digest] for header in self.headers]
        return digest_of([headers, [[place.anchor, place.folder] for place in self.places]])

    def compare(self, anchors: Anchors) -> str | Reads:
        """Compare with what is there now.

        Returns:
            A sentence that says what differs; or, when nothing does, what to record from now on: `self`, or a copy
            with newer dates.

        Raises:
            TypeError, ValueError: this was read from a record that holds something else.
        """
        for anchor, folder, why in self.places:
            if anchors.absolute(anchor, "") != folder:
                return f"{why}, and the module was built for {folder}"
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
                return f"{_named(anchors, anchor, path)} is {'gone' if is_there else 'new'}, and was looked for"
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
                may = "be one that was asked for" if self.every_file else "come before a header of that name"
                return f"{_named(anchors, anchor, path)} is new and may {may}"
        # A young date would be no better than the one that is recorded: both mean to look again.
        is_young = any(folder.ctime_ns == YOUNG for folder in folders)
        return self.folders if is_young or folders == self.folders else folders


def watch(
    roots: Iterable[tuple[str, str]], headers: Iterable[Header], system: str, anchors: Anchors, *, every_file: bool
) -> tuple[tuple[Folder, ...], tuple[tuple[str, str], ...]]:
    """The folders to watch, and the files in them that are called like a header.

    A name is any end of a header's path, because which part of it stood in the `#include` is not known. A link that
    leads nowhere counts as a file, and as a folder if one is called so.

    Args:
        every_file: all files count, whatever they are called; and where packages are installed, folders too.
    """
    names = SEPARATOR.join([system, *(f"/{header.path}" for header in headers), ""])
    words = frozenset(names.split("/"))  # most of what is there is called like none of them
    folders: dict[tuple[str, str], Folder] = {}
    present: dict[tuple[str, str], None] = {}
    inside: set[int] = set()

    def visit(anchor: str, folder: str, below: str) -> None:
        # The date comes first: what appears after it changes it.
        where = anchors.absolute(anchor, folder) or ""
        inode, date = dated(where)
        folders[anchor, folder] = Folder(anchor, folder, inode, aged(date))
        is_shared = every_file and where in (LOCAL_INCLUDE, *PACKAGES_INCLUDE)
        for entry in _entries(where):
            name = f"{below}{entry.name}"
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder, is_link = entry.is_dir(), entry.is_symlink()
            header = name.removesuffix(".gch").removesuffix(".pch")  # a precompiled one goes before the header
            is_called_so = entry.name in words or os.path.basename(header) in words
            if is_shared or (not is_folder and (every_file or (is_called_so and f"/{header}{SEPARATOR}" in names))):
                present[anchor, path] = None
            may_be_folder = is_folder or (is_link and not os.path.exists(entry.path))
            if not may_be_folder or is_shared:
                continue
            if is_called_so and f"/{name}/" in names:
                visit(anchor, path, f"{name}/")
            elif every_file and not entry.name.startswith(".") and (number := entry.inode()) not in inside:
                inside.add(number)  # a link may lead to a folder around it
                visit(anchor, path, f"{name}/")

    for anchor, root in roots:
        visit(anchor, root, "")
    return tuple(folders.values()), tuple(present)


def read_state(path: str, status: os.stat_result) -> FileState:
    """The file's state, read no more than once in a process as long as it stays as `status` says.

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
        return []  # no folder, nothing in it: `dated` tells when that changes


def _named(anchors: Anchors, anchor: str, path: str) -> str:
    """A file for people: relative to the project is how they name it."""
    normal = os.path.normpath(path)
    folders = [os.path.dirname(anchors.absolute(anchor, each) or "") for each in (path, normal)]
    if normal != path and os.path.realpath(folders[0]) == os.path.realpath(folders[1]):
        path = normal  # no link is in the way
    return path if anchor in ("", "project") else f"{{{anchor}}}/{path}"


def _rows(value: object) -> list[list[Any]]:
    # What is in the rows is not looked at: this is on the path of every load, and `compare` stumbles over garbage.
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
