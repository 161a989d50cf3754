"""CPU levels: instruction sets that libraries in bundles are built for.

`-march=native` restricts a library to CPUs with all instructions of this one. Bundles are therefore built for levels:
instruction sets common to a generation of CPUs, each with a name that compilers know. The highest level supported by
the CPU is loaded. Several levels cost a few libraries of some ten KiB each; a single one would either not use new CPUs
fully, or not run on old ones. Function multiversioning would need only one library, but every function would have to be
marked. (Google Highway marks them: kjit/highway.h.)

Source of the x86-64 levels: System V ABI, AMD64 supplement, "Micro-Architecture Levels"; the first is left out, as
torch does not run on a CPU without SSE 4.2. Source of the features of Arm's levels: Arm Architecture Reference Manual
for A-profile, and Linux, "ARM64 ELF hwcaps".
"""

from __future__ import annotations

import platform

from kjit.errors import UsageError
from kjit.runtime.bundle import LEVELS
from kjit.runtime.bundle import Level as Level
from kjit.runtime.bundle import levels_here as levels_here


def levels() -> tuple[Level, ...]:
    """The levels of this machine's kind of CPU, lowest first.

    Raises:
        UsageError: none are defined for its kind of CPU.
    """
    known = LEVELS.get(platform.machine())
    if known is None:
        raise UsageError(
            f"for a CPU of the kind '{platform.machine()}' no levels are known, and a bundle needs one.",
            hint=f"bundles for the CPU are built on {' or '.join(LEVELS)}; `--target cuda` leaves the CPU out",
        )
    return known


def find_level(name: str) -> Level:
    """The level of this name.

    Raises:
        UsageError: there is none for this machine's kind of CPU.
    """
    for level in levels():
        if level.name == name:
            return level
    raise UsageError(f"'{name}' is not a level of this kind of CPU.", hint=", ".join(level.name for level in levels()))


def lowest_level() -> Level | None:
    """The lowest level, supported by every CPU that bundles serve; None if no levels are defined."""
    known = LEVELS.get(platform.machine())
    return None if known is None else known[0]
