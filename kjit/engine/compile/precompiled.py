"""Precompiled headers for the halves of CUDA units that the helper compiles one after another.

Headers take most of the compile time of a small unit, and edits of an op rarely change them. So g++ and NVRTC
precompile the prefix of a half: its preprocessed text before the op's own code. A later half with the same prefix and
the same flags is compiled from that file, to the same machine code. NVRTC takes only a file that was made at the same
addresses, as in forks of one process (helper.py).
"""

from __future__ import annotations

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
    included: list[bool] = []  # of each file that has been entered, whether it is the op's own
    is_own = True
    for marker in _MARKER.finditer(unit):
        if is_own and unit[end : marker.start()].strip():
            return place
        flags = marker[2].split()
        if "1" in flags:
            included.append("3" not in flags)
        elif "2" in flags and included:
            included.pop()
        # The expansion of a header's macro also changes the flags of a line in the op's own files.
        is_own = all(included) and not marker[1].startswith("<")
        end = marker.end()
        if is_own:
            place = marker.start()
    return place


class Headers:
    """Precompiled headers: in `folder`, a folder for each prefix and command line, with an empty file if the compiler
    refused it.

    Attributes:
        wanted: the file that was not found, its words, and the prefix.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.wanted: tuple[str, tuple[str, ...], str] | None = None

    def find(self, words: tuple[str, ...], unit: str) -> tuple[str, str] | None:
        """The file for the prefix of `unit`, compiled with `words`, and the rest of `unit`; None if there is none."""
        place = own_code(unit)
        if place < _SHORTEST:
            return None
        prefix = unit[:place]
        name = hashlib.sha256("\0".join((*words, prefix)).encode(errors="surrogateescape")).hexdigest()
        path = os.path.join(self._folder, name, "headers.pch")
        if not os.path.exists(path):
            self.wanted = path, words, prefix
            return None
        return (path, unit[place:]) if os.path.getsize(path) else None

    def refuse(self, path: str) -> None:
        """Leave an empty file, so that this prefix is not precompiled again."""
        Path(f"{path}.empty").touch()
        os.replace(f"{path}.empty", path)

    def make(self, precompile: Callable[[str, tuple[str, ...], str], bool]) -> None:
        """Have `precompile` make what is wanted, unless another fork does; keep the newest few."""
        if self.wanted is None or os.path.exists(os.path.dirname(self.wanted[0])):
            return
        path, words, prefix = self.wanted
        os.mkdir(os.path.dirname(path))
        if precompile(f"{path}.new", words, prefix):
            os.replace(f"{path}.new", path)
        else:
            self.refuse(path)
        made = sorted(Path(self._folder).glob("*/headers.pch"), key=os.path.getmtime)
        for each in made[:-_MOST]:
            shutil.rmtree(each.parent)
