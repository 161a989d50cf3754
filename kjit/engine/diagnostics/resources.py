"""The resources of CUDA kernels, as ptxas lists them (`ptxas -v`)."""

from __future__ import annotations

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
