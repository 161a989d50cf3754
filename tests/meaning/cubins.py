"""What a cubin says of its kernels and tables: a reader of its ELF sections."""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kjit.engine.compile import kernels_object as elf
from kjit.engine.diagnostics.machine_code import cubins_in
from kjit.engine.toolchain.cuda_tools import run_tool

# Attributes in `.nv.info`: format, attribute, size.
_HAS_SIZE, _PARAMETER, _PARAMETER_V2 = 4, 0x17, 0x45

# In a symbol: a number that is a template's argument, a substitution, or the length of the name that follows.
_PIECE = re.compile(r"L[a-z]n?\d+E|[STA]\d*_|(?P<length>\d+)")
_OF_UNIT = ("_GLOBAL__N_", "_INTERNAL_")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class Kernel:
    """One kernel of a cubin.

    Attributes:
        symbol: its name there.
        code: its instructions.
        constants: the sizes of its constant banks, by their names: that of bank 0 includes the parameters.
        cubin: the file that it is in.
    """

    symbol: str
    code: bytes
    parameters: tuple[Parameter, ...]
    constants: tuple[tuple[str, int], ...]
    cubin: bytes

    def instructions(self) -> list[str]:
        """Its instructions as nvdisasm writes them, except for what depends on the other code of a cubin: the numbers of
        labels, and the places of the addresses of variables and functions."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "unit.cubin")
            path.write_bytes(self.cubin)
            text = run_tool("nvdisasm", "-c", path)
        (section,) = re.findall(
            rf"^//-+ \.text\.{re.escape(self.symbol)} -+$(.*?)(?=^//-+ |\Z)", text, re.DOTALL | re.MULTILINE
        )
        found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", section, re.MULTILINE)
        labels: dict[str, str] = {}
        holders = set(re.findall(r"c\[0x4\]\[(R\d+)", section))

        def normal(text: str) -> str:
            text = re.sub(r"\.L_x_\d+", lambda label: labels.setdefault(label[0], f".L{len(labels)}"), text)
            moved = re.match(r"(?:@!?U?P\d+ )?MOV (R\d+), 0x", text)
            return "MOV place" if moved and moved[1] in holders else re.sub(r"c\[0x4\]\[0x\w+\]", "c[0x4][...]", text)

        return [normal(each) for each in found]


@dataclass(frozen=True)
class Cubin:
    """The sections and symbols of a cubin: each symbol with its section's name, its place in it, and its size."""

    content: bytes
    sections: dict[str, bytes]
    symbols: dict[str, tuple[str, int, int]]

    @classmethod
    def read(cls, content: bytes) -> Cubin:
        """The sections and symbols of an ELF file."""
        every = elf.sections(content)
        sections = {
            each.name: bytes(each.end - each.begin) if each.kind == 8 else content[each.begin : each.end]
            for each in every
        }
        symbols = {
            each.name: (every[each.section].name, each.value, each.size)
            for each in elf.symbols(content)
            if 0 < each.section < len(every) and each.name
        }
        return cls(content, sections, symbols)

    def variable(self, name: str) -> bytes | None:
        """The content of a variable in device memory, by its name without namespaces; None if there is none."""
        for symbol, (section, at, size) in self.symbols.items():
            if section.startswith((".nv.global", ".nv.constant")) and without_unit(symbol) in (
                name,
                f"_ZN{{unit}}{len(name)}{name}E",
                f"_ZL{len(name)}{name}",
            ):
                return self.sections[section][at : at + size]
        return None

    def kernels(self) -> dict[str, Kernel]:
        """Its kernels, by their symbols without what is of the unit."""
        found = {}
        for title, code in self.sections.items():
            symbol = title.removeprefix(".text.")
            if symbol == title or f".nv.info.{symbol}" not in self.sections:
                continue
            banks = sorted(
                (section.removesuffix(f".{symbol}"), len(content))
                for section, content in self.sections.items()
                if section.startswith(".nv.constant") and section.endswith(f".{symbol}")
            )
            parameters = tuple(_parameters(self.sections[f".nv.info.{symbol}"]))
            found[without_unit(symbol)] = Kernel(symbol, code, parameters, tuple(banks), self.content)
        return found


def cubins_of(library: Path) -> list[Cubin]:
    """The cubins of a library."""
    found = [Cubin.read(content) for content in cubins_in(library.read_bytes())]
    assert found, f"no cubin in '{library}'"
    return found


def kernels_of(library: Path) -> dict[str, Kernel]:
    """The kernels of a library, by their symbols without what is of the unit."""
    return {name: kernel for cubin in cubins_of(library) for name, kernel in cubin.kernels().items()}


def variable_of(library: Path, name: str) -> bytes:
    """The content of a variable in device memory."""
    found = [content for cubin in cubins_of(library) if (content := cubin.variable(name)) is not None]
    assert len(found) == 1, f"{len(found)} variables '{name}' in '{library}'"
    return found[0]


def without_unit(symbol: str) -> str:
    """A symbol without the names that a compiler gives the unnamed namespaces of a unit."""
    if not symbol.startswith("_Z"):
        return symbol
    pieces = []
    at = 0
    while at < len(symbol):
        match = _PIECE.match(symbol, at)
        end = at + 1 if match is None else match.end()
        piece = symbol[at:end]
        if match is not None and match["length"]:
            end += int(piece)
            name = symbol[match.end() : end]
            piece = "{unit}" if name.startswith(_OF_UNIT) else f"{piece}{name}"
        pieces.append(piece)
        at = end
    return "".join(pieces)


def _parameters(info: bytes) -> Iterator[Parameter]:
    found = []
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _HAS_SIZE:
            continue
        assert attribute != _PARAMETER_V2, "parameters in a form that this test does not read"
        if attribute == _PARAMETER:
            _, ordinal, offset, rest = struct.unpack_from("<IHHI", info, at)
            found.append((ordinal, Parameter(offset, rest >> 18)))
        at += size
    yield from (parameter for _, parameter in sorted(found, key=lambda each: each[0]))
