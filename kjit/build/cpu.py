"""Which instructions does this CPU have, and on which other CPUs would a library run?

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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from kjit import env
from kjit.errors import UsageError


@dataclass(frozen=True)
class Level:
    """A set of instructions.

    Attributes:
        march: as compilers take it after `-march=`.
        features: what Linux calls the instructions that it has beyond the level before it.
    """

    name: str
    march: str
    features: frozenset[str]


def _level(name: str, features: str, march: str | None = None) -> Level:
    return Level(name, march or name, frozenset(features.split()))


_LEVELS: Mapping[str, tuple[Level, ...]] = {
    "x86_64": (
        _level("x86-64-v2", "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"),
        _level("x86-64-v3", "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"),
        _level("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
    ),
    "aarch64": (
        _level("armv8-a", "fp asimd"),
        _level("armv8.2-a", "atomics asimdrdm fphp asimdhp asimddp crc32", "armv8.2-a+fp16+dotprod"),
    ),
}


def levels() -> tuple[Level, ...]:
    """The levels that are built for on this machine, the lowest first.

    Raises:
        UsageError: none are known for its kind of CPU.
    """
    known = _LEVELS.get(platform.machine())
    if known is None:
        raise UsageError(
            f"for a CPU of the kind '{platform.machine()}' no levels are known, and a bundle needs one.",
            hint=f"bundles for the CPU are built on {' or '.join(_LEVELS)}; `--target cuda` leaves the CPU out",
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
    known = _LEVELS.get(platform.machine())
    return None if known is None else known[0]


def levels_here() -> tuple[str, ...]:
    """The names of the levels whose libraries run on this CPU, the lowest first; up to `KJIT_CPU_LEVEL`, if it is set.

    Raises:
        UsageError: it is no level.
    """
    features = cpu_features()
    named = env.cpu_level()
    highest = None if named is None else find_level(named)
    here = []
    for level in _LEVELS.get(platform.machine(), ()):
        if not level.features <= features:
            break
        here.append(level.name)
        if level == highest:
            break
    return tuple(here)


def cpu_features() -> frozenset[str]:
    """The instruction sets of this CPU by Linux' names for them; none where there is no Linux."""
    described = _described()
    return frozenset(f"{described.get('flags', '')} {described.get('Features', '')}".split())


@lru_cache(maxsize=1)
def cpu_identity() -> str:
    """What `-march=native` depends on: this CPU's model and instruction sets."""
    lines = [f"{name}: {' '.join(sorted(value.split()))}" for name, value in _described().items()]
    return "; ".join([platform.machine(), *(lines or [platform.platform()])])


_WANTED = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU variant", "CPU part", "Features")


@lru_cache(maxsize=1)
def _described() -> Mapping[str, str]:
    """What Linux says of the first core, which stands for all; empty where there is no Linux."""
    described = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break  # one core says enough, and a machine may have hundreds
                name, _, value = line.partition(":")
                if name.strip() in _WANTED:
                    described[name.strip()] = value.strip()
    except OSError:
        return {}
    return described
