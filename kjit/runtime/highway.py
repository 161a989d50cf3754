"""Where the headers of Google Highway are.

To a build, they are headers like any others: a source includes them, and an op names their folder where compilers do
not look by themselves. Only headers are used (kjit/highway.h says why), so that a file is all that has to be found.
They are looked for where a package manager of the user's own puts them before the system's: a virtual or conda
environment says more about a project than the machine that it is on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import kjit

HEADERS = "hwy/"
HEADER = f"{HEADERS}highway.h"

SYSTEM_FOLDERS = ("/usr/local/include", "/usr/include")
"""What every compiler of the system searches by itself."""

INSTALL = "`sudo apt install libhwy-dev`, or `conda install -c conda-forge libhwy`"


class Highway:
    """The headers of Highway.

    Attributes:
        include: the folder that `hwy/highway.h` is in.
        is_searched: compilers look there without being told.
    """

    def __init__(self, include: Path, *, is_searched: bool) -> None:
        self.include = include
        self.is_searched = is_searched

    @property
    def version(self) -> str:
        """`1.0.3`; `unknown` where the headers do not say."""
        import re

        # highway.h said it until 1.0; base.h does since.
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
    """The folder of Google Highway's headers, for `extra_include_paths`: in a list of one.

    Empty where compilers find them by themselves, and where there are none: a wrapper can be imported there, and what a
    bundle holds is loaded. To compile says then what is missing.
    """
    found = _find()
    return [] if found is None or found.is_searched else [str(found.include)]


def highway_hint() -> str:
    """What helps where a source includes one of the headers and the compiler does not find it."""
    found = _find()
    if found is None:
        return f"it belongs to Google Highway: {INSTALL}"
    return (
        f"Google Highway is in '{found.include}', where the compiler does not look: add its folder to the op's, "
        "extra_include_paths=[..., *kjit.highway_include()]"
    )


def find_highway() -> Highway:
    """The headers of Highway: of the Python environment, of conda's, or of the system.

    Raises:
        ToolchainError: there are none.
    """
    found = _find()
    if found is None:
        raise kjit.ToolchainError(f"Google Highway is missing: there is no {HEADER} here.", hint=INSTALL)
    return found


def _find() -> Highway | None:
    prefixes = [sys.prefix, os.environ.get("CONDA_PREFIX", "")]
    own = [os.path.join(prefix, "include") for prefix in prefixes if prefix]
    told = [folder for name in ("CPATH", "CPLUS_INCLUDE_PATH") for folder in os.environ.get(name, "").split(os.pathsep)]
    searched = [*filter(None, told), *SYSTEM_FOLDERS]
    for folder in [*own, *searched]:
        if os.path.isfile(f"{folder}/{HEADER}"):
            return Highway(Path(os.path.abspath(folder)), is_searched=folder in searched)
    return None
