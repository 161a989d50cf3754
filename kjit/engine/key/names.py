"""Names of files in sources that may come to mean another file, or to exist, after the compile.

`__has_include` tests for a file that may appear later, a name with `../` may refer to another file once that exists,
and of two equal headers a compiler reads one. All are found conservatively, as a needless compile is better than a
wrong hit: everything in quotes or angle brackets in a directive counts as a name. If a name is composed by macros, it
is unknown, and any new file in the searched folders counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kjit.engine.key.flags import Dialect, expand

_OPERATOR = rb"\w*has_(?:include|embed)\w*"
# Parts from which `##` may form the operator, in a directive.
_PIECE = re.compile(rb"^[ \t]*(?:#|%:).*\b(?:__h|__ha|__has|__has_|__has_[ie]\w*|_?has_(?:include|embed)\w*)\b", re.M)
_NAMED = re.compile(rb"<([^<>\"\n]+)>|\"([^<>\"\n]+)\"")
_LITERAL = re.compile(rb"\s*\(\s*(?:<[^>\n]+>|\"[^\"\n]+\")\s*\)")
_WORD_BETWEEN = re.compile(rb"\s*\(\s*<([^>\n]*)>")
_ARGUMENT = re.compile(rb"\s*\(\s*(\w+)\s*\)")
_DEFINITION = re.compile(rb"(?:#|%:)[ \t]*define[ \t]+(\w+)(?:\(([^)\n]*)\))?([^\n]*)")
# A test for the operator itself is not about a file.
_IF_DEFINED = re.compile(rb"\bdefined\s*(?:\(\s*\w+\s*\)|\w+)|(?:#|%:)[ \t]*(?:ifn?def|elifn?def|undef)[ \t]+\w+")
_DIRECTIVE = re.compile(rb"^[ \t\f\v\r]*(?:#|%:).*", re.MULTILINE)
_GOES_ON = re.compile(rb"^[ \t\f\v\r]*(?:#|%:)(?:[^\n/]|/(?!\*)|/\*[^\n]*?\*/)*/\*(?![^\n]*\*/)", re.MULTILINE)
_CONTINUED = re.compile(rb"\\[ \t]*\r?\n")
_COMMENT_OR_TEXT = re.compile(
    rb"""//[^\n]*|/\*.*?(?:\*/|\Z)|(?:u8|[uUL])?R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


class Names(NamedTuple):
    """The names in the op's files.

    Attributes:
        asked: the names that may be tested for with `__has_include`, except those in `climbing`.
        named: all names, with the folder of the file.
        climbing: those with a `../`.
        is_known: whether no others are tested for.
    """

    asked: tuple[str, ...]
    named: tuple[tuple[str, str], ...]
    climbing: tuple[tuple[str, str], ...]
    is_known: bool


def names_in(files: Mapping[str, bytes], flags: bytes = b"") -> Names:
    """The names in the op's files.

    Args:
        files: their directives (`directives_in`), by path.
        flags: the macros that flags define, as `#define` lines.
    """
    texts = {**files, "": flags}
    named = dict.fromkeys(
        (os.path.dirname(path), os.fsdecode(match[1] or match[2]))
        for path, text in texts.items()
        for match in _NAMED.finditer(text)
    )
    asks, is_known = _asks(texts.values())
    asked = (os.path.normpath(name).lstrip("/") for _, name in named if "../" not in name) if asks else ()
    climbing = tuple(pair for pair in named if "../" in pair[1])
    return Names(tuple(dict.fromkeys(asked)), tuple(named), climbing, is_known)


def definitions_in(flags: Iterable[str], dialect: Dialect = "c++") -> bytes:
    """The macros that flags define, as `#define` lines."""
    defined = [flag.value for flag, _ in expand(flags, dialect) if flag.name in ("-D", "--define-macro")]
    lines = [f"#define {' '.join(text.split('=', 1))}\n" for text in defined]
    return "".join(lines).encode(errors="surrogateescape")


def directives_in(text: bytes) -> bytes:
    """The lines of directives, each joined with those that continue it, with a space for each comment."""
    text = _CONTINUED.sub(b"", text) if b"\\" in text else text
    if _GOES_ON.search(text) is not None:  # a comment in a directive ends on another line, and the directive after it
        text = _COMMENT_OR_TEXT.sub(_blank, text)
    return b"".join(b"%s\n" % _COMMENT_OR_TEXT.sub(_blank, line) for line in _DIRECTIVE.findall(text))


def _blank(match: re.Match[bytes]) -> bytes:
    return b" " if match[0].startswith(b"/") else match[0]


def _asks(texts: Iterable[bytes]) -> tuple[bool, bool]:
    """Whether texts test for files, and whether each name is literally in a text."""
    texts = [_IF_DEFINED.sub(b" ", text) for text in texts]
    definitions = [match for text in texts for match in _DEFINITION.finditer(text)]
    macros = {match[1] for match in definitions} | {b"linux", b"unix"}  # GCC defines these
    asking = _asking(definitions)
    asks, is_known = False, True
    if any(b"##" in text for text in texts) and any(_PIECE.search(asking.sub(b"", text)) for text in texts):
        asks, is_known = True, False
    parts = [(_DEFINITION.sub(b" ", text), None) for text in texts]
    bodies = [(match[3], [name.strip() for name in (match[2] or b"").split(b",")]) for match in definitions]
    for part, parameters in (*parts, *bodies):
        for match in asking.finditer(part):
            asks = True
            if _LITERAL.match(part, match.end()) is not None:
                # The words between < and > may be macros, unless the operator itself is in the `#if`.
                between = _WORD_BETWEEN.match(part, match.end())
                if between is not None and (parameters is not None or not match[0].startswith(b"__has_")):
                    is_known &= not ({*re.findall(rb"\w+", between[1])} & {*macros, *(parameters or ())})
            elif parameters is None or not _passes_on(part[match.end() :], parameters):
                is_known = False
    return asks, is_known


def _asking(definitions: Iterable[re.Match[bytes]]) -> re.Pattern[bytes]:
    """A pattern of the words that test for a file: the operators, and macros that lead to them."""
    aliases: set[bytes] = set()
    while True:
        words = b"|".join([_OPERATOR, *sorted(aliases)])
        pattern = re.compile(rb"\b(?:%s)\b" % words, re.IGNORECASE)
        found = {match[1] for match in definitions if pattern.search(match[3])}
        if found <= aliases:
            return pattern
        aliases |= found


def _passes_on(rest: bytes, parameters: list[bytes]) -> bool:
    """Whether a macro's definition ends here, or continues with one of its parameters in parentheses: then each use of
    the macro has the name."""
    argument = _ARGUMENT.match(rest)
    return not rest.strip() if argument is None else argument[1] in parameters
