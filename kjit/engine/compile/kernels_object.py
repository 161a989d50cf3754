"""The object that joins the two halves of a unit: a row of a table for each kernel of the host half.

The build runs `main` of this file as a program:

    g++ unit.o unit.kernels.s unit unit.sm_80.cubin unit.sm_90a.cubin

The word after the outputs is empty if the module has no other CUDA unit. In the host half, a kernel is a function with
a static variable `kjit_kernel` (kjit_rtc/host.h), whose symbol has the kernel's mangled name in it, and which holds the
sizes of the kernel's parameters. They are compared with those in the cubins. The program writes assembly that contains
the cubins, and a row with the addresses of the function and the variable for each kernel, which
kjit/csrc/support/kernels.cpp reads when the library is loaded.

The symbols of a kernel that is local to the unit get other names in `unit.o`, so that the table can refer to them; and
in a module with several units, those of templates, because each unit launches its own kernels.

Both compilers mangle names by the Itanium C++ ABI, with two differences: NVRTC names an anonymous namespace after the
unit, while GCC has one name for all of them; and clang marks names that are local to a unit.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kjit.engine.compile import kind, math_names

_ANONYMOUS = re.compile(r"(\d+)(_GLOBAL__N_)")
_NAME_OF_ANONYMOUS = re.compile(r"_GLOBAL__N_(?:1|_[0-9a-f]{8}_\d+_\w+)")
_NUMBER = re.compile(r"\d+")
_ENTRY = 0x10  # STO_CUDA_ENTRY
_FUNCTION = 2
_LOCAL, _WEAK, _UNIQUE = 0, 2, 10
_UNDEFINED = 0
_SYMTAB, _STRTAB, _NOBITS = 2, 3, 8
_OF_ROW = re.compile(r"_ZZ(?P<encoding>.+)E11kjit_kernel(?:_\d+)?")
_PLAIN = re.compile(r"(?P<length>\d+)(?P<name>\w+)")
_PARAMETER, _BANK = 0x1704, 0x0A04  # EIATTR_KPARAM_INFO and EIATTR_PARAM_CBANK, records with their sizes

# Functions of CUDA's runtime that take a variable, or a kernel in a structure, by its address: only nvcc registers it.
_BY_ADDRESS = re.compile(
    r"cuda(?:Memcpy(?:To|From)Symbol\w*|GetSymbol(?:Address|Size)|Graph(?:Exec)?(?:Add)?(?:Memcpy|Kernel)Node\w*|"
    r"GraphAddNode\w*|Graph(?:Exec)?NodeSetParams\w*|FuncSetSharedMemConfig|LaunchCooperativeKernelMultiDevice)"
)
# CUDA's math functions that the C library lacks. nvcc compiles them into each unit.
_FOR_HOST = re.compile(r"(?:rsqrt|rcbrt|(?:sin|cos|sincos)pi|erfc?inv|erfcx|normcdf(?:inv)?)f?")


class Section(NamedTuple):
    """A section of an ELF file: its name, its type, the number of the one that it refers to, and its place."""

    name: str
    kind: int
    flags: int
    link: int
    begin: int
    end: int


def sections(content: bytes) -> list[Section]:
    """The sections of a 64-bit little-endian ELF file.

    Raises:
        ValueError: it is not such a file.
    """
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (place,) = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    headers = [struct.unpack_from("<IIQQQQII", content, place + index * size) for index in range(count)]
    return [
        Section(_text(content, headers[names][4] + name), kind, flags, link, begin, begin + length)
        for name, kind, flags, _, begin, length, link, _ in headers
    ]


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode("utf-8", "surrogateescape")


class Symbol(NamedTuple):
    """A symbol of an ELF file.

    Attributes:
        section: the index of its section; 0 if it is undefined.
        value: its offset in that section.
    """

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4


def symbols(content: bytes) -> Iterator[Symbol]:
    """The symbols of a 64-bit little-endian ELF file.

    Raises:
        ValueError: it is not such a file.
    """
    every = sections(content)
    for section in every:
        if section.kind == _SYMTAB:
            for at in range(section.begin, section.end, 24):
                name, *others = struct.unpack_from("<IBBHQQ", content, at)
                yield Symbol(_text(content, every[section.link].begin + name), *others)


def rename(compiler: str, host: str, names: Mapping[str, str]) -> None:
    """Give some symbols of an object other names, which are then visible to other objects of a link."""
    find = [compiler, "-print-prog-name=objcopy"]
    objcopy = subprocess.run(find, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    for path, lines in ((f"{host}.renamed", names.items()), (f"{host}.global", zip(names.values(), strict=True))):
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{' '.join(words)}\n" for words in lines)
    flags = (f"--redefine-syms={host}.renamed", f"--globalize-symbols={host}.global")
    # Into a new file: the object may be a link to one in the cache of a compiler launcher.
    subprocess.run([objcopy, *flags, host, f"{host}.new"], check=True)
    os.replace(f"{host}.new", host)


def common_name(symbol: str) -> str:
    """The mangled name of a kernel without the differences between compilers."""
    match = _ANONYMOUS.search(symbol)
    while match is not None:
        begin = match.start(2)
        # The name before it may end with digits.
        for start in reversed(range(match.start(), begin - 1)):
            end = begin + int(symbol[start:begin])
            if symbol[start] != "0" and _NAME_OF_ANONYMOUS.fullmatch(symbol, begin, end) is not None:
                symbol = f"{symbol[:start]}12_GLOBAL__N_1{symbol[end:]}"
                begin = start + len("12_GLOBAL__N_")
                break
        match = _ANONYMOUS.search(symbol, begin)
    # After the names of namespaces, an `L` marks a local name.
    place = len("_ZN") if symbol.startswith("_ZN") else len("_Z")
    while symbol.startswith("_ZN") and (length := _NUMBER.match(symbol, place)) is not None:
        place = length.end() + int(length[0])
    is_local = symbol[place : place + 1] == "L" and symbol[place + 1 : place + 2].isdigit()
    return symbol[:place] + symbol[place + 1 :] if is_local else symbol


class Kernel(NamedTuple):
    """A kernel in a cubin.

    Attributes:
        symbol: its name in the cubin.
        parameters: the offset and the size of each parameter.
        start: the position of the parameters in their bank of memory, where those of large alignment are aligned.
    """

    symbol: str
    parameters: tuple[tuple[int, int], ...]
    start: int = 0


def kernels_of(cubin: bytes) -> dict[str, Kernel]:
    """The kernels in a cubin, by their common names.

    Raises:
        ValueError: two have the same.
    """
    information = {each.name: cubin[each.begin : each.end] for each in sections(cubin)}
    found: dict[str, Kernel] = {}
    for each in symbols(cubin):
        if each.info & 15 == _FUNCTION and each.other & _ENTRY:
            name = common_name(each.name)
            if name in found:
                raise ValueError(f"{each.name} and {found[name].symbol} have one name in host code")
            found[name] = Kernel(each.name, *_parameters(information.get(f".nv.info.{each.name}", b"")))
    return found


def with_own_names(cubin: bytes) -> bytes:
    """A cubin from NVRTC, with the unit's names in its symbols."""
    changed = bytearray(cubin)
    for each in sections(cubin):
        if each.kind == _STRTAB:
            changed[each.begin : each.end] = math_names.restored_symbols(cubin[each.begin : each.end])
    return bytes(changed)


def _parameters(information: bytes) -> tuple[tuple[tuple[int, int], ...], int]:
    """The offset and size of each parameter, and where the first may be, from the `.nv.info` section of a kernel."""
    found: dict[int, tuple[int, int]] = {}
    at = start = 0
    while at + 4 <= len(information):
        kind, size = struct.unpack_from("<HH", information, at)
        if kind == _PARAMETER:
            number, offset, packed = struct.unpack_from("<HHI", information, at + 8)
            found[number] = offset, packed >> 18
        elif kind == _BANK:
            (start,) = struct.unpack_from("<H", information, at + 8)
        at += 4 + (size if kind & 0xFF == 4 else 0)
    return tuple(found[number] for number in sorted(found)), start


class Row(NamedTuple):
    """A kernel of the host half.

    Attributes:
        variable: the symbol of its static variable.
        function: that of its function.
        name: its common name.
        parameters: the size and the alignment of each parameter.
    """

    variable: str
    function: str
    name: str
    parameters: tuple[tuple[int, int], ...]


def rows_of(host: bytes) -> list[Row]:
    """The kernels of a host half."""
    every = sections(host)
    rows = []
    for each in symbols(host):
        match = _OF_ROW.fullmatch(each.name)
        if match is None or each.section == _UNDEFINED:
            continue
        encoding = match["encoding"]
        plain = _PLAIN.fullmatch(encoding)
        is_plain = plain is not None and int(plain["length"]) == len(plain["name"])
        function = encoding[len(plain["length"]) :] if is_plain and plain is not None else f"_Z{encoding}"
        at = every[each.section].begin + each.value + 8
        # A kernel without parameters: nothing but zeros, which have no place in the file.
        (count,) = (0,) if every[each.section].kind == _NOBITS else struct.unpack_from("<I", host, at)
        numbers = struct.unpack_from(f"<{2 * count}I", host, at + 4) if count else ()
        parameters = tuple(zip(numbers[:count], numbers[count:], strict=True))
        rows.append(Row(each.name, function, common_name(function), parameters))
    return rows


def offsets_of(parameters: Sequence[tuple[int, int]], start: int = 0) -> list[tuple[int, int]]:
    """The offset and the size of each parameter, from sizes and alignments, after the address `start`."""
    found = []
    end = start
    for size, alignment in parameters:
        end = -(-end // alignment) * alignment
        found.append((end - start, size))
        end += size
    return found


def only_by_nvcc(name: str) -> str:
    """Why nvcc compiles a unit that calls the undefined function `name`, as the end of a sentence; empty if NVRTC may
    compile it."""
    if _BY_ADDRESS.fullmatch(name) is not None:
        return f"only nvcc registers the symbols that {name} takes"
    return f"only nvcc has {name} for host code" if _FOR_HOST.fullmatch(name) is not None else ""


def undefined_in(host: bytes) -> list[str]:
    """The undefined symbols of an object."""
    return [each.name for each in symbols(host) if each.section == _UNDEFINED and each.name]


def assembly(paths: Sequence[str], kernels: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """The table of a unit's kernels, and its cubins.

    Args:
        paths: those of the cubins.
        kernels: for each kernel, the symbols of its function (empty if it has no address) and of its
            variable, and its name in each cubin.
    """
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
    for number, (function, variable, names) in enumerate(kernels):
        lines += [f'.section .rodata.kjit_name{number},"a"']
        for index, name in enumerate(names):
            lines += [f".Lname{number}_{index}:", f'.asciz "{name}"']
        lines += [f'.section .data.rel.ro.kjit_names{number},"aw"', ".balign 8", f".Lnames{number}:"]
        lines += [f".quad .Lname{number}_{index}" for index in range(len(names))]
        lines += [f'.section .data.kjit_handles{number},"aw"', ".balign 8", f".Lhandles{number}:"]
        lines += [f".zero {8 * len(names)}"]
        lines += ['.section kjit_kernels,"aw"', ".balign 8"]
        lines += [f".hidden {each}" for each in (function, variable) if each]
        lines += [f".quad {function or 0}", f".quad {variable}"]
        lines += [".quad .Lunit", f".quad .Lnames{number}", f".quad .Lhandles{number}"]
    return "\n".join([*lines, ""])


def mismatch(row: Row, kernel: Kernel) -> str:
    """The first difference between a kernel's parameters in both halves; empty if there is none."""
    here, there = offsets_of(row.parameters, kernel.start), [*kernel.parameters]
    if here == there:
        return ""
    differing = [pair for pair in enumerate(itertools.zip_longest(here, there)) if pair[1][0] != pair[1][1]]
    number, both = differing[0]
    words = ["nothing" if each is None else f"{each[1]} bytes at offset {each[0]}" for each in both]
    return f"parameter {number} has {words[0]} in host code, and {words[1]} in device code"


def main(words: list[str], log: int = 1) -> int:
    """Run the program; its output goes to the file descriptor `log`."""
    compiler, host, output, unit, *paths = words
    with open(host, "rb") as file:
        content = file.read()
    found = []
    for path in paths:
        with open(path, "rb") as file:
            found.append(kernels_of(file.read()))
    errors = [f"{kind.ONLY_NVCC}{reason}" for reason in filter(None, map(only_by_nvcc, undefined_in(content)))]
    bindings = {each.name: each.binding for each in symbols(content)}
    names: dict[str, str] = {}
    kernels = []
    for row in rows_of(content):
        there = [each[row.name] for each in found if row.name in each]
        if len(there) < len(found):
            errors.append(f"no device code has the kernel {row.function}")
            continue
        errors += [
            f"the halves of kernel {row.function} differ: {text}"
            for text in dict.fromkeys(filter(None, (mismatch(row, kernel) for kernel in there)))
        ]
        for symbol in (row.function, row.variable):
            binding = bindings.get(symbol)
            if binding == _LOCAL or (unit and binding in (_WEAK, _UNIQUE)):
                names[symbol] = f"{symbol}.{unit or 'kjit'}"
        function, variable = (names.get(symbol, symbol) for symbol in (row.function, row.variable))
        if row.function not in bindings:
            function = ""  # all its calls are inlined
        kernels.append((function, variable, [each.symbol for each in there]))
    if errors:
        os.write(log, "".join(f"error: {each}\n" for each in errors).encode())
        return 1
    with open(output, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(assembly(paths, kernels))
    if names:
        rename(compiler, host, names)
    return 0
