"""Which names in sources may mean a file that was not read, because it was not there?

`__has_include` asks for one that may come later. A name with `../` leaves the folders that are searched, and may mean
another file once there is one. Both are read off the text, in the widest sense: a needless compile is better than a
wrong hit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_CONTINUED = re.compile(rb"\\\r?\n")
# A macro with a parameter that stands for it, as CCCL's `_CCCL_HAS_INCLUDE(x)`.
_HAS_INCLUDE_MACRO = re.compile(rb"#\s*define\s+(\w+)\([^)\n]*\)[^\n]*__has_include[^\n]*")
_HAS_INCLUDE = rb"\b(?:__has_include(?:_next)?|\w+_HAS_INCLUDE%s)\s*\(\s*(?:[<\"]([^>\"\n]+)[>\"])?"
_CLIMBING_INCLUDE = re.compile(rb"#\s*(?:include|include_next|import)\s*[<\"]([^>\"\n]*\.\./[^>\"\n]*)[>\"]")
# A macro that may name a header: in a file, and among flags.
_DEFINED = re.compile(rb"#\s*define\b[^\n]*?[<\"]([^<>\"\n]+)[>\"]")
_DEFINED_BY_FLAG = re.compile(r"[<\"]([^<>\"]+)[>\"]")


def names_in(paths: Iterable[str], flags: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The names that files ask for by `__has_include`; and those with a `../` that they ask for or include, with the
    folder of the file.

    A name that comes from a macro may be any that a file or a flag defines.

    Args:
        paths: of the files that were read.
        flags: of the compilers.
    """
    asked: dict[tuple[str, str], None] = {}
    included: dict[tuple[str, str], None] = {}
    defined: dict[str, None] = dict.fromkeys(name for flag in flags for name in _DEFINED_BY_FLAG.findall(flag))
    by_macro: dict[str, None] = {}
    contents: list[tuple[str, bytes]] = []
    stand_ins: set[bytes] = set()
    for path in paths:
        try:
            with open(path, "rb") as file:
                content = _CONTINUED.sub(b"", file.read())
        except OSError:
            continue  # whoever compares it will notice
        stand_ins.update(_HAS_INCLUDE_MACRO.findall(content))
        contents.append((os.path.dirname(path), _HAS_INCLUDE_MACRO.sub(b"", content)))
    asks = re.compile(_HAS_INCLUDE % b"".join(b"|" + name for name in sorted(stand_ins)))
    for folder, content in contents:
        defined.update((os.fsdecode(name), None) for name in _DEFINED.findall(content))
        included.update(((folder, os.fsdecode(name)), None) for name in _CLIMBING_INCLUDE.findall(content))
        for name in map(os.fsdecode, asks.findall(content)):
            if name:
                asked[folder, name] = None
            else:
                by_macro[folder] = None
    asked.update(((folder, name), None) for folder in by_macro for name in defined)
    straight = dict.fromkeys(os.path.normpath(name).lstrip("/") for _, name in asked if "../" not in name)
    return list(straight), [pair for pair in (*asked, *included) if "../" in pair[1]]
