"""The output of compilers and ninja besides messages: resources of kernels, lists of headers, failed commands.

A build that goes well needs no more than this, and imports it alone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from kjit.engine.diagnostics.symbols import demangle


@dataclass(frozen=True)
class KernelResources:
    """The resources of one CUDA kernel, from ptxas.

    Attributes:
        kernel: its C++ name. arch: `sm_90a`.
        registers: per thread. shared: static shared memory per block, in bytes.
        spill_stores, spill_loads: bytes per thread that are spilled to and reloaded from local memory.
        stack: the stack frame per thread, in bytes.
    """

    kernel: str
    arch: str
    registers: int
    shared: int
    spill_stores: int
    spill_loads: int
    stack: int


def parse_resources(log: str) -> list[KernelResources]:
    """The resources of each kernel that `ptxas -v` lists in `log`."""
    pattern = re.compile(
        r"Compiling entry function '(?P<kernel>\S+)' for '(?P<arch>\w+)'"
        r"(?P<body>.*?Used (?P<registers>\d+) registers[^\n]*)",
        re.DOTALL,
    )

    def amount(text: str, words: str) -> int:
        match = re.search(rf"(\d+) bytes {words}", text)
        return int(match[1]) if match else 0

    return [
        KernelResources(
            kernel=demangle(match["kernel"]),
            arch=match["arch"],
            registers=int(match["registers"]),
            shared=amount(match["body"], "smem"),
            spill_stores=amount(match["body"], "spill stores"),
            spill_loads=amount(match["body"], "spill loads"),
            stack=amount(match["body"], "stack frame"),
        )
        for match in pattern.finditer(log)
    ]


def without_resources(log: str) -> str:
    """`log` without the output of `ptxas -v`, and without nvcc's warnings about flags of kjit replaced by an op's."""
    noise = r"ptxas info .*|    \d+ bytes stack frame, .*|nvcc warning : incompatible redefinition for option .*"
    return re.sub(rf"^(?:{noise})\n?", "", log, flags=re.MULTILINE)


def parse_depfile(text: str) -> list[str]:
    """The dependencies of the first Make rule, as compilers (`-MD`) and linkers write it."""
    text = text.replace("\\\n", " ")
    _, _, text = text.partition(":")
    text = text.partition("\n")[0]
    # In a name, a space or # follows a backslash, and a dollar sign is doubled. Backslashes are doubled only before a
    # space.
    names = re.findall(r"(?:[^\s\\]+|\\+[ \t#:]|\\)+", text)
    return [_ESCAPED.sub(_unescaped, name).replace("$$", "$") if "\\" in name or "$" in name else name
            for name in names]  # fmt: skip


_ESCAPED = re.compile(r"(\\+)([ \t#:])")


def _unescaped(match: re.Match[str]) -> str:
    kept = len(match[1]) // 2 if match[2] in " \t" else len(match[1]) - 1
    return "\\" * kept + match[2]


def failed_steps(ninja_output: str) -> set[str]:
    """The output files of the failed commands. Commands that ran at the same time have finished."""
    return set(re.findall(r"^FAILED: (?:\[code=\d+\] )?(\S+)", ninja_output, re.MULTILINE))


def shown_path(path: str) -> str:
    """An absolute path for display: relative if it is in the current folder."""
    try:
        relative = os.path.relpath(path)
    except FileNotFoundError:  # the current folder is gone
        return path
    return path if relative.startswith("..") else relative
