"""The compile of a unit's host half by the C++ compiler.

The build runs `main` of this file as a program:

    unit.ii unit.cut.ii unit.o 'command of the preprocessor' command of the compiler...

halves.py makes `unit.cut.ii` of the preprocessed `unit.ii`.

CUDA's functions for half and bfloat16 take longer to compile than most units, and few host halves call one. So
kjit_rtc/host.h makes their headers only declare them. If the half does not compile that way, or its object refers to
one of them, it is preprocessed and compiled again with the full headers (`-DKJIT_RTC_FULL`).

Few imports: it starts once for every compiled unit.
"""

from __future__ import annotations

import os
import re
import shlex
import signal

from kjit.engine.compile import halves, kernels_object
from kjit.engine.compile.precompiled import USING
from kjit.engine.compile.short_headers import FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kjit.engine.compile.precompiled import HostHeaders

FOR_CLANG = "-Qunused-arguments"
"""A flag in all commands of clang, and in none of g++."""

SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM)
"""Signals that Python or server.py handles, reset in child processes."""

_DECLARED_ALONE = '/cuda_fp16.h"'
"""Part of a line marker of every unit that includes CUDA's header for half or bfloat16."""

_TAIL = ("-x", "c++-cpp-output", "-c", "unit.cut.ii", "-o", "unit.o")
"""The end of a compiler's command, for its length."""

_TYPE = r"(?:6__half|7__half2|1[01]__half2?_raw|1[34]__nv_bfloat162?|1[78]__nv_bfloat162?_raw)"
# Members of these types, and operators on them.
_MEMBER = re.compile(rf"_ZNK?V?{_TYPE}|_Z[a-z]{{2}}\w*?{_TYPE}")
_NAMED = re.compile(r"_ZL?(\d+)")
_BY_VALUE = re.compile(rf"(?<![PKIE]){_TYPE}")


def is_of_cuda(symbol: str) -> bool:
    """Whether this may be one of CUDA's functions for half and bfloat16. Also true for a kernel with a similar name."""
    if _MEMBER.match(symbol):
        return True
    match = _NAMED.match(symbol)
    if match is None:
        return False
    name, rest = symbol[match.end() :][: int(match[1])], symbol[match.end() + int(match[1]) :]
    return name.startswith("__") or (not rest.startswith("I") and _BY_VALUE.search(rest) is not None)


def main(words: list[str], log: int = 1, headers: HostHeaders | None = None) -> int:
    """Run the program; its output goes to the file descriptor `log`.

    Args:
        headers: the precompiled headers.
    """
    plain, cut, output, preprocess, *compiler = words
    unit = _read(plain)
    if reason := halves.for_nvcc(unit):
        os.write(log, f"error: {reason}\n".encode())
        return 1
    is_for_clang = FOR_CLANG in compiler
    is_declared_alone = _DECLARED_ALONE in unit
    flags, tail = tuple(compiler[: -len(_TAIL)]), compiler[-len(_TAIL) :]
    # Nothing is precompiled with clang or through a compiler launcher.
    can_be_short = not is_for_clang and preprocess.startswith(f"{shlex.quote(compiler[0])} ")
    short = headers.shortened(flags, unit) if headers is not None and can_be_short else None
    if short is not None:
        _write(cut, short[1])
        if _tried([*flags, USING, *tail], output, log, is_declared_alone):
            return 0
    _write(cut, halves.host_half(unit, is_for_clang=is_for_clang))
    if not is_declared_alone:
        status = run(compiler, log)
    elif _tried(compiler, output, log, is_declared_alone):
        status = 0
    else:
        status = run([*shlex.split(preprocess), FULL], log)
        if status == 0:
            _write(cut, halves.host_half(_read(plain), is_for_clang=is_for_clang))
            status = run(compiler, log)
    if headers is not None and short is not None and status == 0:
        headers.refuse(short[0])
    return status


def _tried(command: list[str], output: str, log: int, is_declared_alone: bool) -> bool:
    """Whether the compiler `command` succeeds and its object does not refer to CUDA's functions that are only declared.
    Its output is kept only then."""
    messages = f"{output}.messages"
    handle = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        status = run(command, handle)
    finally:
        os.close(handle)
    if status != 0:
        return False
    if is_declared_alone:
        with open(output, "rb") as file:
            if any(map(is_of_cuda, kernels_object.undefined_in(file.read()))):
                return False
    with open(messages, "rb") as file, open(log, "wb", closefd=False) as out:
        out.write(file.read())
    return True


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
