"""C++ and CUDA files that are written for tests: their exports, which are the plain functions, and marked lines."""

from __future__ import annotations

import re
from pathlib import Path

_FUNCTION = re.compile(
    r"(?P<before>[^\n]*)\n(?!static |inline |constexpr |template|extern|using |__)"
    r"[\w:]+(?:<[^()\n]*>)?[&*]* (?P<name>\w+)\((?=[^;{]*\{)"
)
_CASE = re.compile(r"^CASE\((\w+)", re.MULTILINE)
_EXPORT = re.compile(r"^KJIT_EXPORT\((\w+)", re.MULTILINE)


def functions_of(source: Path) -> list[tuple[str, str]]:
    """The functions of a file as wrappers: those that are no templates, neither static nor inline nor for the GPU, and
    that the file itself does not export; and those that a macro `CASE(name, ...)` of the file defines."""
    text = source.read_text("utf-8")
    exported = set(_EXPORT.findall(text))
    names = [
        match["name"]
        for match in _FUNCTION.finditer(text)
        if not match["before"].startswith(("template", "  requires")) and not match["before"].endswith("\\")
    ]
    return [(name, name) for name in [*names, *_CASE.findall(text)] if name not in exported]


def place_of(source: Path, mark: str) -> str | None:
    """`file:line` of the line that ends with this mark in a comment; None if there is none."""
    for number, line in enumerate(source.read_text("utf-8").splitlines(), 1):
        if line.endswith(f"// {mark}"):
            return f"{source.name}:{number}"
    return None
