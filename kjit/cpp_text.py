"""Patterns for C++ text: literals, numbers, names, comments, and the line markers of a preprocessor.

The only place that says what these look like; cpp_functions.py finds functions. No imports besides `re`: programs of a
build start with it for every unit.
"""

from __future__ import annotations

import re

LITERAL = (
    r"""(?:u8|[uUL])?(?:R"(?P<fence>[^()\\\s]{0,16})\([\s\S]*?\)(?P=fence)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')"""
)
"""A string or a character, with a group `fence`."""

NUMBER = r"\.?\d(?:[eEpP][+-]|'\w|[\w.])*"
"""A number, with the quotes that separate its digits."""

NAME = r"[^\x00-\x23%-@\[-^`\x7b-\x7f][\w$]*"

COMMENT = r"//(?:\\\n|[^\n])*|/\*[\s\S]*?\*/"

MARKER = r'# (?P<line>\d+) "(?P<file>(?:\\.|[^"\\])*)"(?P<flags>.*)'
"""A line marker, after the beginning of its line."""

PROSE = re.compile(rf"{COMMENT}|(?<![\w$])(?P<number>{NUMBER})|(?P<literal>{LITERAL})")
"""Comments and literals; and numbers, whose quotes begin no literal."""

_DIRECTIVE = r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*"


def blanked(text: str, *, directives: bool = True) -> str:
    """The text with spaces in place of comments and literals; all else stays at its line and column.

    Args:
        directives: whether the preprocessor's lines are blanked as well.
    """

    def blank(match: re.Match[str]) -> str:
        return match[0] if match["number"] else re.sub(r"[^\n]", " ", match[0])

    pattern = re.compile(f"{PROSE.pattern}|{_DIRECTIVE}", re.MULTILINE) if directives else PROSE
    return pattern.sub(blank, text)
