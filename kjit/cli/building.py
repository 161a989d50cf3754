"""Variants built by a command: with progress, until a signal, with each error shown once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from kjit.cli import console, text
from kjit.cli.interrupts import ended_by_signals
from kjit.cli.progress import progress
from kjit.errors import CompileError, KjitError

if TYPE_CHECKING:
    from kjit.engine.cache.store import Store
    from kjit.engine.outcomes import Outcome
    from kjit.spec import Variant


def build_variants(
    variants: list[Variant], store: Store, *, jobs: int | None = None, verbose: bool = False, to_ship: bool = False
) -> list[Outcome]:
    """The outcome of each variant.

    Args:
        jobs: how many units are compiled at once; None: as many as fit.
        verbose: show the commands and the compilers' whole output.
        to_ship: the artifacts are for other machines.

    Raises:
        Exit: a signal ended the build.
    """
    from kjit.engine import pool
    from kjit.engine.compile.jobs import parallel_jobs, units_of

    at_once = parallel_jobs(variants, jobs)
    if jobs is not None and at_once < min(jobs, units_of(variants)):
        console.note(f"{text.count(at_once, 'compile')} at once instead of {jobs}: there is not enough free memory.")
    with ended_by_signals() as cancel, progress(len(variants), verbose) as on_event:
        return pool.build_all(
            variants, store, jobs=jobs, on_event=on_event, verbose=verbose, must_last=not to_ship, cancel=cancel
        )


def exit_on_failures(outcomes: Iterable[Outcome], consequence: str | None = None) -> None:
    """Print the errors of failed variants, with the consequence, and end the command.

    Raises:
        Exit: with status 1, if a variant failed.
    """
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    if failures:
        print_errors(failures)
        if consequence is not None:
            console.note(consequence)
        raise typer.Exit(1)


def print_errors(errors: Iterable[KjitError]) -> None:
    """Print each error once, as a mistake in a source affects all its variants."""
    known: set[str] = set()
    for error in errors:
        head, _, detail = error.message.partition("\n")
        if not isinstance(error, CompileError):
            detail = error.message
        # The template arguments differ between variants.
        same = "\n".join(line for line in detail.splitlines() if not line.startswith(("  in ", "  at ")))
        if same not in known:
            console.print_error(error.message, error.hint)
        elif isinstance(error, CompileError):
            console.print_error(f"{head} (as above)", None)
        known.add(same)
