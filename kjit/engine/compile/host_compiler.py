"""The compile of a unit's host half by the C++ compiler.

The build runs `main` of this file as a program:

    unit.ii unit.cut.ii unit.o folders command of the compiler...

halves.py makes `unit.cut.ii` of the preprocessed `unit.ii`.
"""

from __future__ import annotations

import os
import signal

from kjit.engine.compile import halves, kind, precompiled

SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM)
"""Signals that Python or helper.py handles, reset in child processes."""

_TAIL = ("-x", "c++-cpp-output", "-c", "unit.cut.ii", "-o", "unit.o")
"""The end of a compiler's command, for its length."""

_PREFIX = os.path.join(os.path.dirname(__file__), "..", "..", "include", "kjit_rtc", "host.h")


def main(words: list[str], log: int = 1) -> int:
    """Run the program; its output goes to the file descriptor `log`."""
    plain, cut, output, folders, *compiler = words
    unit = _read(plain)
    if reason := kind.refusal(unit, folders):
        os.write(log, f"error: {kind.ONLY_NVCC}{reason}\n".encode(errors="surrogateescape"))
        return 1
    flags, tail = tuple(compiler[: -len(_TAIL)]), compiler[-len(_TAIL) :]
    try:
        short = precompiled.find(flags, unit)
        if short is not None:
            path, rest = short
            _write(cut, f'#pragma GCC pch_preprocess "{path}"\n{halves.host_half(rest)}')
            if _tried([*flags, "-fpch-preprocess", *tail], output, log):
                return 0
        # The first line marker names the source, for the object's symbols.
        source = f"{first}\n" if (first := unit.partition("\n")[0]).startswith("# ") else ""
        _write(cut, f"{source}{prefix()}{halves.host_half(unit)}")
    except halves.NotUnderstoodError as error:
        os.write(log, f"{error.file}:{error.line}: error: {kind.ONLY_NVCC}{error}\n".encode(errors="surrogateescape"))
        return 1
    return run(compiler, log)


def prefix() -> str:
    """The text before a host half."""
    return f'# 1 "kjit_rtc/host.h" 3\n{_read(_PREFIX)}'


def precompile(path: str, words: tuple[str, ...], ahead: str) -> bool:
    """Have the compiler `words` precompile the prefix `ahead` into the file `path`; return whether it did so without
    warnings, which would appear in the first build only."""
    _write(f"{path}.ii", f"{prefix()}{halves.host_half(ahead)}")
    command = [*words, "-x", "c++-header", "-fpreprocessed", "-c", f"{path}.ii", "-o", path]
    return _run_into(f"{path}.log", command) == 0 and os.path.getsize(f"{path}.log") == 0


def _tried(command: list[str], output: str, log: int) -> bool:
    """Whether the compiler `command` succeeds. Its output is kept only then."""
    messages = f"{output}.messages"
    if _run_into(messages, command) != 0:
        return False
    with open(messages, "rb") as file, open(log, "wb", closefd=False) as out:
        out.write(file.read())
    return True


def _run_into(path: str, command: list[str]) -> int:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        return run(command, handle)
    finally:
        os.close(handle)


def run(command: list[str], log: int) -> int:
    """Run `command` with its output to the file descriptor `log`, and return a shell's exit status. Not with
    `subprocess`, which takes longer to import than everything else here."""
    redirections = [(os.POSIX_SPAWN_DUP2, log, number) for number in (1, 2)]
    process = os.posix_spawn(command[0], command, os.environ, file_actions=redirections, setsigdef=SIGNALS)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return status if status >= 0 else 128 - status


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
