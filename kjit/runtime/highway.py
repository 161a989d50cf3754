"""The search for the headers of Google Highway.

A build treats them like any other headers: a source includes them, and an op names their folder if compilers do not
search it by default. Only headers are used (see kjit/highway.h). Those in a virtual or conda environment take
precedence over the system's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import kjit

HEADER = "hwy/highway.h"

SYSTEM_FOLDERS = ("/usr/local/include", "/usr/include")
"""Folders that the system's compilers search by default."""

INSTALL = "`sudo apt install libhwy-dev`, or `conda install -c conda-forge libhwy`"


class Highway:
    """The headers of Highway.

    Attributes:
        include: the folder with `hwy/highway.h`.
        is_searched: whether compilers search it by default.
    """

    def __init__(self, include: Path, *, is_searched: bool) -> None:
        self.include = include
        self.is_searched = is_searched

    @property
    def version(self) -> str:
        """Such as `1.0.3`; `unknown` if the headers do not have it."""
        import re

        # In highway.h before 1.0, in base.h since.
        for name in ("hwy/base.h", HEADER):
            try:
                text = (self.include / name).read_text("utf-8", errors="replace")
            except OSError:
                continue
            parts = [
                re.search(rf"^#define HWY_{part} (\d+)", text, re.MULTILINE) for part in ("MAJOR", "MINOR", "PATCH")
            ]
            if all(parts):
                return ".".join(part[1] for part in parts if part)
        return "unknown"


def highway_include() -> list[str]:
    """The folder of Google Highway's headers, as a list for `extra_include_paths`.

    Empty if compilers find them by default, and if there are none: a wrapper can still be imported, and modules of a
    bundle be loaded. A compile then reports what is missing.
    """
    found = _find()
    return [] if found is None or found.is_searched else [str(found.include)]


def find_highway() -> Highway:
    """The headers of Highway: of the Python environment, of conda's, or of the system.

    Raises:
        ToolchainError: there are none.
    """
    found = _find()
    if found is None:
        raise kjit.ToolchainError(f"Google Highway is missing: {HEADER} was not found.", hint=INSTALL)
    return found


def _find() -> Highway | None:
    prefixes = [sys.prefix, os.environ.get("CONDA_PREFIX", "")]
    own = [os.path.join(prefix, "include") for prefix in prefixes if prefix]
    given = [
        folder for name in ("CPATH", "CPLUS_INCLUDE_PATH") for folder in os.environ.get(name, "").split(os.pathsep)
    ]
    searched = [*filter(None, given), *SYSTEM_FOLDERS]
    for folder in [*own, *searched]:
        if os.path.isfile(f"{folder}/{HEADER}"):
            return Highway(Path(os.path.abspath(folder)), is_searched=folder in searched)
    return None
