"""The parts of kjit that a program needs to run kernels. This file checks libraries before they are loaded (who could
have changed them, whether they are intact), and describes the CPU.

A hit imports this package and nothing of `kjit.engine`. Every process pays for this import before its first kernel. So
its modules define plain classes, compile no regular expressions, and import code for errors only when one occurs.
"""

from __future__ import annotations

import binascii
import os
import platform
import stat
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

STARTED_NS = time.time_ns()
"""When this process imported kjit, before anything of `kjit.engine`."""

LAYOUT = "v2"
"""The folder in a cache for everything compiled, named by the version of the layout. A kjit with another layout does
not see it."""

SOURCE_TEXTS = "inline"
"""The folder in a cache for sources that were given as text (`load_inline`)."""

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_PIECE = 65536
ALTERED = "was altered"


def own_users() -> tuple[int, ...]:
    """The allowed owners of files in a user's own cache: the user, and root."""
    return os.geteuid(), 0


def weakness(status: os.stat_result, owners: tuple[int, ...]) -> str | None:
    """The way in which somebody not in `owners` can change a file or folder with this status, as the end of a sentence
    about it; None if nobody else can."""
    return weakness_of(status.st_mode, status.st_uid, owners)


def weakness_of(mode: int, owner: int, owners: tuple[int, ...]) -> str | None:
    """`weakness` of a mode and an owner."""
    if stat.S_ISLNK(mode):
        return "is a symbolic link"
    if owner not in owners:
        return f"belongs to another user (id {owner})"
    if mode & OTHERS_MAY_WRITE:
        return "may be written by users other than its owner"
    return None


def read_file(path: str, flags: int = 0) -> tuple[bytes, os.stat_result]:
    """The content of a small file, and its status afterwards, so that a concurrent change shows in the time.

    Every load reads several. `open` makes twice as many system calls, and takes twice as long.

    Args:
        flags: for `os.open`.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        content = os.read(handle, _PIECE)
        while more := os.read(handle, _PIECE):
            content += more
        return content, os.fstat(handle)
    finally:
        os.close(handle)


class LibraryRead:
    """A library that was read: its size, its checksum, and the status of the open file."""

    __slots__ = ("crc32", "size", "status")

    def __init__(self, size: int, crc32: int, status: os.stat_result) -> None:
        self.size = size
        self.crc32 = crc32
        self.status = status

    def difference(self, record: Mapping[str, Any]) -> str | None:
        """The difference from its record (`size`, `crc32`), such as `was altered`; None if there is none."""
        if self.size != record["size"]:
            return f"has {self.size} bytes instead of {record['size']}"
        return None if self.crc32 == record["crc32"] else ALTERED


def read_library(path: str, flags: int = 0) -> LibraryRead:
    """Read a library in pieces that fit into the CPU's cache, reusing one buffer.

    Args:
        flags: for `os.open`.

    Raises:
        OSError: it cannot be read.
    """
    size = crc = 0
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        while piece := os.read(handle, _PIECE):
            size += len(piece)
            crc = binascii.crc32(piece, crc)
        return LibraryRead(size, crc, os.fstat(handle))
    finally:
        os.close(handle)


def digest(content: bytes) -> str:
    """The hash of a file's content: 32 hexadecimal digits of its SHA-256."""
    import hashlib

    return hashlib.sha256(content).hexdigest()[:32]


def digest_of_file(path: str, status: os.stat_result, *, is_settled: bool) -> str:
    """The hash of a file, read once per process while its status stays the same.

    Args:
        is_settled: whether its times are old enough to show a later change; if not, it is read each time.

    Raises:
        OSError: it cannot be read.
    """
    if not is_settled:
        return digest(read_file(path)[0])
    return _digest_once(path, status.st_size, status.st_ino, status.st_ctime_ns)


@lru_cache(maxsize=4096)
def _digest_once(path: str, *_as_it_was: int) -> str:
    return digest(read_file(path)[0])


@lru_cache(maxsize=1)
def tvm_ffi_home() -> str | None:
    """The folder of the package tvm_ffi; None if it is not installed."""
    # Not imported: that would import torch too, which takes one and a half seconds.
    import importlib.util

    spec = importlib.util.find_spec("tvm_ffi")
    return None if spec is None or spec.origin is None else os.path.dirname(spec.origin)


def tvm_ffi_version(home: str) -> str:
    """The version of the package tvm_ffi in `home`, from the package itself if it is imported: the folder that
    `tvm_ffi_version_in` lists has an entry for each installed package."""
    return getattr(sys.modules.get("tvm_ffi"), "__version__", None) or tvm_ffi_version_in(home)


def tvm_ffi_version_in(home: str) -> str:
    """The version of the package tvm_ffi in `home`, without importing it.

    Taken from the name of its `.dist-info` folder; `importlib.metadata` would search all of `sys.path`.
    """
    begin, end = "apache_tvm_ffi-", ".dist-info"
    names = [name for name in os.listdir(os.path.dirname(home)) if name.startswith(begin) and name.endswith(end)]
    if len(names) == 1:
        return names[0][len(begin) : -len(end)]
    from importlib.metadata import version

    return version("apache-tvm-ffi")


def numbers_of(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparisons: `(0, 1, 15)` of `0.1.15.post2`."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def cpu_features() -> frozenset[str]:
    """The instruction sets of this CPU, in Linux's names; none on other systems."""
    described = cpu_description()
    return frozenset(f"{described.get('flags', '')} {described.get('Features', '')}".split())


@lru_cache(maxsize=1)
def cpu_identity() -> str:
    """This CPU's model and instruction sets, on which `-march=native` depends."""
    lines = [f"{name}: {' '.join(sorted(value.split()))}" for name, value in cpu_description().items()]
    return "; ".join([platform.machine(), *(lines or [platform.platform()])])


_WANTED = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU variant", "CPU part", "Features")


@lru_cache(maxsize=1)
def cpu_description() -> Mapping[str, str]:
    """Linux's description of the first core, taken for all; empty on other systems."""
    described = {}
    first = b""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            # One core is enough, and a machine may have hundreds.
            while b"\n\n" not in first and (more := file.read(4096)):
                first += more
    except OSError:
        return {}
    for line in first.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(":")
        if name.strip() in _WANTED:
            described[name.strip()] = value.strip()
    return described
