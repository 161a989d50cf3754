"""Failed compiles that fail again until a file that they have read changes.

Only errors about the sources count, and only if all files read are known: an internal error of a compiler or a lack of
memory may not happen again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kjit.engine.cache.failures import Rejection
from kjit.engine.compile.build_folder import headers_read
from kjit.engine.compile.quoting import Links
from kjit.engine.compile.steps import Step, leading_to
from kjit.engine.key.paths import collapse_slashes
from kjit.errors import ToolchainError
from kjit.spec import Variant

# An error at a line of a file, in lower case, unlike the assembler's; and the linker's.
_REFUSED = re.compile(r"^\S[^\n]*?(?::\d+(?::\d+)?|\(\d+\)): (?:fatal |catastrophic )?error\b", re.MULTILINE)
_REFUSED_BY_LINKER = re.compile(
    r"undefined reference to |multiple definition of |undefined symbol: |duplicate symbol: |undefined hidden symbol: "
)
_MAY_PASS = re.compile(
    r"internal (?:compiler )?error|out of memory|memory exhausted|[Cc]annot allocate|[Kk]illed|signal"
    r"|Segmentation fault|Bus error|[Tt]imed out|PLEASE submit a bug report"
)
_BY_SIGNAL = range(129, 193)  # a shell's exit statuses for signals; nvcc's for an error is 255


def lasting_refusal(
    variant: Variant,
    folder: Path,
    steps: list[Step],
    broken: list[tuple[Step, str]],
    links: Links,
    ninja_output: str,
) -> Rejection | None:
    """The files read by compilers that would reject the sources again; None if that is not certain.

    Args:
        folder: the folder of the build.
        steps: all its commands.
        broken: the commands that failed, with their output.
        ninja_output: the output of the program that ran them.
    """
    # ninja before 1.13 does not report the exit status of a command, which may have been a signal.
    statuses = re.findall(r"^FAILED: (?:\[code=(\d+)\])?", ninja_output, re.MULTILINE)
    if not broken or any(not status or int(status) in _BY_SIGNAL for status in statuses):
        return None
    # If a link with flags of the op fails, not all files that the linker has read are known.
    of_link = [step for step, _ in broken] == steps[-1:] and not variant.spec.extra_ldflags
    reading = steps[:-1] if of_link else [each for step, _ in broken for each in leading_to(step, steps)]
    refused = _REFUSED_BY_LINKER if of_link else _REFUSED
    if any(not refused.search(log) or _MAY_PASS.search(log) for _, log in broken):
        return None
    if not of_link and any(step.support is not None or step is steps[-1] for step in reading):
        return None
    try:
        files = headers_read(folder, reading, links)
    except ToolchainError:
        return None
    if not all(map(os.path.isabs, files)) or not {*variant.spec.cuda_files, *variant.spec.cpp_files} & {*files}:
        return None
    others = dict.fromkeys(collapse_slashes(path) for step in reading for path in step.reads)
    return Rejection(files, tuple(others))
