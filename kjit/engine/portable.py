"""Whether a library compiled on another machine runs on this one.

kjit and tvm-ffi fit when they are of the series that it was compiled with (0.1) and not older: within a series what was
compiled goes on working. So does the C library when it is not older than the newest of its symbols that a library asks
for; the system and the kind of CPU have to be the same.
"""

from __future__ import annotations

import re

from kjit.runtime import numbers_of as numbers_of
from kjit.runtime.bundle import differences_of_machines as differences_of_machines
from kjit.runtime.bundle import glibc_here as glibc_here
from kjit.runtime.bundle import this_machine as this_machine

_GLIBC_NEEDED = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")


def glibc_of(content: bytes) -> str | None:
    """The newest version of the C library's symbols that a library asks for."""
    versions = [(int(major), int(minor)) for major, minor in _GLIBC_NEEDED.findall(content)]
    return "{}.{}".format(*max(versions)) if versions else None
