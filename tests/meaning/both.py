"""The same CUDA text built by nvcc and by kjit's two halves, and what the two libraries say.

A text exports `__tvm_ffi_values`, which prints one line for each expression; `Unit` writes such a text from a list of
expressions. A library is called in a process of its own, so that a crash is a failure and not the end of the tests, and
so that symbols that the dynamic linker would unite stay apart.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from kjit.engine.compile.compile import Built, compile_variant
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.spec import Spec, Target, Variant

Compiler = Literal["nvcc", "nvrtc"]
TARGET = Target.cuda("9.0a")

FLAGS = ("-no-compress",)
"""nvcc's cubins are stored as NVRTC's are: readable without a tool."""

_CALL = """
import ctypes, sys
for name in sys.argv[1:-1]:
    ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
getattr(ctypes.CDLL(sys.argv[-1]), "__tvm_ffi_values")()
"""

_LINE = re.compile(r"unit\.cu[:(](\d+)")
_ROUNDS = 8


class Refused(Exception):  # noqa: N818
    """A text that a compiler does not compile, or that kjit leaves to nvcc; says why."""


def build(text: str, compiler: Compiler, folder: Path, flags: Sequence[str] = ()) -> Built:
    """Build a text by one of the two ways.

    Raises:
        Refused: it does not compile, or kjit has left it to the other compiler.
    """
    staging = folder / compiler
    staging.mkdir(parents=True, exist_ok=True)
    source = folder / "unit.cu"
    source.write_text(text)
    spec = Spec("unit", cuda_files=[source], extra_cuda_cflags=[*FLAGS, *flags])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KJIT_CUDA_COMPILER", compiler)
        try:
            built = compile_variant(Variant(spec, TARGET), Toolchain.for_target(TARGET), staging)
        except KjitError as error:
            raise Refused(f"{error.message}\n{getattr(error, 'log', '')}") from None
    if not built.compiler.lower().startswith(compiler):
        raise Refused(f"compiled by {built.compiler}, because {built.why_nvcc}")
    return built


@cache
def _libraries() -> tuple[str, ...]:
    import tvm_ffi.libinfo

    return (tvm_ffi.libinfo.find_libtvm_ffi(), str(find_cuda().cudart))


def printed(library: Path) -> list[str]:
    """The lines that a library's `__tvm_ffi_values` prints."""
    command = [sys.executable, "-I", "-S", "-c", _CALL, *_libraries(), str(library)]
    done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace", timeout=120)
    assert done.returncode == 0, f"'{library}' failed with {done.returncode}:\n{done.stdout[-300:]}{done.stderr}"
    return done.stdout.splitlines()


PRELUDE = r"""
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
namespace meaning {
template <typename T> std::string_view type_of() { return __PRETTY_FUNCTION__; }
template <typename T> void show(int id, std::string_view type, const T& value) {
  type = type.substr(type.find("T = ") + 4);
  std::printf("%d|%.*s|", id, static_cast<int>(type.substr(0, type.find(';')).size()), type.data());
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    for (const char each : std::string_view(value)) std::printf("%c", each < ' ' ? '.' : each);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || sizeof(T) == 16 && std::is_trivial_v<T>) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    // The rest of a long double is padding.
    const int size = std::is_same_v<T, long double> ? 10 : static_cast<int>(sizeof(T));
    for (int i = size - 1; i >= 0; --i) std::printf("%02x", bytes[i]);
  } else if constexpr (std::is_pointer_v<T> || std::is_null_pointer_v<T>) {
    std::printf(value == nullptr ? "null" : "not null");
  } else {
    std::printf("%d bytes", static_cast<int>(sizeof(T)));
  }
  std::printf("\n");
}
}  // namespace meaning
"""
"""Host code that prints the type and the value of an expression."""

_EXPORT = '\nextern "C" __attribute__((visibility("default"))) void __tvm_ffi_values() {{\n{}\n  std::fflush(stdout);\n}}\n'
_PER_FUNCTION = 20


@dataclass
class Unit:
    """A text that prints the values of expressions, one on each of its lines.

    Attributes:
        expressions: what is printed.
        before: the text before the functions: includes and definitions.
        dropped: the expressions that a compiler refused, and why.
    """

    expressions: Sequence[str]
    before: str = ""
    kernel: str = "__global__ void some_kernel(int* x) { *x = 1; }"
    dropped: dict[int, str] = field(default_factory=dict)

    def text(self) -> str:
        """The text, without the expressions that were dropped."""
        return "\n".join([PRELUDE, self.before, self.kernel, *self._functions()])

    def _functions(self) -> Iterator[str]:
        ids = [number for number in range(len(self.expressions)) if number not in self.dropped]
        names = []
        for first in range(0, len(ids), _PER_FUNCTION):
            names.append(f"values_{first}")
            yield f"__attribute__((noinline)) static void {names[-1]}() {{"
            for number in ids[first : first + _PER_FUNCTION]:
                yield _shown(number, self.expressions[number])
            yield "}"
        yield _EXPORT.format("\n".join(f"  {name}();" for name in names))

    def build(self, compiler: Compiler, folder: Path, flags: Sequence[str] = ()) -> Built:
        """Build it, without the expressions that this compiler refuses.

        Raises:
            Refused: it refuses the text for another reason.
        """
        for _ in range(_ROUNDS):
            text = self.text()
            try:
                return build(text, compiler, folder, flags)
            except Refused as error:
                refused = self._named_by(str(error), text)
                if not refused:
                    raise
                self.dropped.update(refused)
        raise Refused(f"refuses more and more expressions: {sorted(self.dropped)}")

    def _named_by(self, message: str, text: str) -> dict[int, str]:
        lines = text.splitlines()
        named: dict[int, str] = {}
        for line in message.splitlines():
            place = _LINE.search(line)
            if place is None or "warning" in line or not 0 < int(place[1]) <= len(lines):
                continue
            number = re.match(r"  meaning::show\((\d+),", lines[int(place[1]) - 1])
            if number is not None:
                named.setdefault(int(number[1]), line.strip())
        return named


def _shown(number: int, expression: str) -> str:
    return f"  meaning::show({number}, meaning::type_of<decltype(({expression}))>(), ({expression}));"


def values(library: Path) -> dict[int, str]:
    """What a unit's library prints, by the numbers of the expressions."""
    found = {}
    for line in printed(library):
        number, _, value = line.partition("|")
        found[int(number)] = value
    return found


@dataclass(frozen=True)
class Compared:
    """What both compilers make of a list of expressions.

    Attributes:
        equal: how many have one value.
        different: a line for each that has two.
        refused: a line for each that nvcc compiles and the halves refuse.
        unfit: a line for each that nvcc refuses.
    """

    equal: int
    different: list[str]
    refused: list[str]
    unfit: list[str]


def compare(expressions: Iterable[str], folder: Path, before: str = "", flags: Sequence[str] = ()) -> Compared:
    """Compare the values of host expressions by both compilers."""
    unit = Unit(list(expressions), before)
    by_nvcc = values(unit.build("nvcc", folder, flags).library)
    unfit = dict(unit.dropped)
    by_halves = values(unit.build("nvrtc", folder, flags).library)
    refused = {number: why for number, why in unit.dropped.items() if number not in unfit}
    different = [
        f"{unit.expressions[number]}\n    nvcc:   {by_nvcc[number]}\n    halves: {value}"
        for number, value in by_halves.items()
        if value != by_nvcc[number]
    ]

    def shown(dropped: dict[int, str]) -> list[str]:
        return [f"{unit.expressions[number]}\n    {why}" for number, why in dropped.items()]

    return Compared(len(by_halves) - len(different), different, shown(refused), shown(unfit))


