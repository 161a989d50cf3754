"""Names in sources that may refer to files which did not exist during the compile.

`__has_include` tests for a file that may appear later. A name with `../` leaves the searched folders, and may refer to
another file once that exists. Both are found in the text, conservatively: a needless compile is better than a wrong
hit.

The name in a `__has_include` may come from a macro, a stringised argument or an alias. If it is not literally in the
text, the file is unknown, and any new file in the searched folders counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from kjit.engine.key.macros import Definitions, joined, without_comments, words

_ASKING = (b"__has_include", b"__has_include_next", b"__has_embed")
# Parts from which `##` may form one of them.
_PIECE = re.compile(rb"\b(?:__h|__ha|__has|__has_|__has_i\w{0,5}|__has_e\w{0,3}|_?has_include(?:_next)?|_?has_embed)\b")
_LITERAL = re.compile(rb"\s*\(\s*(?:<([^>\n]+)>|\"([^\"\n]+)\")\s*\)")
# GCC's own macros that look like the folder of a header.
_MACROS_OF_GCC = (b"linux", b"unix")
# The operator, or its parts, are in an `#if` or in the definition of a macro that an `#if` uses.
_DIRECTIVE = re.compile(rb"^[ \t\f\v\r]*(?:#|%:).*", re.MULTILINE)
# A test for the operator itself is not about a file.
_IF_DEFINED = re.compile(rb"\bdefined\s*(?:\(\s*\w+\s*\)|\w+)|(?:#|%:)[ \t]*(?:ifn?def|elifn?def|undef)[ \t]+\w+")
_ARGUMENT = re.compile(rb"\s*\(\s*(\w+)\s*\)")
_DEFINITION = re.compile(rb"(?:#|%:)[ \t]*define[ \t]+(\w+)(?:\(([^)\n]*)\))?([^\n]*)")
_INCLUDE = re.compile(rb"(?:#|%:)\s*(?:include|include_next|import)\s*(?:<([^>\n]+)>|\"([^\"\n]+)\")")
_COMMENT_INSIDE = re.compile(rb"(?:#|%:)[ \t]*(?:/\*|(?:include|include_next|import|define)\s*/\*)")
# Parts from which a macro may form a name.
_NAMES = re.compile(rb"<([^<>\"\n]+)>|\"([^<>\"\n]+)\"")


class Names(NamedTuple):
    """The names that files include or test for.

    Attributes:
        asked: the names that the op's files test for with `__has_include`, except those in `climbing`.
        by_others: the names that the files of compilers and toolkits test for.
        included: the names that the op's files include, with the folder of the file.
        climbing: names with a `../` that the op's files test for or include, with the folder of the file.
        is_known: whether the op's files test for no others. If they may, `asked` has those that are literally in the
            text.
    """

    asked: tuple[str, ...]
    by_others: tuple[str, ...]
    included: tuple[tuple[str, str], ...]
    climbing: tuple[tuple[str, str], ...]
    is_known: bool


def names_in(own: Mapping[str, bytes], others: Mapping[str, bytes], flags: bytes, definitions: Definitions) -> Names:
    """The names that files test for with `__has_include`, and those with a `../`.

    Args:
        own: the contents of the op's files, by path.
        others: those of the files of compilers, toolkits and kjit, or only the lines that may ask.
        flags: the macros that flags define, as `#define` lines.
        definitions: the macros of all these.
    """
    asked: dict[tuple[str, str], None] = {}
    included: dict[tuple[str, str], None] = {}
    unknown_in: list[str] = []
    texts = {path: _readable(text) for path, text in own.items()}
    texts[""] = flags
    ways = definitions.leading_to(_ASKING)
    asking = words(ways)
    macros = {match[1] for text in texts.values() for match in _DEFINITION.finditer(text)}.union(_MACROS_OF_GCC)
    pastes = any(b"##" in text for text in texts.values())
    for path, text in texts.items():
        folder = os.path.dirname(path)
        for match in _INCLUDE.finditer(text):
            included[folder, os.fsdecode(match[1] or match[2])] = None
        if not any(way in text for way in ways) and not (pastes and _has_piece(text)):
            continue
        text = without_comments(text)
        names, is_known = _asked_in(text, asking, macros)
        asked.update(((folder, os.fsdecode(name)), None) for name in names)
        if not is_known or (pastes and _has_piece(asking.sub(b"", text))):
            unknown_in.append(folder)
    if unknown_in:
        every = [match[1] or match[2] for text in texts.values() for match in _NAMES.finditer(text)]
        asked.update(((folder, os.fsdecode(name)), None) for folder in unknown_in for name in every)
    by_others = [name for text in others.values() for name in _asked_in(lines_that_may_ask(text), asking, ())[0]]
    climbing = [pair for pair in (*asked, *included) if "../" in pair[1]]
    return Names(
        _straight(name for _, name in asked),
        _straight(map(os.fsdecode, by_others)),
        tuple(included),
        tuple(climbing),
        not unknown_in,
    )


def _readable(text: bytes) -> bytes:
    """`text` with continued lines joined, and without comments between the words of a directive. (Finding all other
    comments would double the time.)"""
    text = joined(text)
    return without_comments(text) if _COMMENT_INSIDE.search(text) is not None else text


def _has_piece(text: bytes) -> bool:
    """Whether a directive has a word from which `##` may form the operator."""
    if not any(part in text for part in (b"__h", b"has_include", b"has_embed")):
        return False
    return _PIECE.search(text) is not None and any(map(_PIECE.search, _DIRECTIVE.findall(text)))


def lines_that_may_ask(text: bytes) -> bytes:
    """The few relevant lines in the headers of compilers and toolkits, which have megabytes."""
    if b"has_include" not in text and b"HAS_INCLUDE" not in text:
        return b""
    return b"\n".join(line for line in joined(text).split(b"\n") if b"has_include" in line or b"HAS_INCLUDE" in line)


def _straight(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.normpath(name).lstrip("/") for name in names if "../" not in name))


def _asked_in(text: bytes, asking: re.Pattern[bytes], macros: Container[bytes]) -> tuple[list[bytes], bool]:
    """The names that a text tests for literally, and whether it tests for no others."""
    text = _IF_DEFINED.sub(b" ", text)
    if asking.search(text) is None:
        return [], True
    names: list[bytes] = []
    is_known = True
    parts: list[tuple[bytes, list[bytes] | None]] = [(_DEFINITION.sub(b" ", text), None)]
    for definition in _DEFINITION.finditer(text):
        parts.append((definition[3], [name.strip() for name in (definition[2] or b"").split(b",")]))
    for part, parameters in parts:
        for match in asking.finditer(part):
            literal = _LITERAL.match(part, match.end())
            if literal is not None:
                names.append(literal[1] or literal[2])
                # The text between < and > may be a macro, unless the operator itself is in the `#if`.
                in_macro = parameters is not None or match[0] not in _ASKING
                for word in re.findall(rb"\w+", literal[1] or b"") if in_macro else ():
                    is_known &= word not in macros and word not in (parameters or ())
            elif parameters is None or not _passes_on(part[match.end() :], parameters):
                is_known = False
    return names, is_known


def _passes_on(rest: bytes, parameters: list[bytes]) -> bool:
    """Whether a macro's definition ends here, or continues with one of its parameters in parentheses: then each use of
    the macro has the name."""
    argument = _ARGUMENT.match(rest)
    return not rest.strip() if argument is None else argument[1] in parameters
