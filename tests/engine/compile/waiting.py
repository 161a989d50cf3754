"""Waits of tests for other processes."""

from __future__ import annotations

import time
from collections.abc import Callable

_PATIENCE_S = 30.0


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fail with `what` if it does not come true."""
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
