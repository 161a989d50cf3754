"""Failed builds that would fail again, for the life of a process.

With the same sources, headers, flags and compilers, a failed compile fails again. If many calls of a process need one
broken op (its tests), the first one compiles, and the others get the same error. Nothing is written: another process
compiles for itself, so that no failure outlives a cause that nobody thought of.

A wrong repetition of an error is worse than a needless compile. So a failure is remembered only if its causes are
known (compile/repeatable.py): each failed command listed the files that it read, and reported an error at a line, or
the linker lacked a function. A compiler stops at a missing header without a list: that fails fast, and every time. The
files read are compared like an artifact's headers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kjit.engine.key.headers import compare
from kjit.engine.key.key import Key
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError, KjitError
from kjit.runtime.manifest import Reads

if TYPE_CHECKING:
    from kjit.engine.key.observation import Start

_log = logging.getLogger("kjit")

# By the key, and whether the error has the compilers' whole output.
_failures: dict[tuple[str, bool], tuple[CompileError, Reads]] = {}


class Rejection(NamedTuple):
    """The rejection of sources by compilers.

    Attributes:
        files: every file that the failed commands read, except generated ones; absolute.
        others: further files that they read, according to flags.
    """

    files: tuple[str, ...]
    others: tuple[str, ...] = ()


def remember(
    key: Key, toolchain: Toolchain, rejection: Rejection, start: Start, error: CompileError, *, verbose: bool
) -> None:
    """Remember an error of a build, unless something that it depends on may have changed since `start`."""
    from kjit.engine.key.observation import Observation  # not needed by look-ups

    try:
        observed = Observation.of(rejection.files, key, toolchain, others=rejection.others)
        known = {state.path: state for state in key.sources}
        if not observed.changed_since(start.earliest_ns(), known):
            _failures[key.key1, verbose] = error, observed.reads
    except (OSError, KjitError) as unknown:
        _log.debug("the failure of %s is not remembered: %s", key.variant.label, unknown)


def recall(key: Key, *, verbose: bool) -> CompileError | None:
    """The error of a build that would fail again; None if that is not certain."""
    if (key.key1, verbose) not in _failures:
        return None
    error, reads = _failures[key.key1, verbose]
    if isinstance(compare(reads, key.project), str):
        return None
    again = CompileError(error.message, log=error.log, command=error.command, hint=error.hint)
    again.is_repeated = True
    return again
