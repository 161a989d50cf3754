"""The files that a compiler or a linker has read, from the Make rule that it writes (`-MD`)."""

from __future__ import annotations

import re

_ESCAPED = re.compile(r"(\\+)([ \t#:])")


def parse_depfile(text: str) -> list[str]:
    """The dependencies of the first Make rule, as compilers (`-MD`) and linkers write it."""
    text = text.replace("\\\n", " ")
    _, _, text = text.partition(":")
    text = text.partition("\n")[0]
    # In a name, a space or # follows a backslash, and a dollar sign is doubled. Backslashes are doubled only before a
    # space.
    names = re.findall(r"(?:[^\s\\]+|\\+[ \t#:]|\\)+", text)
    return [_ESCAPED.sub(_unescaped, name).replace("$$", "$") if "\\" in name or "$" in name else name
            for name in names]  # fmt: skip


def _unescaped(match: re.Match[str]) -> str:
    kept = len(match[1]) // 2 if match[2] in " \t" else len(match[1]) - 1
    return "\\" * kept + match[2]
