"""Precompiled headers for the halves of CUDA units that forks of one helper compile (helper.py).

Headers take most of the compile time of a small unit, and edits of an op rarely change them. So g++ and NVRTC
precompile the prefix of a half: its preprocessed text before the op's own code. A later half with the same prefix and
flags is compiled from that file, to the same machine code. NVRTC takes only what forks of the same process have made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable

from kjit.cpp_text import own_code

_MOST = 6
_SHORTEST = 100_000  # characters; a shorter prefix compiles fast enough

folder = ""
"""The helper's folder; empty if this process is no fork of one."""

wanted: tuple[str, tuple[str, ...], str] | None = None
"""The path that was not found, its words, and the prefix."""


def find(words: tuple[str, ...], unit: str) -> tuple[str, str] | None:
    """The file for the prefix of `unit`, compiled with `words`, and the rest of `unit`; None if there is none."""
    global wanted
    if not folder:
        return None
    prefix = unit[: own_code(unit)]
    name = hashlib.sha256("\0".join((*words, prefix)).encode(errors="surrogateescape")).hexdigest()
    path = os.path.join(folder, name, "headers.pch")
    if os.path.exists(path):
        return path, unit[len(prefix) :]
    if len(prefix) >= _SHORTEST and not os.path.exists(os.path.dirname(path)):
        wanted = (path, words, prefix)
    return None


def make(precompile: Callable[[str, tuple[str, ...], str], bool]) -> None:
    """Have `precompile` make what is wanted, and keep the newest few."""
    assert wanted is not None
    path, words, prefix = wanted
    os.mkdir(os.path.dirname(path))  # fails if another fork makes it
    if precompile(f"{path}.new", words, prefix):
        os.replace(f"{path}.new", path)
    for each in sorted(os.scandir(folder), key=lambda each: each.stat().st_mtime)[:-_MOST]:
        if each.is_dir():
            shutil.rmtree(each)
