"""Output of the commands: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING

import typer

from kjit import env
from kjit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


# The base of what typer raises for a command line that it cannot read. It comes from click, of which some versions of
# typer have a copy of their own, and none gives it a name.
Unreadable: type[Exception] = typer.BadParameter.mro()[2]


@cache
def out() -> Console:
    """The console for results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


@cache
def err() -> Console:
    """The console for progress, notes and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def is_terminal() -> bool:
    """Whether results go to a terminal, not just to something that supports colours (`FORCE_COLOR`)."""
    return sys.stdout.isatty()


def is_live() -> bool:
    """Whether progress can be redrawn: stderr is a terminal that can move its cursor."""
    return sys.stderr.isatty() and err().is_interactive and not env.is_in_ci()


def say(text: str = "") -> None:
    """Print one line of result, without markup."""
    out().print(text, markup=False)


def note(text: str) -> None:
    """Print one line that is not a result, such as a side effect or an omission."""
    err().print(text, markup=False)


def print_error(message: str, hint: str | None) -> None:
    """Print an error in the common form: one sentence, then a hint."""
    err().print(f"[bold red]error:[/] {_escape(message)}")
    if hint is not None:
        err().print(f"[bold]hint:[/] {_escape(hint)}")


def print_json(value: object) -> None:
    """Print `value` as JSON, for scripts (`--json`)."""
    sys.stdout.write(f"{json.dumps(value, indent=2)}\n")


def print_json_rows(values: Sequence[object]) -> None:
    """Print a list as JSON, one element per line: four times as fast as `print_json` for thousands."""
    sys.stdout.write("[\n" + ",\n".join(map(json.dumps, values)) + "\n]\n" if values else "[]\n")


def confirm(what: str, *, nothing: str, yes: bool) -> bool:
    """Whether to proceed.

    Args:
        what: the question: `Remove`.
        nothing: the message if the answer is no: `Nothing was removed.`
        yes: it was answered on the command line.

    Raises:
        UsageError: there is no terminal to ask on.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"stdin is not a terminal, so nobody can confirm to {what[:1].lower()}{what[1:]} this.",
            hint="add --yes, or see the changes with --dry-run",
        )
    if typer.confirm(f"{what}?", err=True):
        return True
    note(nothing)
    return False


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
