"""Failed builds that would fail again, for the life of a process.

With the same sources, headers, flags and compilers, a failed compile fails again. If many calls of a process need one
broken op (its tests), the first one compiles, and the others get the same error. Nothing is written: another process
compiles for itself, so that no failure outlives a cause that nobody thought of.

A wrong repetition of an error is worse than a needless compile. So a failure is remembered only if its causes are
known (compile/repeatable.py): each failed command listed the files that it read, and reported an error at a line, or
the linker lacked a function. A compiler stops at a missing header without a list: that fails fast, and every time. The
files read are compared like an artifact's headers, and also by the times of all files, including those of the system: a
file that was only touched causes a new compile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kjit.engine.key.headers import compare
from kjit.engine.key.key import Key
from kjit.engine.toolchain.programs import find_launcher
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError, KjitError
from kjit.runtime.manifest import Reads

if TYPE_CHECKING:
    from kjit.engine.key.observation import Start

_KEPT = 256

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class Rejection:
    """The rejection of sources by compilers.

    Attributes:
        files: every file that the failed commands read, except generated ones; absolute.
        others: further files that they read, according to flags.
    """

    files: tuple[str, ...]
    others: tuple[str, ...] = ()


class _Failure(NamedTuple):
    error: CompileError
    states: list[tuple[str, int, int, int]]
    reads: Reads


_failures: dict[Hashable, _Failure] = {}


def remember(
    key: Key, toolchain: Toolchain, refusal: Rejection, start: Start, error: CompileError, *, verbose: bool
) -> None:
    """Remember an error of a build, unless something that it depends on may have changed since `start`.

    Args:
        verbose: whether the error has the compilers' whole output.
    """
    from kjit.engine.key.observation import Observation  # not needed by look-ups

    earliest_ns = start.earliest_ns()
    try:
        observed = Observation.of(refusal.files, key, toolchain, others=refusal.others)
        states = [_state(path) for path in (*refusal.files, *refusal.others)]
        is_settled = (
            not observed.changed_since(earliest_ns, {state.path: state for state in key.sources})
            and all(ctime_ns < earliest_ns for *_, ctime_ns in states)
            and Toolchain.for_target(key.variant.target) == toolchain
        )
        if is_settled:
            if len(_failures) >= _KEPT:
                _failures.clear()
            _failures[_circumstances(key, verbose)] = _Failure(error, states, observed.reads)
    except (OSError, KjitError) as unknown:
        _log.debug("the failure of %s is not remembered: %s", key.variant.label, unknown)


def recall(key: Key, *, verbose: bool) -> CompileError | None:
    """The error of a build that would fail again; None if that is not certain."""
    try:
        error, states, reads = _failures[_circumstances(key, verbose)]
        if any(_state(state[0]) != state for state in states) or isinstance(compare(reads, key.project), str):
            return None
    except (LookupError, OSError):
        return None
    again = CompileError(error.message, log=error.log, command=error.command, hint=error.hint)
    again.is_repeated = True
    return again


def _circumstances(key: Key, verbose: bool) -> Hashable:
    """The key, and what else the error depends on: it names files by their paths, relative to the current folder."""
    spec = key.variant.spec
    places = (*spec.cuda_files, *spec.cpp_files, *spec.extra_include_paths)
    return key.key1, verbose, places, find_launcher(), os.path.realpath(".")


def _state(path: str) -> tuple[str, int, int, int]:
    status = os.stat(path)
    return path, status.st_size, status.st_ino, status.st_ctime_ns
