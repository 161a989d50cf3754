"""Whether a device half can be compiled with kjit's short headers of the C++ library (kjit/include/kjit_rtc/std).

NVRTC reads them in a fifth of the time that it takes for GCC's. They have what kernels and kjit's headers use, and no
other header of the library can be combined with them. A unit that needs more is preprocessed again with GCC's headers
(`-DKJIT_RTC_FULL`): its text mentions a name that they lack, or it does not compile with them, possibly for that
reason. So messages about the library always refer to GCC's headers, as those of the host half do.

Few imports: it starts once for every compiled unit.
"""

from __future__ import annotations

import os
import re

FULL = "-DKJIT_RTC_FULL"
"""The flag with which a half is preprocessed with whole headers: the device half with those of the C++ library, the
host half with CUDA's for half and bfloat16 (host_compiler.py)."""

_FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "include", "kjit_rtc", "std")
_INCLUDED = re.compile(
    rb"^[ \t]*#[ \t]*include[ \t]*<([a-z_]+|tvm/ffi/(?!c_api|extra/c_env_api)[^>\n]+)>", re.MULTILINE
)
_SHORT = '/kjit_rtc/std/type_traits" 1'
_WHOLE = re.compile(r'/c\+\+/(?:[^"\n]*/)?type_traits" 1\b')
_MARKER = re.compile(r'\n# \d+ "((?:\\.|[^"\\])*)".*')
_NAME = re.compile(r"std\s*::\s*(\w+)")
# Headers of GCC's library that declare few names and depend on no other header.
_COMBINABLE = re.compile(
    r"/c\+\+/(?:.*/)?(?:bits/(?:c\+\+config|os_defines|cpu_defines|exception|requires_hosted|version)\.h"
    r"|pstl/pstl_config\.h|cstddef|cstdint|climits|cfloat)$"
)
_OF_LIBRARY = "/c++/"
_USING = re.compile(r"using\s+namespace\s+(?:::\s*)?std\b")
_BUILT_IN = frozenset(("initializer_list", "nullptr_t", "size_t", "align_val_t"))


def may_suffice(source: str) -> bool:
    """Whether a source file includes no other header of the C++ library: otherwise it is preprocessed only once."""
    with open(source, "rb") as file:
        included = set(_INCLUDED.findall(file.read()))
    return included <= {b"cstddef", b"cstdint", b"climits", b"cfloat", *map(os.fsencode, os.listdir(_FOLDER))}


def are_read(unit: str) -> bool:
    """Whether a preprocessed device half contains the short headers."""
    return _SHORT in unit and _WHOLE.search(unit) is None


def suffice(unit: str) -> bool:
    """Whether a preprocessed device half that contains the short headers mentions only names that they declare."""
    used: list[str] = []
    declared: list[str] = []
    place, of_library = 0, False
    for marker in _MARKER.finditer(unit):
        (declared if of_library else used).append(unit[place : marker.start()])
        name = marker[1]
        if _OF_LIBRARY in name and _COMBINABLE.search(name) is None:
            return False
        place, of_library = marker.end(), _OF_LIBRARY in name or "/kjit_rtc/" in name
    (declared if of_library else used).append(unit[place:])
    text, library = "".join(used), "".join(declared)
    if "<=>" in text:  # an operator that is defaulted has a result from <compare>
        return False
    names = set(_NAME.findall(text)) - _BUILT_IN
    # Almost the declared names, and fast; a unit that mentions another one does not compile.
    return all(f" {name}" in library or f"::{name}" in library for name in names)


def may_have_failed(unit: str, log: str) -> bool:
    """Whether a unit possibly did not compile because its headers are short.

    Args:
        log: the messages of the compiler.
    """
    return "std" in log or "kjit_rtc" in log or _USING.search(unit) is not None
