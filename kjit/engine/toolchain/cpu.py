"""Instruction sets of this CPU, and the CPUs that a library runs on.

`-march=native` ties a library to CPUs with all of this one's instructions. What is shipped is therefore built for
levels: sets of instructions that generations of CPUs have in common, each with a name that compilers know. On loading,
the highest level that the CPU has is taken. Several levels cost a few libraries of some ten KiB; one level would either
leave half of a new CPU unused, or not run on an old one. Function multiversioning would put them into one library, but
only for functions that are marked one by one. (Google Highway marks them: kjit/highway.h.)

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
    """The levels that are built for on this machine, the lowest first.

    Raises:
        UsageError: none are known for its kind of CPU.
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
        UsageError: there is none on this machine.
    """
    for level in levels():
        if level.name == name:
            return level
    raise UsageError(f"'{name}' is no level of this kind of CPU.", hint=", ".join(level.name for level in levels()))


def lowest_level() -> Level | None:
    """The level that every CPU has for which libraries are shipped; None where no levels are known."""
    known = LEVELS.get(platform.machine())
    return None if known is None else known[0]
