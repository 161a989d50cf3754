"""Confirmation before irreversible actions."""

from __future__ import annotations

import sys

import typer

from kjit.cli import console
from kjit.errors import UsageError


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
    console.note(nothing)
    return False
