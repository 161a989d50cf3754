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
_LITERAL = re.compile(rb"\s*\(\s*(?:<([^>\n]+)>|\"([^\"\n]+)\")\s*\)")
_ARGUMENT = re.compile(rb"\s*\(\s*(\w+)\s*\)")
_DEFINITION = re.compile(rb"(?:#|%:)[ \t]*define[ \t]+(\w+)(?:\(([^)\n]*)\))?([^\n]*)")
# A test for the operator itself is not about a file.
_IF_DEFINED = re.compile(rb"\bdefined\s*(?:\(\s*\w+\s*\)|\w+)|(?:#|%:)[ \t]*(?:ifn?def|elifn?def|undef)[ \t]+\w+")
_DIRECTIVE = re.compile(rb"^[ \t\f\v\r]*(?:#|%:).*", re.MULTILINE)
_CONTINUED = re.compile(rb"\\[ \t]*\r?\n")
_COMMENT_OR_TEXT = re.compile(
    rb"""//[^\n]*|/\*.*?(?:\*/|\Z)|(?:u8|[uUL])?R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


class Names(NamedTuple):
    """The names in the op's files.

    Attributes:
        asked: the names that are tested for with `__has_include`, or may be if not all are known; except those in
            `climbing`.
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
    literal, is_known = _asked_in(texts.values())
    every = map(os.fsdecode, literal) if is_known else (name for _, name in named)
    asked = (os.path.normpath(name).lstrip("/") for name in every if "../" not in name)
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
    lines = _DIRECTIVE.findall(text)
    if any(_goes_on(line) for line in lines):  # a comment in it ends on another line, where the directive continues
        lines = _DIRECTIVE.findall(_COMMENT_OR_TEXT.sub(_blank, text))
    return b"".join(b"%s\n" % _COMMENT_OR_TEXT.sub(_blank, line) for line in lines)


def _goes_on(line: bytes) -> bool:
    """Whether a comment begins in a line and does not end there."""
    if b"/*" not in line:
        return False
    comments = (match[0][2:] for match in _COMMENT_OR_TEXT.finditer(line) if match[0][:2] == b"/*")
    return any(not comment.endswith(b"*/") for comment in comments)


def _blank(match: re.Match[bytes]) -> bytes:
    return b" " if match[0].startswith(b"/") else match[0]


def _asked_in(texts: Iterable[bytes]) -> tuple[list[bytes], bool]:
    """The names that texts literally test for, and whether there are no others."""
    texts = [_IF_DEFINED.sub(b" ", text) for text in texts]
    definitions = [match for text in texts for match in _DEFINITION.finditer(text)]
    macros = {match[1] for match in definitions} | {b"linux", b"unix"}  # GCC defines these
    asking = _asking(definitions)
    pastes = any(b"##" in text for text in texts)
    asked: list[bytes] = []
    is_known = not (pastes and any(_PIECE.search(asking.sub(b"", text)) for text in texts))
    parts = [(_DEFINITION.sub(b" ", text), None) for text in texts]
    bodies = [(match[3], [name.strip() for name in (match[2] or b"").split(b",")]) for match in definitions]
    for part, parameters in (*parts, *bodies):
        for match in asking.finditer(part):
            literal = _LITERAL.match(part, match.end())
            if literal is not None:
                asked.append(literal[1] or literal[2])
                # The words between < and > may be macros, unless the operator itself is in the `#if`.
                if literal[1] and (parameters is not None or not match[0].startswith(b"__has_")):
                    is_known &= not ({*re.findall(rb"\w+", literal[1])} & {*macros, *(parameters or ())})
            elif parameters is None or not _passes_on(part[match.end() :], parameters):
                is_known = False
    return asked, is_known


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
