"""Does what was compiled on another machine run on this one?

kjit and tvm-ffi fit when they are of the series that it was compiled with (0.1) and not older: within a series what was
compiled goes on working. So does the C library when it is not older than the newest of its symbols that a library asks
for; the system and the kind of CPU have to be the same.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from functools import lru_cache

import kjit
from kjit.build.key import tvm_ffi_version

_GLIBC_NEEDED = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")


def this_machine() -> dict[str, str]:
    """What is compared, by name."""
    return {
        "kjit": kjit.__version__,
        "tvm-ffi": tvm_ffi_version(),
        "system": platform.system(),
        "machine": platform.machine(),
    }


def differences_of_machines(built: Mapping[str, str]) -> tuple[str, ...]:
    """What keeps from running here what was compiled where `this_machine` was `built`, a line each.

    Raises:
        KeyError: `built` lacks a name.
    """
    lines = []
    here = this_machine()
    for name in ("kjit", "tvm-ffi"):
        if not _continues(built[name], here[name]):
            lines.append(f"it was built with {name} {built[name]}, and this is {name} {here[name]}")
    for name in ("system", "machine"):
        if built[name] != here[name]:
            lines.append(f"it was built for {built[name]}, and this is {here[name]}")
    return tuple(lines)


def _continues(built: str, here: str) -> bool:
    """Whether what was compiled with version `built` works with version `here`: the same series, and not older."""
    return numbers_of(built)[:2] == numbers_of(here)[:2] and numbers_of(here) >= numbers_of(built)


@lru_cache(maxsize=64)
def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, to be compared: `(0, 1, 15)` of `0.1.15.post2`."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def glibc_of(content: bytes) -> str | None:
    """The newest version of the C library's symbols that a library asks for."""
    versions = [(int(major), int(minor)) for major, minor in _GLIBC_NEEDED.findall(content)]
    return "{}.{}".format(*max(versions)) if versions else None


@lru_cache(maxsize=1)
def glibc_here() -> str | None:
    """The C library's version; None where it is another one than glibc, whose loader decides."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        return None
    return version if name == "glibc" else None
