"""Which calls with CPU tensors run in the simulator?

`KJIT_SIM` is the user's answer for a whole process, and is about ops that have no CPU kernel: all others have something
better to do with such tensors. `simulated()` is a test's answer: inside it every CUDA kernel runs in the simulator,
that of an op with a CPU kernel too. What was loaded before stays loaded, and is what calls get again afterwards.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kjit import env
from kjit.spec import Side, Target


class Switched(Protocol):
    """Something that keeps loaded modules by device."""

    def switch(self, mode: object) -> None:
        """Put aside what is kept, and take out what was put aside under `mode`."""


_inside: env.Simulation | None = None
_switched: weakref.WeakSet[Switched] = weakref.WeakSet()


def mode() -> env.Simulation | None:
    """The simulator that a `simulated()` around this call asks for, or None."""
    return _inside


def follow(keeper: Switched) -> None:
    """Have `keeper` told whenever a `simulated()` begins or ends."""
    keeper.switch(_inside)
    _switched.add(keeper)


def simulated_target(sides: tuple[Side, ...]) -> Target | None:
    """The simulator, if a call with CPU tensors of an op with `sides` runs in it.

    Raises:
        UsageError: `KJIT_SIM` is set to something that means nothing.
    """
    if "cuda" not in sides:
        return None
    chosen = _inside or (None if "cpu" in sides else env.simulation())
    return None if chosen is None else Target(chosen)


@contextmanager
def simulated(*, check: bool = False) -> Iterator[None]:
    """Inside it, CUDA kernels that are called with CPU tensors run in the simulator, whatever else their ops have.

        with kjit.testing.simulated():
            scale(torch.ones(3))

    It holds for all threads of the process.

    Args:
        check: look for mistakes in the kernels too.
    """
    before = _inside
    _switch("sim-check" if check else "sim")
    try:
        yield
    finally:
        _switch(before)


def _switch(to: env.Simulation | None) -> None:
    global _inside
    if to == _inside:
        return
    _inside = to
    for keeper in list(_switched):
        keeper.switch(to)
