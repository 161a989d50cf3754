"""Variants built by a command: with progress, until a signal, with each error shown once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import typer

from kjit.cli import console, text
from kjit.errors import CompileError, KjitError

if TYPE_CHECKING:
    from kjit.engine.cache.store import Store
    from kjit.engine.outcomes import Event, Outcome
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
    with ended_by_signals() as cancel, _progress(len(variants), verbose) as on_event:
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


@contextlib.contextmanager
def _progress(total: int, verbose: bool) -> Iterator[Callable[[Event], None]]:
    """A function for the events of a build of `total` variants.

    Args:
        verbose: print one line per event on a terminal, too, with the commands.
    """
    from kjit.engine.outcomes import Started
    from kjit.engine.reports import compiler_of, made_by

    done = 0

    def log(event: Event) -> None:
        nonlocal done
        if isinstance(event, Started):
            console.note(f"compiling {event.variant.label}: {event.reason}")
            return
        done += 1
        if event.state != "hit":
            console.note(f"[{done}/{total}] {event.state} {event.variant.label} in {event.seconds:.1f} s")
        if verbose and event.artifact is not None and event.state == "built":
            console.note(f"  {made_by(*compiler_of(event.artifact))}")
            for command in event.artifact.build.get("commands", ()):
                console.note(f"  {command}")

    if not console.is_live() or verbose or not total:
        yield log
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    what = TextColumn("{task.description}")
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), what)
    with Progress(*columns, console=console.err(), transient=True) as display:
        task = display.add_task("building", total=total)

        def show(event: Event) -> None:
            if not isinstance(event, Started):
                display.advance(task)
            display.update(task, description=event.variant.label)

        yield show


_ENDED_BY = 128  # plus the signal's number, as in shells


@contextlib.contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """End the compilers when this process is terminated (by Ctrl-C, CI, or a closed terminal), then the command.

    That takes a few seconds at most (run.py), during which further signals are ignored, as they would leave the work
    half done. Yields an event that is set by the signal: Python drops an exception raised in a `__del__` or a callback
    of a weak reference, and the event reaches the waiting code anyway.

    Raises:
        Exit: with the status of a shell for that signal.
    """
    cancel = threading.Event()
    heard = signal.SIGINT

    def leave(number: int, frame: object) -> None:
        nonlocal heard
        del frame
        if cancel.is_set():
            return
        heard = signal.Signals(number)
        cancel.set()
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Ignored signals stay ignored: SIGHUP under nohup, SIGINT in background jobs of a script.
    listened = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in listened}
    try:
        yield cancel
    except (KeyboardInterrupt, CancelledError):
        if heard == signal.SIGINT:
            console.note("Interrupted. Finished artifacts are kept.")
        raise typer.Exit(_ENDED_BY + heard) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
