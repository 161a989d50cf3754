"""Files read before a missing header, and the paths where that header may appear.

A compiler stops at a missing header without listing the files it has read; nvcc does so at any preprocessor error. It
is then run again, preprocessing only, and prints each header that it reads (`-H`) and the folders that it searches
(`-v`), in the same format for g++, clang and nvcc's host compiler. The paths where the header may appear follow from
this.
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
# `!` and `x` mark precompiled headers: used, and rejected.
_ENTERED = re.compile(r"^(?:\.+|[!x]) (.+)$", re.MULTILINE)
_SEARCHED = re.compile(r'^#include "\.\.\." search starts here:\n(.*?)^End of search list\.$', re.MULTILINE | re.DOTALL)
_PASSED_OVER = re.compile(r'^ignoring (?:nonexistent|duplicate) directory "(.+)"$', re.MULTILINE)
_OF_APPLE = " (framework directory)"


@dataclass(frozen=True)
class Missed:
    """The output of a compiler that was run again for a missing header.

    Attributes:
        files: the headers that it read, as it names them.
        names: the missing headers, as written in the `#include`.
        folders: the folders that it searches, whether they exist or not.
    """

    files: tuple[str, ...]
    names: frozenset[str]
    folders: tuple[str, ...]

    def places(self) -> tuple[str, ...]:
        """The paths where one of `names` may appear; `files` are absolute here."""
        including = dict.fromkeys(os.path.dirname(path) for path in self.files)
        names = [called for name in self.names for called in (name, f"{name}.gch")]  # or a precompiled header
        places = (os.path.join(folder, name) for name in names for folder in (*self.folders, *including))
        # Relative paths are relative to the staging folder, where nothing appears.
        return tuple(dict.fromkeys(straight(place) for place in places if os.path.isabs(place)))


def asking(dialect: Literal["c++", "nvcc"], output: str) -> tuple[str, ...]:
    """The options for the second run, after all others and before the name of the unit.

    Args:
        output: the output file of the failed command.
    """
    listed = f"{output}.listed"
    if dialect == "c++":
        return "-E", "-H", "-v", "-o", listed
    # -M, as -E is for one architecture only; sequentially, so that lines are not interleaved.
    return "-M", "-MF", listed, "-t", "1", "-Xcompiler", "-H", "-Xcompiler", "-v"


def read_answer(answer: str) -> Missed | None:
    """The answer in a compiler's output; None if it has no list of folders."""
    lists = _SEARCHED.findall(answer)
    if not lists:
        return None
    lines = [line.strip().removesuffix(_OF_APPLE) for each in lists for line in each.splitlines() if line[:1] == " "]
    folders = dict.fromkeys([*lines, *_PASSED_OVER.findall(answer)])
    names = frozenset(match["gcc"] or match["clang"] for match in _MISSED.finditer(answer))
    return Missed(tuple(dict.fromkeys(_ENTERED.findall(answer))), names, tuple(folders))
