"""The search for the headers of Google Highway.

A build treats them like any other headers: a source includes them, and an op names their folder if compilers do not
search it by default. Only headers are used (see kjit/highway.h). Those in a virtual or conda environment take
precedence over the system's.
"""

from __future__ import annotations

import contextlib
import os
import sys

import kjit

HEADER = "hwy/highway.h"

SYSTEM_FOLDERS = ("/usr/local/include", "/usr/include")
"""Folders that the system's compilers search by default."""

INSTALL = "`sudo apt install libhwy-dev`, or `conda install -c conda-forge libhwy`"


def highway_include() -> list[str]:
    """The folder of Google Highway's headers, as a list for `extra_include_paths`.

    Empty if compilers find them by default, and if there are none: a wrapper can still be imported, and modules of a
    bundle be loaded. A compile then reports what is missing.
    """
    found = _find()
    return [] if found is None or found in _searched() else [found]


def find_highway() -> str:
    """The folder of Highway's headers: of the Python environment, of conda's, or of the system.

    Raises:
        ToolchainError: there are none.
    """
    found = _find()
    if found is None:
        raise kjit.ToolchainError(f"Google Highway is missing: {HEADER} was not found.", hint=INSTALL)
    return found


def highway_version(include: str) -> str:
    """The version of the headers in a folder, such as `1.0.3`; `unknown` if they do not have it."""
    import re

    numbers: dict[str, str] = {}
    for name in ("hwy/base.h", HEADER):  # in highway.h before 1.0, in base.h since
        with contextlib.suppress(OSError), open(f"{include}/{name}", encoding="utf-8", errors="replace") as file:
            numbers |= dict(re.findall(r"^#define HWY_(MAJOR|MINOR|PATCH) (\d+)", file.read(), re.MULTILINE))
    return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH")) if len(numbers) == 3 else "unknown"


def _searched() -> list[str]:
    """The folders that compilers search by default."""
    named = [os.environ.get(name, "").split(os.pathsep) for name in ("CPATH", "CPLUS_INCLUDE_PATH")]
    return [*(os.path.abspath(folder) for folders in named for folder in folders if folder), *SYSTEM_FOLDERS]


def _find() -> str | None:
    own = [f"{prefix}/include" for prefix in (sys.prefix, os.environ.get("CONDA_PREFIX")) if prefix]
    return next((folder for folder in [*own, *_searched()] if os.path.isfile(f"{folder}/{HEADER}")), None)
