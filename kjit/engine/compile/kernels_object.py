"""The object that joins the two halves of a unit: a kernel for each undefined symbol of the host half.

The build runs `main` of this file as a program:

    unit.o unit.kernels.s unit unit.sm_80.cubin unit.sm_90a.cubin

The third word is empty if the module has no other CUDA unit. The program writes assembly that contains the cubins and
defines each kernel's symbol as a row of a table, which kjit/csrc/support/kernels.cpp reads at a launch. A symbol
without a kernel stays undefined, and the link fails.

A host half has no bodies of kernels, and so refers to a `static` kernel by a global symbol. Other units of the module
may have another kernel of that name, so the symbols in `unit.o` are then renamed: each gets a suffix, the unit's name
for a kernel that is local to it, otherwise a hash of its machine code, so that equal kernels of a header stay one.
Units that only declare a kernel find it by its own name.

Both compilers mangle names by the Itanium C++ ABI, with two differences: NVRTC names an anonymous namespace after the
unit, while GCC has one name for all of them; and clang marks names that are local to a unit.

Few imports: it starts once for every compiled unit.
"""

from __future__ import annotations

import os
import re
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ANONYMOUS = re.compile(r"(\d+)(_GLOBAL__N_)")
_NUMBER = re.compile(r"\d+")
_ENTRY = 0x10  # STO_CUDA_ENTRY
_FUNCTION = 2
_LOCAL = 0
_UNDEFINED = 0
_SYMTAB = 2

# Functions of CUDA's runtime that take the address of a variable or a kernel, which only nvcc registers.
_BY_ADDRESS = re.compile(
    r"cuda(?:Memcpy(?:To|From)Symbol\w*|GetSymbol(?:Address|Size)|Graph(?:Exec)?(?:Add)?(?:Memcpy|Kernel)Node\w*|"
    r"GraphAddNode\w*|Graph(?:Exec)?NodeSetParams\w*|FuncSetSharedMemConfig|LaunchCooperativeKernelMultiDevice)"
)


def _sections(content: bytes) -> list[tuple[int, ...]]:
    """The section headers of a 64-bit little-endian ELF file; `[4]` and `[5]` are a section's offset and size.

    Raises:
        ValueError: it is not such a file.
    """
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (place,) = struct.unpack_from("<Q", content, 0x28)
    size, count, _ = struct.unpack_from("<HHH", content, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", content, place + index * size) for index in range(count)]


def symbols(content: bytes) -> Iterator[tuple[str, int, int, int]]:
    """The symbols of a 64-bit little-endian ELF file: name, `st_info`, `st_other` and section.

    Raises:
        ValueError: it is not such a file.
    """
    sections = _sections(content)
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, other, where = struct.unpack_from("<IBBH", content, at)
            end = content.index(b"\0", names + name)
            yield content[names + name : end].decode("utf-8", "surrogateescape"), info, other, where


def renamed(content: bytes, names: Mapping[str, str]) -> bytes:
    """An object file with other names for some of its symbols."""
    place = struct.unpack_from("<Q", content, 0x28)[0]
    size = struct.unpack_from("<H", content, 0x3A)[0]
    sections = _sections(content)
    changed = bytearray(content)
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        # The table of names is moved to the end, where it can grow.
        old = sections[section[6]]
        table = bytearray(content[old[4] : old[4] + old[5]])
        for at in range(section[4], section[4] + section[5], 24):
            name = struct.unpack_from("<I", content, at)[0]
            given = bytes(table[name : table.index(b"\0", name)]).decode("utf-8", "surrogateescape")
            if given in names:
                struct.pack_into("<I", changed, at, len(table))
                table += names[given].encode("utf-8", "surrogateescape") + b"\0"
        struct.pack_into("<QQ", changed, place + section[6] * size + 0x18, len(changed), len(table))
        changed += table
    return bytes(changed)


def common_name(symbol: str) -> str:
    """The mangled name of a kernel without the differences between compilers."""
    match = _ANONYMOUS.search(symbol)
    while match is not None:
        end = match.start(2) + int(match[1])
        symbol = f"{symbol[: match.start()]}12_GLOBAL__N_1{symbol[end:]}"
        match = _ANONYMOUS.search(symbol, match.start() + len("12_GLOBAL__N_1"))
    # After the names of namespaces, an `L` marks a local name.
    place = len("_ZN") if symbol.startswith("_ZN") else len("_Z")
    while symbol.startswith("_ZN") and (length := _NUMBER.match(symbol, place)) is not None:
        place = length.end() + int(length[0])
    is_local = symbol[place : place + 1] == "L" and symbol[place + 1 : place + 2].isdigit()
    return symbol[:place] + symbol[place + 1 :] if is_local else symbol


class Kernel:
    """A kernel in a cubin.

    Attributes:
        symbol: its name in the cubin.
        code: its machine code; None if it is local to the unit.
    """

    __slots__ = ("code", "symbol")

    def __init__(self, symbol: str, code: bytes | None) -> None:
        self.symbol, self.code = symbol, code


def kernels_of(cubin: bytes) -> dict[str, Kernel]:
    """The kernels in a cubin, by their common names."""
    found = {}
    sections = _sections(cubin)
    for name, info, other, where in symbols(cubin):
        if info & 15 == _FUNCTION and other & _ENTRY:
            begin, size = sections[where][4:6]
            found[common_name(name)] = Kernel(name, None if info >> 4 == _LOCAL else cubin[begin : begin + size])
    return found


def suffix_of(kernels: Sequence[Kernel], unit: str) -> str:
    """The suffix of a kernel's symbol, by which kernels of one name in several units differ.

    Args:
        kernels: the kernel in each cubin.
    """
    import hashlib  # most modules have one unit, and do not need it

    digest = hashlib.sha256()
    for kernel in kernels:
        if kernel.code is None:
            return unit
        digest.update(f"{len(kernel.code)} ".encode() + kernel.code)
    return digest.hexdigest()[:16]


def is_by_address(name: str) -> bool:
    """Whether this function of CUDA's runtime takes symbols that only nvcc registers."""
    return _BY_ADDRESS.fullmatch(name) is not None


def undefined_in(host: bytes) -> list[str]:
    """The undefined symbols of an object."""
    return [name for name, _, _, section in symbols(host) if section == _UNDEFINED and name]


def assembly(
    unit: str, undefined: list[str], paths: list[str], found: list[dict[str, Kernel]]
) -> tuple[str, dict[str, str]]:
    """The table of a unit's kernels, and its cubins; and the new names of its symbols.

    Args:
        unit: the unit's name; empty if the module has no other unit.
        undefined: the undefined symbols of the host half.
        paths: those of the cubins.
        found: the kernels in each of them.
    """
    names: dict[str, str] = {}
    lines = ['.section .note.GNU-stack,"",%progbits', '.section .rodata.kjit_cubins,"a"']
    for index, path in enumerate(paths):
        lines += [".balign 64", f".Lcubin{index}:", f'.incbin "{path}"']
    lines += ['.section .data.rel.ro.kjit_unit,"aw"', ".balign 8", ".Lcubins:"]
    for index, path in enumerate(paths):
        digits = path.rpartition(".sm_")[2].partition(".")[0]
        number = int(digits.rstrip("af"))
        lines += [f".quad .Lcubin{index}", f".long {number // 10}", f".long {number % 10}"]
        lines += [f".long {' fa'.index(digits[-1]) if digits[-1] in 'fa' else 0}", ".long 0"]
    lines += ['.section .data.kjit_unit,"aw"', ".balign 8", ".Lunit:", ".quad .Lcubins", f".quad {len(paths)}"]
    lines += [".quad .Llibraries", ".Llibraries:", f".zero {8 * len(paths)}"]
    for number, symbol in enumerate(undefined):
        name = common_name(symbol)
        kernels = [each[name] for each in found if name in each]
        if len(kernels) < len(found):
            continue
        lines += [f'.section .rodata.kjit_name{number},"a"']
        for index, kernel in enumerate(kernels):
            lines += [f".Lname{number}_{index}:", f'.asciz "{kernel.symbol}"']
        lines += [f'.section .data.rel.ro.kjit_names{number},"aw"', ".balign 8", f".Lnames{number}:"]
        lines += [f".quad .Lname{number}_{index}" for index in range(len(kernels))]
        lines += [f'.section .data.kjit_handles{number},"aw"', ".balign 8", f".Lhandles{number}:"]
        lines += [f".zero {8 * len(kernels)}"]
        lines += ['.section kjit_kernels,"aw"', ".balign 8"]
        defined = [symbol]
        if unit:
            names[symbol] = f"{symbol}.{suffix_of(kernels, unit)}"
            is_local = any(kernel.code is None for kernel in kernels)
            defined = [names[symbol]] if is_local else [symbol, names[symbol]]
        for each in defined:
            lines += [f".hidden {each}", f".weak {each}", f".type {each}, %object", f"{each}:"]
        lines += [".quad .Lunit", f".quad .Lnames{number}", f".quad .Lhandles{number}"]
    return "\n".join([*lines, ""]), names


def main(words: list[str], log: int = 1) -> int:
    """Run the program; its output goes to the file descriptor `log`."""
    host, output, unit, *paths = words
    with open(host, "rb") as file:
        content = file.read()
    undefined = undefined_in(content)
    refused = sorted(filter(is_by_address, undefined))
    if refused:
        os.write(log, f"error: only nvcc registers the symbols that {refused[0]} takes\n".encode())
        return 1
    found = []
    for path in paths:
        with open(path, "rb") as file:
            found.append(kernels_of(file.read()))
    text, names = assembly(unit, undefined, paths, found)
    with open(output, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    if names:
        # In a new file: the object may be a link to one in the cache of a compiler launcher.
        with open(f"{host}.renamed", "wb") as file:
            file.write(renamed(content, names))
        os.replace(f"{host}.renamed", host)
    return 0
