"""The progress of builds: a live display on a terminal, otherwise one line per event."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kjit.cli import console, text

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

    from kjit.engine.outcomes import Event, Outcome
    from kjit.spec import Variant

_WORTH_TELLING_S = 10.0  # a remaining time that is worth showing


@contextlib.contextmanager
def progress(total: int, verbose: bool) -> Iterator[Callable[[Event], None]]:
    """A function for the events of a build of `total` variants.

    Args:
        verbose: print one line per event on a terminal, too, with the commands.
    """
    from kjit.engine.estimate import Estimate
    from kjit.engine.outcomes import Queued, Started

    done = 0
    estimate = Estimate()

    def log(event: Event) -> None:
        nonlocal done
        estimate.on_event(event, time.monotonic())
        if isinstance(event, Queued):
            return
        if isinstance(event, Started):
            console.note(f"compiling {event.variant.label}: {event.reason}")
            return
        done += 1
        if event.state != "hit":
            left = estimate.seconds_left(time.monotonic()) or 0.0
            more = f", about {text.seconds(left)} left" if left >= _WORTH_TELLING_S else ""
            console.note(f"[{done}/{total}] {event.state} {event.variant.label} in {event.seconds:.1f} s{more}")
        if verbose and event.artifact is not None and event.state == "built":
            _print_commands(event)

    if not console.is_live() or verbose or not total:
        yield log
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
    from rich.text import Text

    class Done(MofNCompleteColumn):
        """The number of finished variants, in the line of the total only."""

        def render(self, task: Task) -> Text:
            return Text() if task.total is None else super().render(task)

    class Times(ProgressColumn):
        """Elapsed and expected time of a compile, and of the total."""

        def render(self, task: Task) -> Text:
            since = text.seconds(task.elapsed or 0.0)
            variant = task.fields.get("variant")
            if variant is None:
                left = estimate.seconds_left(time.monotonic())
                return Text(f"{since}, about {text.seconds(left)} left" if left else since)
            expected = estimate.expected(variant)
            return Text(since if expected is None else f"{since} of about {text.seconds(expected)}")

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Done(), Times())
    with Progress(*columns, console=console.err(), transient=True) as display:
        everything = display.add_task("building", total=total)
        running: dict[Variant, Any] = {}

        def show(event: Event) -> None:
            estimate.on_event(event, time.monotonic())
            if isinstance(event, Queued):
                return
            if isinstance(event, Started):
                if event.variant not in running:  # it may be compiled again
                    label = f"  {event.variant.label}"
                    running[event.variant] = display.add_task(label, total=None, variant=event.variant)
                return
            if event.variant in running:
                display.remove_task(running.pop(event.variant))
            display.advance(everything)

        yield show


def _print_commands(outcome: Outcome) -> None:
    """Print the compiler of a new artifact, and its commands."""
    from kjit.engine.reports import compiler_of, made_by

    assert outcome.artifact is not None  # it was built
    console.note(f"  {made_by(*compiler_of(outcome.artifact))}")
    commands = outcome.artifact.build.get("commands")
    for command in commands if isinstance(commands, list) else []:
        console.note(f"  {command}")
