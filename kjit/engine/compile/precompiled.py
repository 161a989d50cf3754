"""Precompiled headers for the halves of CUDA units that forks of one helper compile (helper.py).

Headers take most of the compile time of a small unit, and edits of an op rarely change them. So g++ and NVRTC
precompile the prefix of a half: its preprocessed text before the op's own code. A later half with the same prefix and
the same flags is compiled from that file, to the same machine code. NVRTC takes only a file that was made at the same
addresses, as in forks of one process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

_MOST = 6
_SHORTEST = 100_000  # characters; a shorter prefix compiles fast enough
_MARKER = re.compile(r'^# \d+ "((?:\\.|[^"\\])*)"(.*)$', re.MULTILINE)


def own_code(unit: str) -> int:
    """The position of the line marker before the op's own code in a preprocessed `unit`; 0 if all of it is the op's."""
    place = end = 0
    of_system: set[str] = set()
    is_own = True
    for marker in _MARKER.finditer(unit):
        if is_own and unit[end : marker.start()].strip():
            break
        # Only where a file is entered: the expansion of a macro changes the flags, too.
        if " 1" in marker[2] and " 3" in marker[2]:
            of_system.add(marker[1])
        is_own = marker[1] not in of_system and not marker[1].startswith("<")
        end = marker.end()
        if is_own:
            place = marker.start()
    return place


class Headers:
    """Precompiled headers: in `folder`, a folder for each prefix and command line.

    Attributes:
        wanted: the path that was not found, its words, and the prefix.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.wanted: tuple[str, tuple[str, ...], str] | None = None

    def find(self, words: tuple[str, ...], unit: str) -> tuple[str, str] | None:
        """The file for the prefix of `unit`, compiled with `words`, and the rest of `unit`; None if there is none."""
        prefix = unit[: own_code(unit)]
        name = hashlib.sha256("\0".join((*words, prefix)).encode(errors="surrogateescape")).hexdigest()
        path = os.path.join(self._folder, name, "headers.pch")
        if os.path.exists(path):
            return path, unit[len(prefix) :]
        self.wanted = (path, words, prefix) if len(prefix) >= _SHORTEST else None
        return None

    def make(self, precompile: Callable[[str, tuple[str, ...], str], bool]) -> None:
        """Have `precompile` make what is wanted, unless that was tried before; keep the newest few."""
        if self.wanted is None:
            return
        path, words, prefix = self.wanted
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(path))
            if precompile(f"{path}.new", words, prefix):
                os.replace(f"{path}.new", path)
            made = sorted(filter(os.path.isdir, Path(self._folder).iterdir()), key=os.path.getmtime)
            for each in made[:-_MOST]:
                shutil.rmtree(each)
