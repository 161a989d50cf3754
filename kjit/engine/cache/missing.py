"""Files read before a missing header, and the places where that header may appear.

A compiler that misses a header ends there, without the list of what it read; nvcc does so at any error of the
preprocessor. It is then run once more, only to read, and tells each header as it comes to it (`-H`) and the folders
that it searches (`-v`). g++, clang and the host compiler of nvcc answer alike. A header that appears at one of the
places which follow from that may be the one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from kjit.engine.key.anchors import straight

_MISSED = re.compile(
    r"fatal error: (?:(?P<gcc>.+): No such file or directory|'(?P<clang>.+)' file not found)$", re.MULTILINE
)
# `!` and `x` stand for a precompiled header: used, and looked at.
_ENTERED = re.compile(r"^(?:\.+|[!x]) (.+)$", re.MULTILINE)
_SEARCHED = re.compile(r'^#include "\.\.\." search starts here:\n(.*?)^End of search list\.$', re.MULTILINE | re.DOTALL)
_PASSED_OVER = re.compile(r'^ignoring (?:nonexistent|duplicate) directory "(.+)"$', re.MULTILINE)
_OF_APPLE = " (framework directory)"


@dataclass(frozen=True)
class Missed:
    """What a compiler answered.

    Attributes:
        files: the headers that it read, in its words.
        names: the headers that it missed, as they are called where they are included.
        folders: where it looks for headers, there or not.
    """

    files: tuple[str, ...]
    names: frozenset[str]
    folders: tuple[str, ...]

    def places(self) -> tuple[str, ...]:
        """Where a file may appear that is one of `names`; `files` are paths by now."""
        including = dict.fromkeys(os.path.dirname(path) for path in self.files)
        names = [called for name in self.names for called in (name, f"{name}.gch")]  # a precompiled header will do
        places = (os.path.join(folder, name) for name in names for folder in (*self.folders, *including))
        # What is relative is so to the folder of the build, in which nothing appears.
        return tuple(dict.fromkeys(straight(place) for place in places if os.path.isabs(place)))


def asking(dialect: Literal["c++", "nvcc"], output: str) -> tuple[str, ...]:
    """The options to ask with: they come after all others, and before the name of the unit.

    Args:
        output: of the command that failed.
    """
    listed = f"{output}.listed"
    if dialect == "c++":
        return "-E", "-H", "-v", "-o", listed
    # -M and not -E, which is for one architecture; and one after the other, so that no line is torn.
    return "-M", "-MF", listed, "-t", "1", "-Xcompiler", "-H", "-Xcompiler", "-v"


def read_answer(answer: str) -> Missed | None:
    """What a compiler that was asked has printed; None where it does not say where it looks."""
    lists = _SEARCHED.findall(answer)
    if not lists:
        return None
    lines = [line.strip().removesuffix(_OF_APPLE) for each in lists for line in each.splitlines() if line[:1] == " "]
    folders = dict.fromkeys([*lines, *_PASSED_OVER.findall(answer)])
    names = frozenset(match["gcc"] or match["clang"] for match in _MISSED.finditer(answer))
    return Missed(tuple(dict.fromkeys(_ENTERED.findall(answer))), names, tuple(folders))
