"""Signals that end a command: its compilers end with it, and its exit status says which signal it was."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import typer

from kjit.cli import console

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
