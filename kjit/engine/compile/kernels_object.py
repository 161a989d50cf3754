"""The object that joins the two halves of a unit: a kernel for each undefined symbol of the host half.

The build runs `main` of this file as a program:

    unit.o unit.kernels.s unit.sm_80.cubin unit.sm_90a.cubin

It writes assembly that contains the cubins and defines each kernel's symbol as a row of a table, which
kjit/csrc/support/kernels.cpp reads at a launch. A symbol without a kernel stays undefined, and the link fails.

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
    from collections.abc import Iterator

_ANONYMOUS = re.compile(r"(\d+)(_GLOBAL__N_)")
_NUMBER = re.compile(r"\d+")
_ENTRY = 0x10  # STO_CUDA_ENTRY
_FUNCTION = 2
_UNDEFINED = 0
_SYMTAB = 2

# Functions of CUDA's runtime that take the address of a variable or a kernel, which only nvcc registers.
_BY_ADDRESS = re.compile(
    r"cuda(?:Memcpy(?:To|From)Symbol\w*|GetSymbol(?:Address|Size)|Graph(?:Exec)?(?:Add)?(?:Memcpy|Kernel)Node\w*|"
    r"GraphAddNode\w*|Graph(?:Exec)?NodeSetParams\w*|FuncSetSharedMemConfig|LaunchCooperativeKernelMultiDevice)"
)


def symbols(content: bytes) -> Iterator[tuple[str, int, int, int]]:
    """The symbols of a 64-bit little-endian ELF file: name, `st_info`, `st_other` and section.

    Raises:
        ValueError: it is not such a file.
    """
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (place,) = struct.unpack_from("<Q", content, 0x28)
    size, count, _ = struct.unpack_from("<HHH", content, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, place + index * size) for index in range(count)]
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, other, where = struct.unpack_from("<IBBH", content, at)
            end = content.index(b"\0", names + name)
            yield content[names + name : end].decode("utf-8", "surrogateescape"), info, other, where


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


def kernels_of(cubin: bytes) -> dict[str, str]:
    """The symbols of the kernels in a cubin, by their common names."""
    entries = (name for name, kind, other, _ in symbols(cubin) if kind & 15 == _FUNCTION and other & _ENTRY)
    return {common_name(name): name for name in entries}


def is_by_address(name: str) -> bool:
    """Whether this function of CUDA's runtime takes symbols that only nvcc registers."""
    return _BY_ADDRESS.fullmatch(name) is not None


def undefined_in(host: bytes) -> list[str]:
    """The undefined symbols of an object."""
    return [name for name, _, _, section in symbols(host) if section == _UNDEFINED and name]


def assembly(undefined: list[str], cubins: list[tuple[str, bytes]]) -> str:
    """The table of a unit's kernels, and its cubins.

    Args:
        undefined: the undefined symbols of the host half.
        cubins: the path and the content of each.
    """
    found = [kernels_of(content) for _, content in cubins]
    lines = ['.section .note.GNU-stack,"",%progbits', '.section .rodata.kjit_cubins,"a"']
    for index, (path, _) in enumerate(cubins):
        lines += [".balign 64", f".Lcubin{index}:", f'.incbin "{path}"']
    lines += ['.section .data.rel.ro.kjit_unit,"aw"', ".balign 8", ".Lcubins:"]
    for index, (path, _) in enumerate(cubins):
        digits = path.rpartition(".sm_")[2].partition(".")[0]
        number = int(digits.rstrip("af"))
        lines += [f".quad .Lcubin{index}", f".long {number // 10}", f".long {number % 10}"]
        lines += [f".long {' fa'.index(digits[-1]) if digits[-1] in 'fa' else 0}", ".long 0"]
    lines += ['.section .data.kjit_unit,"aw"', ".balign 8", ".Lunit:", ".quad .Lcubins", f".quad {len(cubins)}"]
    lines += [".quad .Llibraries", ".Llibraries:", f".zero {8 * len(cubins)}"]
    for number, symbol in enumerate(undefined):
        names = [kernels.get(common_name(symbol)) for kernels in found]
        if any(name is None for name in names):
            continue
        lines += [f'.section .rodata.kjit_name{number},"a"']
        for index, name in enumerate(names):
            lines += [f".Lname{number}_{index}:", f'.asciz "{name}"']
        lines += [f'.section .data.rel.ro.kjit_names{number},"aw"', ".balign 8", f".Lnames{number}:"]
        lines += [f".quad .Lname{number}_{index}" for index in range(len(names))]
        lines += [f'.section .data.kjit_handles{number},"aw"', ".balign 8", f".Lhandles{number}:"]
        lines += [f".zero {8 * len(names)}"]
        lines += ['.section kjit_kernels,"aw"', ".balign 8", f".hidden {symbol}"]
        lines += [f"{'.globl' if '12_GLOBAL__N_1' in symbol else '.weak'} {symbol}", f".type {symbol}, %object"]
        lines += [f"{symbol}:", ".quad .Lunit", f".quad .Lnames{number}", f".quad .Lhandles{number}"]
    return "\n".join([*lines, ""])


def main(words: list[str], log: int = 1) -> int:
    """Run the program; its output goes to the file descriptor `log`."""
    host, output, *paths = words
    with open(host, "rb") as file:
        undefined = undefined_in(file.read())
    refused = sorted(filter(is_by_address, undefined))
    if refused:
        os.write(log, f"error: only nvcc registers the symbols that {refused[0]} takes\n".encode())
        return 1
    cubins = []
    for path in paths:
        with open(path, "rb") as file:
            cubins.append((path, file.read()))
    with open(output, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(assembly(undefined, cubins))
    return 0
