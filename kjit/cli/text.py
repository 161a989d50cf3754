"""Formatting of tables, sizes and times; parsing of times in arguments."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.cli import console
from kjit.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_NO_WIDTH = 10_000
_MIN_WORDS = 24
_BETWEEN = 2  # blanks between columns


def table(left: tuple[str, ...], right: tuple[str, ...] = (), last: tuple[str, ...] = ()) -> Table:
    """An empty table with these columns: words on the left, numbers to the right, words again."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in (*left, *right, *last):
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name not in last)
    return made


def print_table(made: Table) -> None:
    """Print a table without truncation: a narrow terminal wraps the lines, and a pipe has no width.

    The words of the `last` columns are wrapped within their column, if the terminal is too narrow for them.
    """
    if not console.out().is_terminal:  # and nothing that wants colours: there is no need for what takes rich long
        columns = [[_plain(cell) for cell in (column.header, *column.cells)] for column in made.columns]
        header, *rows = zip(*columns, strict=True)
        is_right = [column.justify == "right" for column in made.columns]
        print_rows(header, rows, tuple(itertools.compress(header, is_right)))
        return
    from rich.console import Console
    from rich.measure import Measurement

    width = _NO_WIDTH
    if console.is_terminal():
        # rich would shrink all columns of a table that is too wide, down to nothing.
        wide = Console(width=_NO_WIDTH)
        needed = [
            max(Measurement.get(wide, wide.options, cell).maximum for cell in (column.header, *column.cells))
            if column.no_wrap
            else _MIN_WORDS
            for column in made.columns
        ]
        width = max(console.out().width, sum(needed) + _BETWEEN * (len(needed) - 1))
    Console(width=width, highlight=False).print(made)


def _plain(cell: RenderableType) -> str:
    """The text of a cell, without colours."""
    from rich.text import Text

    assert isinstance(cell, str), cell
    return Text.from_markup(cell).plain if "[" in cell else cell


def print_rows(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[str, ...] = ()) -> None:
    """Print a table of plain text at its full width, for thousands of rows, which would take rich seconds.

    Args:
        rows: shorter rows are filled with empty cells.
        right: the right-aligned columns.
    """
    widths = [max(map(len, column)) for column in itertools.zip_longest(header, *rows, fillvalue="")]
    is_right = [name in right for name in header]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, is_right, strict=False)
        ]
        lines.append("  ".join(cells).rstrip())
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()  # before later output on stderr


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
