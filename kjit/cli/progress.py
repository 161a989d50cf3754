"""The progress of builds: a live display on a terminal, otherwise one line per event."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kjit.cli import console

if TYPE_CHECKING:
    from kjit.engine.outcomes import Event, Outcome


@contextlib.contextmanager
def progress(total: int, verbose: bool) -> Iterator[Callable[[Event], None]]:
    """A function for the events of a build of `total` variants.

    Args:
        verbose: print one line per event on a terminal, too, with the commands.
    """
    from kjit.engine.outcomes import Started

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
            _print_commands(event)

    if not console.is_live() or verbose or not total:
        yield log
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console.err(), transient=True) as display:
        task = display.add_task("building", total=total)

        def show(event: Event) -> None:
            if not isinstance(event, Started):
                display.advance(task)
            display.update(task, description=event.variant.label)

        yield show


def _print_commands(outcome: Outcome) -> None:
    """Print the compiler of a new artifact, and its commands."""
    from kjit.engine.reports import compiler_of, made_by

    assert outcome.artifact is not None  # it was built
    console.note(f"  {made_by(*compiler_of(outcome.artifact))}")
    commands = outcome.artifact.build.get("commands")
    for command in commands if isinstance(commands, list) else []:
        console.note(f"  {command}")
