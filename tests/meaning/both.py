"""The same CUDA text built by nvcc and by kjit's two halves, and what the two libraries say.

The lines of a text that may be dropped, because a compiler refuses them, end with `/*#number*/`. What nvcc refuses is
no part of a comparison; what only the halves refuse is counted, for they may refuse, but never mean something else.

A library is called in a process of its own, so that a crash is a failure and not the end of the tests, and so that
symbols that the dynamic linker would unite stay apart.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from kjit.engine.compile import kind
from kjit.engine.compile.compile import Built, compile_variant
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.spec import Spec, Target, Variant

Compiler = Literal["nvcc", "nvrtc"]
TARGET = Target.cuda("9.0a")

FLAGS = ("-no-compress", "-w")
"""nvcc's cubins are stored as NVRTC's are: readable without a tool."""

VALUES = "__tvm_ffi_values"
"""The function of a library that prints: the linker keeps a name of this form."""

_CALL = f"""
import ctypes, sys
for name in sys.argv[1:-1]:
    ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(sys.argv[-1]).{VALUES}()
"""

_PLACE = re.compile(r"unit\.cu[:(](?P<line>\d+)|line (?P<of>\d+)(?: of \S*/unit\.cu\b|$)")
_REASON = re.compile(r"needs nvcc: (?:.*?\b(\w+) of a |.*?\b(__\w+|cuda\w+))")
"""A reason of kjit's that names a function and no line: all lines that use it are taken to be refused."""

_MARK = re.compile(r"/\*#(\d+)\*/$")


class Refused(Exception):  # noqa: N818
    """A text that a compiler does not compile, or that kjit leaves to the other one; says why.

    Attributes:
        text: the text without the lines that the errors of earlier builds named.
        dropped: why these were refused.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.text = ""
        self.dropped: dict[int, str] = {}


class InternalError(Refused):
    """An internal error of nvcc."""


def build(text: str, compiler: Compiler, folder: Path, flags: Sequence[str] = (), part: str = "") -> Built:
    """Build a text by one of the two ways.

    Args:
        part: the name of this part of the text: the source has the same path for all parts, the library has not.

    Raises:
        Refused: it does not compile, or kjit has left it to the other compiler.
    """
    staging = folder / f"{compiler}{part}"
    staging.mkdir(parents=True, exist_ok=True)
    source = folder / "unit.cu"
    source.write_text(text)
    spec = Spec("unit", cuda_files=[source], extra_cuda_cflags=[*FLAGS, *flags])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KJIT_CUDA_COMPILER", compiler)
        try:
            built = compile_variant(Variant(spec, TARGET), Toolchain.for_target(TARGET), staging)
        except KjitError as error:
            raise Refused(getattr(error, "log", "") or error.message) from None
    if not built.compiler.lower().startswith(compiler):
        raise Refused(f"compiled by {built.compiler}, because {built.why_nvcc}")
    return built


@dataclass(frozen=True)
class Pair:
    """A text as built by both compilers.

    Attributes:
        nvcc: the library.
        halves: the libraries: several, each with some of the lines, if the halves refuse a line without its place.
        unfit: why nvcc refuses lines, by their numbers.
        refused: why the halves refuse lines that nvcc compiles.
    """

    nvcc: Path
    halves: tuple[Path, ...]
    unfit: dict[int, str]
    refused: dict[int, str]


def is_for_nvrtc(expression: str) -> bool:
    """Whether kjit's rule leaves an expression to NVRTC. (What it refuses by name takes builds to find out.)"""
    return not kind.lacking(f'# 1 "unit.cu"\n{expression};\n')


def build_both(text: str, folder: Path, flags: Sequence[str] = ()) -> Pair:
    """Build a text by both compilers, without the lines that either refuses.

    Raises:
        InternalError: nvcc has one.
        Refused: the halves refuse the text even without its marked lines.
    """
    try:
        text, by_nvcc, unfit = _build_what_compiles(text, "nvcc", folder, flags)
    except Refused as error:
        if "Internal Compiler Error" in str(error):
            raise InternalError(str(error)) from None
        pytest.fail(f"this test is wrong, for nvcc refuses its text:\n{str(error)[:2000]}")
    try:
        _, library, refused = _build_what_compiles(text, "nvrtc", folder, flags)
        return Pair(by_nvcc, (library,), unfit, refused)
    except Refused as error:
        build(_with_lines(text, ()), "nvrtc", folder, flags)
        by_halves, refused = _build_in_parts(error.text, folder, flags, "-")
        return Pair(by_nvcc, by_halves, unfit, refused | error.dropped)


def _build_in_parts(
    text: str, folder: Path, flags: Sequence[str], part: str
) -> tuple[tuple[Path, ...], dict[int, str]]:
    """Build the halves of a text; and of its parts, where it is refused for a line that no message names."""
    try:
        _, library, refused = _build_what_compiles(text, "nvrtc", folder, flags, part)
        return (library,), refused
    except Refused as error:
        text, refused = error.text, error.dropped
        numbers = sorted({int(mark[1]) for line in text.splitlines() if (mark := _MARK.search(line))})
        if not numbers:
            return (), refused
        if len(numbers) == 1:
            return (), refused | {numbers[0]: str(error).strip()[:300]}
    libraries: tuple[Path, ...] = ()
    middle = len(numbers) // 2
    for name, some in (("a", numbers[:middle]), ("b", numbers[middle:])):
        built, dropped = _build_in_parts(_with_lines(text, some), folder, flags, part + name)
        libraries, refused = libraries + built, refused | dropped
    return libraries, refused


def _with_lines(text: str, numbers: Collection[int]) -> str:
    """A text with some of its marked lines."""
    marked = ((line, _MARK.search(line)) for line in text.splitlines())
    return "\n".join(line if mark is None or int(mark[1]) in numbers else "" for line, mark in marked)


def _build_what_compiles(
    text: str, compiler: Compiler, folder: Path, flags: Sequence[str], part: str = ""
) -> tuple[str, Path, dict[int, str]]:
    """Build a text without the lines that the compiler's errors name."""
    dropped: dict[int, str] = {}
    while True:
        try:
            return text, build(text, compiler, folder, flags, part).library, dropped
        except Refused as error:
            lines = text.splitlines()
            named = _lines_named(str(error), lines)
            if not named:
                error.text, error.dropped = text, dropped
                raise
        dropped |= {int(mark[1]): why for at, why in named.items() if (mark := _MARK.search(lines[at]))}
        text = "\n".join("" if at in named else line for at, line in enumerate(lines))


def places_of(message: str) -> list[tuple[int, str]]:
    """The lines of a text that errors are in, or that lead to an error elsewhere, and what the errors say."""
    places = []
    error = ""
    for said in message.splitlines():
        error = said.strip() if "error" in said else error
        if "warning" not in said:
            places += [(int(each["line"] or each["of"]) - 1, error) for each in _PLACE.finditer(said)]
    return [(at, why) for at, why in places if why]


def _lines_named(message: str, lines: Sequence[str]) -> dict[int, str]:
    """Those of these lines that may be dropped; or all that use a function that kjit refuses by name."""
    named: dict[int, str] = {}
    for at, why in places_of(message):
        if 0 <= at < len(lines) and _MARK.search(lines[at]):
            named.setdefault(at, why)
    if named or (word := _REASON.search(message)) is None:
        return named
    use = re.compile(rf"\b{word[1] or word[2]}\b")
    return {at: message.strip() for at, line in enumerate(lines) if _MARK.search(line) and use.search(line)}


@cache
def _libraries() -> tuple[str, ...]:
    import tvm_ffi.libinfo

    return (tvm_ffi.libinfo.find_libtvm_ffi(), str(find_cuda().cudart))


def output_of(library: Path) -> str:
    """What a library prints."""
    command = [sys.executable, "-I", "-S", "-c", _CALL, *_libraries(), str(library)]
    done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace", timeout=120)
    assert done.returncode == 0, f"'{library}' failed with {done.returncode}:\n{done.stdout[-300:]}{done.stderr}"
    return done.stdout


def printed(library: Path) -> dict[int, str]:
    """What a library prints: after its number, each line's text."""
    lines = (line.partition("|") for line in output_of(library).splitlines())
    return {int(number): text for number, _, text in lines}


PRELUDE = r"""#include <stdio.h>
namespace meaning {
template <typename T> constexpr bool is_long_double = false;
template <> constexpr bool is_long_double<long double> = true;
void begin(int id, const char* type) {
  while (type[0] != 'T' || type[1] != ' ' || type[2] != '=') ++type;
  printf("%d|", id);
  for (type += 4; *type && *type != ';' && (*type != ']' || type[1]); ++type) printf("%c", *type);
  printf("|");
}
template <typename T> void show_text(int id, const T* value) {
  begin(id, __PRETTY_FUNCTION__);
  for (; *value; ++value) printf(*value < ' ' || *value > '~' ? "\\%02x" : "%c", (unsigned)*value);
  printf("\n");
}
void show(int id, const char* value) { show_text(id, value); }
void show(int id, const char8_t* value) { show_text(id, value); }
template <typename T> void show(int id, const T& value) {
  begin(id, __PRETTY_FUNCTION__);
  const unsigned char* bytes = (const unsigned char*)&value;
  int size = __is_class(T) || __is_union(T) ? 0 : (int)sizeof(T);
  if (is_long_double<T>) size = 10;  // the rest of it is padding
  for (int i = size - 1; i >= 0; --i) printf("%02x", bytes[i]);
  printf("\n");
}
template <typename T> void show(int id, T* value) {
  begin(id, __PRETTY_FUNCTION__);
  printf("%s\n", value ? "set" : "null");
}
}  // namespace meaning
"""
"""Host code that prints the type and the value of an expression. It includes next to nothing, so that a text alone says
which headers are before an expression."""

_EXPORT = 'extern "C" __attribute__((visibility("default"))) void {}() {{\n{}\n  fflush(stdout);\n}}\n'
_PER_FUNCTION = 20
_KERNEL = "__global__ void some_kernel(int* x) { *x = 1; }"


def host_text(expressions: Sequence[str], before: str = "", after: str = _KERNEL) -> str:
    """A text that prints the type and the value of each expression, which is on a line of its own."""
    parts = [before, PRELUDE, after]
    names = []
    for first in range(0, len(expressions), _PER_FUNCTION):
        names.append(f"  values_{first}();")
        parts.append(f"__attribute__((noinline)) static void values_{first}() {{")
        parts += map(_shown, expressions[first : first + _PER_FUNCTION], range(first, first + _PER_FUNCTION))
        parts.append("}")
    return "\n".join([*parts, _EXPORT.format(VALUES, "\n".join(names))])


def _shown(expression: str, number: int) -> str:
    assert "\n" not in expression
    # The type is that of the function that is called: in a decltype nvcc takes a member of a temporary for a value, and
    # g++ for a reference.
    return f"meaning::show({number}, ({expression})); /*#{number}*/"


@dataclass(frozen=True)
class Compared:
    """What both compilers make of a list of expressions.

    Attributes:
        equal: how many have one value.
        different: those that have two, with both.
        refused: those that nvcc compiles and the halves refuse, with the reason.
        unfit: those that nvcc refuses, with the reason.
    """

    equal: int
    different: list[str]
    refused: list[str]
    unfit: list[str]

    def hold(self, least: float = 0.9) -> None:
        """Fail where a value differs, or where too few could be compared.

        Args:
            least: the share of the expressions of which both compilers have to have a value.
        """
        total = self.equal + len(self.different) + len(self.refused) + len(self.unfit)
        assert not self.different, "\n".join([f"{len(self.different)} of {total} differ:", *self.different])
        lacking = [f"of {total} only {self.equal} are compared. The halves refuse:", *self.refused]
        assert self.equal >= least * total, "\n".join([*lacking, "nvcc refuses:", *self.unfit])


def compare(
    expressions: Sequence[str],
    text: str,
    folder: Path,
    flags: Sequence[str] = (),
    read: Callable[[Path], dict[int, str]] = printed,
) -> Compared:
    """Compare what a text's libraries say of the expressions that its lines hold."""
    try:
        pair = build_both(text, folder, flags)
    except Refused as error:
        return Compared(0, [], [f"all: {str(error)[:1000]}"], [])
    by_nvcc = read(pair.nvcc)
    by_halves = {number: text for library in pair.halves for number, text in read(library).items()}
    compared = [each for each in range(len(expressions)) if each not in pair.unfit and each not in pair.refused]
    different = [
        f"{expressions[each]}\n    nvcc:   {by_nvcc.get(each)}\n    halves: {by_halves.get(each)}"
        for each in compared
        if by_nvcc.get(each) != by_halves.get(each) or each not in by_nvcc
    ]

    def shown(dropped: dict[int, str]) -> list[str]:
        return [f"{expressions[number]}\n    {why}" for number, why in dropped.items()]

    return Compared(len(compared) - len(different), different, shown(pair.refused), shown(pair.unfit))


def compare_host(expressions: Sequence[str], folder: Path, before: str = "", flags: Sequence[str] = ()) -> Compared:
    """Compare the values of expressions in host code."""
    return compare(expressions, host_text(expressions, before), folder, flags)
