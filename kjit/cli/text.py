"""Formatting of tables, sizes and times; parsing of times in arguments."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kjit.cli import console
from kjit.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}

_COLORS = {"green": ("hit", "built"), "yellow": ("stale",), "bold red": ("failed",), "dim": ("not built",)}
"""Colours of the words for states."""


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table at its full width: a narrow terminal wraps its lines.

    Args:
        rows: shorter rows are filled with empty cells.
        right: the right-aligned columns.
    """
    widths = [max(map(len, column)) for column in itertools.zip_longest(header, *rows, fillvalue="")]
    is_right = [name in right for name in header]
    lines = [
        [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, is_right, strict=False)
        ]
        for row in (header, *rows)
    ]
    if not console.out().is_terminal:  # and nothing that wants colours
        sys.stdout.write("".join("  ".join(line).rstrip() + "\n" for line in lines))
        sys.stdout.flush()  # before later output on stderr
        return
    from rich.text import Text

    for number, line in enumerate(lines):
        cells = [Text(cell) for cell in line]
        for color, states in _COLORS.items() if number and "state" in header else ():
            cells[header.index("state")].highlight_words(states, color)
        text = Text("  ").join(cells)
        text.rstrip()
        console.out().print(text, style="" if number else "bold")


def path(path: Path) -> str:
    """A path relative to the current folder, if it is inside."""
    try:
        return os.path.relpath(path)
    except FileNotFoundError:  # that folder is gone
        return str(path)


def size(count: int) -> str:
    """Bytes: `15.2 KiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def age(when: float) -> str:
    """The age of a time in seconds since 1970: `3 d`."""
    seconds = max(time.time() - when, 0.0)
    for unit in ("w", "d", "h", "m"):
        if seconds >= 2 * _UNITS[unit] or (seconds >= _UNITS[unit] and unit != "w"):
            return f"{seconds / _UNITS[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def duration(text: str) -> float:
    """Seconds, from `30d`, `12h`, `90m` or `2w`.

    Raises:
        UsageError: it has another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not a duration.", hint="write it like 30d, 12h or 90m")
    return float(match[1]) * _UNITS[match[2]]


def seconds(value: float) -> str:
    """`4 s`, `2 m 5 s`."""
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} m {rest} s" if minutes else f"{rest} s"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 artifact`, `2 artifacts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"
