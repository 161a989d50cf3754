"""Machine code of kernels: instructions, their source lines, and the widths of loads and stores.

The code is extracted from a library by cuobjdump and disassembled by nvdisasm; source lines need `-lineinfo`, which
changes no instruction. An inlined instruction has a chain of positions, from its own line to the line in the kernel.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kjit.engine.diagnostics.printed import KernelResources
from kjit.engine.diagnostics.symbols import demangle
from kjit.engine.toolchain.cuda_tools import run_tool
from kjit.errors import KjitError, UsageError

Place = tuple[str, int]
"""A file and a line."""

_SECTION = re.compile(r"^//-+ \.text\.(?P<symbol>\S+) +-+\n(?P<lines>(?:(?!//---).*\n?)*)", re.MULTILINE)
_PLACE = re.compile(r'//## File "(?P<file>[^"]+)", line (?P<line>\d+)(?P<inlined> inlined at)?')
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?P<text>.*?)\s*;?\s*$")
_OPCODE = re.compile(r"^(?:@!?U?P[T0-9]+\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)")
_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_BITS = re.compile(r"\.[US]?(256|128|64|16|8)(?=\.|$)")

_ELF, _EM_CUDA = b"\x7fELF\x02", 190
_OF_SYSTEM = 1024  # bytes of shared memory reserved per block that uses any, since compute capability 8.0

# Memory accessed, by the first word of an opcode.
_ACCESSES = {
    "LDG": "global loads",
    "STG": "global stores",
    "LD": "generic loads",
    "ST": "generic stores",
    "LDS": "shared loads",
    "STS": "shared stores",
    "LDL": "local loads",
    "STL": "local stores",
    "LDGSTS": "global to shared copies",
}
_KINDS = (
    ("tensor cores", r"(H|I|D|Q|B|O)?G?MMA|HMMA|IMMA|DMMA|UTC\w*MMA|WGMMA"),
    ("fp32", r"F(ADD|MUL|FMA|SEL|MNMX|SET|SETP|CHK|RND|SWZADD)\d?"),
    ("fp16", r"H(ADD|MUL|FMA|MNMX|SET|SETP)2(_\w+)?"),
    ("fp64", r"D(ADD|MUL|FMA|SET|SETP|MNMX)"),
    ("special functions", r"MUFU"),
    ("conversions", r"(F|I)2(F|I|FP)\w*|F2FP"),
    ("integers", r"U?(IADD3?|IMAD|IMUL|ISETP|LEA|LOP3|SHF|SHL|SHR|IABS|BREV|FLO|POPC|BMSK|SGXT|V?IMNMX\w*|VIADD\w*)"),
    ("shuffles and votes", r"SHFL|VOTE\w*|MATCH|REDUX"),
    ("barriers", r"BAR|SYNCS|(LDG)?DEPBAR|WARPSYNC|MEMBAR|FENCE|ERRBAR|CCTL|UCGABAR_\w+"),
    ("atomics", r"ATOM\w*|RED\w*"),
    ("bulk copies", r"UBLK\w+|UTMA\w+"),
    ("branches", r"BRA|BRX|JMP|BSSY|BSYNC|CALL|RET|EXIT|BREAK|NANOSLEEP"),
    ("moves and constants", r"U?(MOV|SEL|PRMT|LDC|PLOP3)|S2U?R|CS2R|R2UR|R2P|P2R|R2B"),
)


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Args:
        places: its positions in the sources, innermost first; empty without line information.
    """

    address: int
    text: str
    places: tuple[Place, ...]

    @property
    def opcode(self) -> str:
        """`LDG.E.128`."""
        match = _OPCODE.match(self.text)
        return match["opcode"] if match else ""

    @property
    def kind(self) -> str:
        """The memory that a load or store accesses, else the kind of operation; `other` for the rest."""
        word = self.opcode.partition(".")[0]
        return _ACCESSES.get(word) or next((name for name, pattern in _KINDS if re.fullmatch(pattern, word)), "other")

    @property
    def bits(self) -> int | None:
        """The width of a load or store; None for other instructions."""
        if self.opcode.partition(".")[0] not in _ACCESSES:
            return None
        match = _BITS.search(self.opcode)
        return int(match[1]) if match else 32


@dataclass(frozen=True)
class Kernel:
    """A kernel's machine code.

    Args:
        name: without parameters, as in ptxas's report.
        resources: registers, spills and the like.
    """

    name: str
    arch: str
    instructions: tuple[Instruction, ...]
    resources: KernelResources | None

    @property
    def kinds(self) -> Counter[str]:
        """The number of instructions of each kind, without padding (NOP)."""
        return Counter(each.kind for each in self.instructions)

    @property
    def size(self) -> int:
        return len(self.instructions)

    def widths(self, kind: str) -> Counter[int]:
        """The number of accesses of a kind, such as `global loads`, by width in bits."""
        return Counter(bits for each in self.instructions if each.kind == kind and (bits := each.bits) is not None)


def read_library(library: Path, resources: Sequence[KernelResources] = ()) -> list[Kernel]:
    """The kernels in a library, or in a cubin.

    Args:
        resources: from ptxas; by default from cuobjdump.

    Raises:
        ToolchainError: there is no cuobjdump, or no nvdisasm.
        KjitError: there is no machine code in it.
    """
    kernels = []
    with tempfile.TemporaryDirectory(prefix="kjit-code-") as folder:
        for cubin in [library.absolute()] if library.suffix == ".cubin" else _extract(library, Path(folder)):
            known = {(each.kernel, each.arch): each for each in resources or _ask_resources(cubin)}
            kernels += parse_sass(run_tool("nvdisasm", "-gi", "-c", cubin), known)
    return kernels


def read_ptx(library: Path) -> str:
    """The PTX in a library, from cuobjdump.

    Raises:
        KjitError: there is none.
    """
    text = run_tool("cuobjdump", "-ptx", library.absolute())
    if ".target" not in text:
        raise KjitError(f"there is no PTX in '{library}', only machine code.")
    return text


def _extract(library: Path, folder: Path) -> list[Path]:
    """The cubins of a library. NVRTC's are stored unchanged; nvcc's are packed, and extracted by cuobjdump."""
    plain = []
    for number, cubin in enumerate(cubins_in(library.read_bytes())):
        plain.append(folder / f"{number}.cubin")
        plain[-1].write_bytes(cubin)
    if plain:
        return plain
    run_tool("cuobjdump", "-xelf", "all", library.absolute(), folder=folder)
    cubins = sorted(folder.glob("*.cubin"))
    if not cubins:
        raise UsageError(f"there is no machine code for a GPU in '{library}'.")
    return cubins


def cubins_in(content: bytes) -> Iterator[bytes]:
    """The complete ELF files for a GPU in the content of a library."""
    at = content.find(_ELF, 1)
    while at >= 0:
        header = content[at : at + 64]
        if len(header) == 64 and int.from_bytes(header[18:20], "little") == _EM_CUDA:
            # Program headers and sections: offset of the table, size of an entry, number of entries.
            ends = [
                int.from_bytes(header[begins : begins + 8], "little")
                + int.from_bytes(header[size : size + 2], "little")
                * int.from_bytes(header[size + 2 : size + 4], "little")
                for begins, size in ((32, 54), (40, 58))
            ]
            yield content[at : at + max(ends)]
        at = content.find(_ELF, at + 4)


def parse_sass(text: str, resources: Mapping[tuple[str, str], KernelResources] | None = None) -> list[Kernel]:
    """The kernels in the output of `nvdisasm -gi -c` for a cubin. Functions called by kernels have sections of their
    own and are left out."""
    target = _TARGET.search(text)
    arch, known = target[1] if target else "", resources or {}
    kernels = []
    for section in _SECTION.finditer(text):
        instructions = tuple(_instructions(section["lines"].splitlines()))
        if instructions:
            name = demangle(section["symbol"])
            # The output for a cubin does not name the architecture.
            kernels.append(Kernel(name, arch, instructions, known.get((name, arch), known.get((name, "")))))
    return kernels


def _instructions(lines: Sequence[str]) -> Iterator[Instruction]:
    places: list[Place] = []
    is_open = False
    for line in lines:
        place = _PLACE.search(line)
        if place is not None:
            if not is_open:
                places = []
            places.append((place["file"], int(place["line"])))
            is_open = place["inlined"] is not None
            continue
        match = _INSTRUCTION.match(line)
        if match is not None and not match["text"].startswith(("NOP", ".")):
            yield Instruction(int(match[1], 16), re.sub(r"\s+", " ", match["text"]), tuple(places))


def _ask_resources(cubin: Path) -> list[KernelResources]:
    """The resources of a cubin's kernels, without an architecture, from the cubin itself, where spills are part of the
    stack frame, and the reserved shared memory of a block is included."""
    found = []
    name = ""
    for line in run_tool("cuobjdump", "-res-usage", cubin).splitlines():
        if match := re.match(r"\s*Function (\S+):", line):
            name = match[1]
        elif name and "REG:" in line:
            amounts = {word: int(number) for word, number in re.findall(r"(\w+):(\d+)", line)}
            stack, shared = amounts.get("STACK", 0), amounts.get("SHARED", 0)
            shared -= _OF_SYSTEM if shared >= _OF_SYSTEM else 0
            found.append(KernelResources(demangle(name), "", amounts["REG"], shared, 0, 0, stack))
            name = ""
    return found
