"""Compiler output as readable errors and warnings.

Errors in the op's own files come first. An error inside another header that was caused by an own line is shown at that
line. Of several errors on one line only the first is shown, as the others usually follow from it; the rest is counted.
The whole log is in the exception.

A log is parsed in messages.py; placing.py decides which line each message is shown at, rendering.py formats it, and
hints.py has the hint. Other output of compilers is read in printed.py, so that no other part of kjit depends on the
formats of compilers.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import partial

from kjit import env
from kjit.engine.cache.folders import is_noexec
from kjit.engine.diagnostics import hints
from kjit.engine.diagnostics.files import Files
from kjit.engine.diagnostics.messages import Message, parse, plain
from kjit.engine.diagnostics.placing import declaration, order
from kjit.engine.diagnostics.printed import without_resources
from kjit.engine.diagnostics.rendering import render
from kjit.engine.diagnostics.symbols import demangle

_NEEDS_CPP20 = re.compile("kjit's (?:headers need|simulator needs) C[+][+]20")  # by kjit/language.h

# By the C++ compilers, and by the linker.
_UNKNOWN_FUNCTION = re.compile(
    r"'(?:::)?(\w+)' (?:was not|has not been) declared|undeclared identifier '(\w+)'|undefined symbol: (\w+)"
)

_SHOWN = 3
_WARNINGS_SHOWN = 10

FEWER_AT_ONCE = "build fewer at once (`kjit build -j 1`), or give this machine more memory"

_KILLED = re.compile(
    r"Killed signal terminated|signal 9 \(Kill|unable to execute command: Killed|: Killed$", re.MULTILINE
)


@dataclass(frozen=True)
class Report:
    """An explanation of a failed build, with a hint if there is one."""

    text: str
    hint: str | None


def explain(log: str, files: Files, target: str) -> Report:
    """The errors of a failed build.

    Args:
        log: the output of the tools.
        target: the target of the build, as `str(Target)`.
    """
    log = plain(log)
    if _KILLED.search(log):
        return Report(
            "The compiler was killed by the system (signal 9); this happens when memory runs out.",
            FEWER_AT_ONCE,
        )
    found = parse(log)
    if not found:
        if not log.strip():
            return Report(
                "The compiler ended without a message, as it does when the system kills it, or the disk of temporary "
                "files is full.",
                FEWER_AT_ONCE,
            )
        return Report("\n".join(log.strip().splitlines()[-5:]), None)
    if language := [message for message in found if _NEEDS_CPP20.search(message.text)]:
        found = language[:1]  # all other errors follow from it
    shown = order(found, files)[:_SHOWN]
    if target.startswith("sim"):
        shown = [_without_counterpart(message, files) for message in shown]
    text = _joined([render(message, files) for message in shown], len(found) - len(shown), "error")
    return Report(text, hints.hint(shown, partial(declaration, files=files), files.is_in_cuda, target))


def _without_counterpart(message: Message, files: Files) -> Message:
    """The message, or, if it is about a function of CUDA that the simulator does not have, one that says so."""
    match = _UNKNOWN_FUNCTION.search(message.text)
    if match is None or not files.is_in_cuda(name := next(filter(None, match.groups()))):
        return message
    return replace(message, text=f"the simulator lacks CUDA's '{name}'")


def explain_warnings(log: str, files: Files) -> str:
    """The warnings of a successful build, each once; empty if there are none.

    Output that is not in the form of a warning is included unchanged.
    """
    log = without_resources(plain(log))
    warnings = parse(log, "warning")
    if not warnings:
        return log.strip()
    parts = [render(replace(warning, frames=[]), files) for warning in order(warnings, files)]
    return _joined(parts[:_WARNINGS_SHOWN], len(parts) - _WARNINGS_SHOWN, "warning")


def _joined(parts: list[str], left: int, kind: str) -> str:
    return "\n\n".join([*parts, f"{left} more {kind}{'s' if left > 1 else ''}"] if left > 0 else parts)


def explain_load(log: str, library: str) -> Report:
    """Why the loader rejects a library: one sentence, without a full stop.

    Args:
        library: its path, which must exist.
    """
    lines = log.strip().splitlines() or ["the loader does not say why"]
    last = lines[-1].strip()
    if (missing := re.search(r"([^\s:]+): cannot open shared object file", last)) is not None:
        return Report(
            f"it needs {missing[1]}, which the loader does not find",
            "install it, or add its folder to extra_ldflags: `-Wl,-rpath,/its/folder`",
        )
    if (undefined := re.search(r"undefined symbol: (\w+)", last)) is not None:
        return Report(
            f"undefined symbol: {demangle(undefined[1])}",
            "name the library that has it in extra_ldflags; one that was replaced since the build may have lost it",
        )
    if "failed to map segment" in last and is_noexec(os.path.dirname(library)):
        return Report(
            f"'{os.path.dirname(library)}' is on a disk that is mounted noexec",
            f"set {env.CACHE_DIR} to a folder on another disk, or mount this one without noexec",
        )
    return Report(last, "`kjit doctor` checks the machine")


def is_disk_full(log: str) -> bool:
    """Whether a tool reported a full disk. A tool without space for its output may fail without a message."""
    return re.search(r"No space left on device|Disk quota exceeded", log) is not None
