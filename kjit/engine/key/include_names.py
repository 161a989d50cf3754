"""Names of files in sources: of files that may appear after the compile and that it would have read, or tested for.

`__has_include` tests for a file, a name with `../` may refer to another file once that exists, and of two equal headers
a compiler reads one. The texts are not preprocessed: a name in a comment counts, too, as a needless compile is better
than a wrong hit. If a text tests for a name that is not literally there, each name in its directives counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kjit.engine.key.flags import Dialect, expand

_TEST = re.compile(rb"\w*has_(?:include|embed)\w*", re.IGNORECASE)
_LITERAL = re.compile(rb"\s*\(\s*(?:<([^>\n]+)>|\"([^\"\n]+)\")\s*\)")
# A test for the operator itself is not about a file. Nor is a macro that passes a name on and is called like the
# operator: its uses have the name.
_IF_DEFINED = re.compile(rb"\bdefined\s*(?:\(\s*\w+\s*\)|\w+)|(?:#|%:)[ \t]*(?:ifn?def|elifn?def|undef)[ \t]+\w+")
_PASSES_ON = re.compile(
    rb"(?:#|%:)[ \t]*define[ \t]+\w*has_(?:include|embed)\w*\([^)\n]*\)[^\n<\"]*$", re.IGNORECASE | re.MULTILINE
)
_DIRECTIVE = re.compile(rb"^(?:.*\*/)?[ \t\f\v\r]*(?:#|%:).*", re.MULTILINE)
_NAMED = re.compile(rb"<([^<>\"\n]+)>|\"([^<>\"\n]+)\"")
_CONTINUED = re.compile(rb"\\[ \t]*\r?\n")


class Names(NamedTuple):
    """The names in the op's files.

    Attributes:
        tested: the names that are tested for, or may be, except those in `climbing`.
        named: all names, with the folder of the file.
        climbing: those with a `../`.
    """

    tested: tuple[str, ...]
    named: tuple[tuple[str, str], ...]
    climbing: tuple[tuple[str, str], ...]


def names_in(files: Mapping[str, bytes], flags: bytes = b"") -> Names:
    """The names in the op's files.

    Args:
        files: their texts, by path.
        flags: the macros that flags define, as `#define` lines.
    """
    named: dict[tuple[str, str], None] = {}
    literal: dict[str, None] = {}
    is_known = True
    for path, text in {**files, "": flags}.items():
        text = _CONTINUED.sub(b"", text) if b"\\" in text else text
        lines = b"\n".join(_DIRECTIVE.findall(text))
        pairs = ((os.path.dirname(path), _name(match)) for match in _NAMED.finditer(lines))
        named.update(dict.fromkeys(pairs))
        text = _PASSES_ON.sub(b" ", _IF_DEFINED.sub(b" ", text)) if _TEST.search(text) else b""
        for test in _TEST.finditer(text):
            match = _LITERAL.match(text, test.end())
            is_known &= match is not None
            if match is not None:
                literal[_name(match)] = None
    every = literal if is_known else {**literal, **dict.fromkeys(name for _, name in named)}
    tested = (os.path.normpath(name).lstrip("/") for name in every if "../" not in name)
    return Names(tuple(dict.fromkeys(tested)), tuple(named), tuple(pair for pair in named if "../" in pair[1]))


def _name(match: re.Match[bytes]) -> str:
    return os.fsdecode(match[1] or match[2])


def definitions_in(flags: Iterable[str], dialect: Dialect = "c++") -> bytes:
    """The macros that flags define, as `#define` lines."""
    defined = [flag.value for flag, _ in expand(flags, dialect) if flag.name in ("-D", "--define-macro")]
    lines = [f"#define {' '.join(text.split('=', 1))}\n" for text in defined]
    return "".join(lines).encode(errors="surrogateescape")
