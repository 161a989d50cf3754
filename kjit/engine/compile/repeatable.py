"""Failed compiles that fail again until a file that they have read changes.

Only errors about the sources count, and only if all files read are known: an internal error of a compiler or a lack of
memory may not happen again.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from pathlib import Path

from kjit.engine.cache.failures import Refusal
from kjit.engine.cache.missing import read_answer
from kjit.engine.compile.build_folder import as_listed, read_text
from kjit.engine.compile.quoting import Links
from kjit.engine.compile.steps import Step, leading_to
from kjit.engine.diagnostics.printed import parse_depfile
from kjit.engine.key.anchors import straight
from kjit.spec import Variant

# An error at a place in a file; in lower case, unlike the assembler's.
_REFUSED_AT = re.compile(
    r"^(?P<file>\S[^\n]*?)(?::\d+(?::\d+)?|\(\d+\)): (?:fatal |catastrophic )?error\b", re.MULTILINE
)

# Errors of assemblers in the output of a compiler, whose source is known.
_REFUSED_BY_ASSEMBLER = re.compile(
    r"^(?:\S+:\d+: Error: |ptxas (?:\S+, line \d+; )?(?:error|fatal) +: (?:Unresolved extern|\(C\d+\)|Entry function"
    r"|(?:Ptx|PTX) assembly aborted))",
    re.MULTILINE,
)

_REFUSED_BY_LINKER = re.compile(
    r"undefined reference to |multiple definition of |undefined symbol: |duplicate symbol: |undefined hidden symbol: "
)

# Messages of failures that may not happen again. A file that cannot be read is not in the list of files; the places of
# one that is missing are found in another way.
_UNREADABLE = [re.escape(os.strerror(number)) for number in errno.errorcode if number != errno.ENOENT]
_MAY_PASS = re.compile(
    r"internal (?:compiler )?error|out of memory|memory exhausted|[Cc]annot allocate|[Kk]illed|signal"
    r"|Segmentation fault|Bus error|[Tt]imed out|PLEASE submit a bug report"
    rf"|Error: file not found: |[Cc]ould not find incbin|: (?:{'|'.join(_UNREADABLE)})'?$",
    re.MULTILINE,
)

_BY_SIGNAL = range(129, 193)  # a shell's exit statuses for signals; nvcc's for an error is 255


def lasting_refusal(
    variant: Variant,
    folder: Path,
    steps: list[Step],
    broken: list[tuple[Step, str]],
    links: Links,
    ninja_output: str,
) -> Refusal | None:
    """The errors of compilers that would reject the sources again; None if that is not certain.

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
    generated = {name for step in steps for name, _ in step.generated}
    logs = {step.output: log for step, log in broken}
    files: dict[str, None] = {}
    sought: dict[str, None] = {}
    for step in reading:
        if not of_link and (step.support is not None or step is steps[-1]):
            return None
        listing = read_text(folder / step.depfile)
        names = parse_depfile(listing)
        missed = None
        if step.asking and not listing.endswith("\n"):
            # The preprocessor failed, for example at a missing header, or the compiler was stopped during the list.
            answer = links.restore(read_text(folder / step.answer))
            missed, refused = read_answer(answer), _refused_lines(logs.get(step.output, ""))
            if missed is None or not refused or not refused <= _refused_lines(answer):
                return None
            names = [*missed.files, step.asking[-1]]
        names = [name.removeprefix("./") for name in names]
        read = dict.fromkeys(as_listed(links.restore(name)) for name in names if name not in generated)
        files.update(read)
        if missed is not None:
            sought.update(dict.fromkeys(replace(missed, files=tuple(read)).places()))
    for log in logs.values():
        named = {match["file"] for match in _REFUSED_AT.finditer(log)} - generated
        places = {as_listed(os.path.join(folder, name)) for name in named}
        telling = (_REFUSED_BY_LINKER,) if of_link else (_REFUSED_AT, _REFUSED_BY_ASSEMBLER)
        if not any(each.search(log) for each in telling) or _MAY_PASS.search(log) or not places <= files.keys():
            return None
    if not all(map(os.path.isabs, files)) or not {*variant.spec.cuda_files, *variant.spec.cpp_files} & files.keys():
        return None
    others = dict.fromkeys(straight(path) for step in reading for path in step.reads)
    return Refusal(logs, tuple(files), tuple(others), tuple(sought))


def _refused_lines(text: str) -> set[str]:
    return {line for line in text.splitlines() if _REFUSED_AT.match(line)}
