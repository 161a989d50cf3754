"""The conditions under which a library runs on another machine than the one that compiled it.

kjit and tvm-ffi must be of the same series (0.1) and not older: within a series, compiled libraries keep working. The C
library must not be older than the newest of its symbols that the library requires; the system and the kind of CPU must
be the same.
"""

from __future__ import annotations

import re

from kjit.runtime import numbers_of as numbers_of
from kjit.runtime.bundle import differences_of_machines as differences_of_machines
from kjit.runtime.bundle import glibc_here as glibc_here
from kjit.runtime.bundle import this_machine as this_machine

_GLIBC_NEEDED = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")


def glibc_of(content: bytes) -> str | None:
    """The newest version of the C library's symbols that a library requires; None if it requires none."""
    versions = [(int(major), int(minor)) for major, minor in _GLIBC_NEEDED.findall(content)]
    return "{}.{}".format(*max(versions)) if versions else None
