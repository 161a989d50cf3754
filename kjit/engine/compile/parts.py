"""The kernels of a device half in several parts, each compiled by a process of its own.

NVRTC reads a unit with one thread, and what it reads tells it which kernels there are. So each part is the whole unit,
in which the kernels of the other parts have no body (`if constexpr` on what the compiler calls them), and its cubin has
stubs for these. A stub traps, and is told from a kernel by its machine code, which is that of `STUB`.

Which kernels a unit has is not known before it was compiled. The process that compiles (server.py) asks NVRTC while it
waits, for units whose kernels take long: an edit is then compiled in parts. A kernel that is new belongs to the last
part. The parts are processes that this one forks, with NVRTC loaded, as NVRTC reads one unit at a time in a process.

Variables on the device are shared by all kernels of a module, and a cubin would have its own. A unit that may have one
stays whole.

It imports little, because the first build waits for it.
"""

from __future__ import annotations

import os
import re
import signal
import time

from kjit.engine.compile import halves
from kjit.engine.compile.kernels_object import STUB, code_of_kernels, common_name, kernels_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST = 8
"""Parts of a unit, and units whose kernels are known."""
_WORTH_IT_S = 0.2
"""What the kernels of a unit take, beyond the reading of it, for parts to gain something."""
_ENOUGH = 1.1
_PATIENCE_S = 10.0
_TIMES = 10.0

# Of the compiler's name for a kernel, a number; `__PRETTY_FUNCTION__` has the values of template parameters.
_NUMBER = (
    "__host__ __device__ constexpr unsigned number_of(const char* name) { unsigned number = 2166136261u; "
    "while (*name != 0) number = (number ^ static_cast<unsigned char>(*name++)) * 16777619u; return number; }"
)
_TRAP = 'asm volatile("trap;");'
_IN_PART = "{ if constexpr (::kjit_rtc::is_of_part(::kjit_rtc::number_of(__PRETTY_FUNCTION__)))"
_ELSE_TRAP = f" else {{ {_TRAP} }} }}"
_ASKED = """{ asm volatile("// kjit: %0" : : "n"(static_cast<int>(::kjit_rtc::number_of(__PRETTY_FUNCTION__)))); \
if constexpr (::kjit_rtc::number_of(__PRETTY_FUNCTION__) == 0)"""
_ANSWER = re.compile(r"\.entry (\w+)\((?:(?!\.entry )[\s\S])*?// kjit: (-?\d+)")


def without_kernels(unit: str) -> str:
    """The device half of a preprocessed `unit` whose kernels do nothing but tell their numbers in PTX."""
    return f"namespace kjit_rtc {{ {_NUMBER} }}\n{halves.device_half(halves.around_kernels(unit, _ASKED, ' }'))}"


def numbers_in(ptx: str) -> dict[str, int]:
    """What `without_kernels` tells: the number of each kernel, by its common name."""
    return {common_name(name): int(number) & 0xFFFFFFFF for name, number in _ANSWER.findall(ptx)}


def texts(unit: str, parts: Sequence[Sequence[int]]) -> list[str]:
    """The device halves of a preprocessed `unit`, each with the kernels of these numbers; the last has those, too, that
    nobody named."""
    half = halves.device_half(halves.around_kernels(unit, _IN_PART, _ELSE_TRAP))
    return [f"{_head(part, parts)}\n{half}" for part in range(len(parts))]


def _head(part: int, parts: Sequence[Sequence[int]]) -> str:
    is_last = part == len(parts) - 1
    named = [number for each in parts[:-1] for number in each] if is_last else list(parts[part])
    found = " || ".join(f"number == {number}u" for number in named) or "false"
    test = f"!({found})" if is_last else found
    is_of_part = f"__host__ __device__ constexpr bool is_of_part(unsigned number) {{ return {test}; }}"
    stub = f'extern "C" __global__ void {STUB}() {{ {_TRAP} }}'
    return f"namespace kjit_rtc {{ {_NUMBER} {is_of_part} }} {stub}"


def divide(weights: dict[int, int], most: int) -> list[list[int]]:
    """Kernels in parts that take about as long as each other: no more parts than help."""
    chosen: list[list[int]] = []
    for count in range(min(most, len(weights)), 0, -1):
        parts: list[list[int]] = [[] for _ in range(count)]
        for number in sorted(weights, key=lambda each: weights[each], reverse=True):
            min(parts, key=lambda part: sum(weights[each] for each in part)).append(number)
        longest = max(sum(weights[each] for each in part) for part in parts)
        if chosen and longest > _ENOUGH * max(sum(weights[each] for each in part) for part in chosen):
            break
        chosen = parts
    return chosen


_ANNOTATION = re.compile(r"__(?:device|constant|managed)__|__attribute__\(\((?:device|constant|managed)\)\)")
_STATIC = re.compile(r"\bstatic\b([^;={(]*)")


def may_share(unit: str) -> bool:
    """Whether a preprocessed `unit` may have a variable on the device that changes."""
    declared = (halves.variable_at(unit, match.start()) for match in _ANNOTATION.finditer(unit))
    inside = (match[1] for body in halves.device_bodies(unit) for match in _STATIC.finditer(body))
    return not all(text is None or _IS_CONSTANT.search(text) is not None for text in (*declared, *inside))


_IS_CONSTANT = re.compile(r"\bconstexpr\b|__shared__|^[^*&]*\bconst\b[^*&]*$|\bconst\s*\w+\s*$")


class Unit:
    """What is known of a unit that was compiled before.

    Attributes:
        sizes: of the machine code of each kernel, by its common name.
        numbers: of the kernels; None before NVRTC was asked, and empty where the unit stays whole.
        seconds: for the compile of the whole, the reading of it included.
    """

    def __init__(self, words: tuple[str, ...], text: str, sizes: dict[str, int], seconds: float) -> None:
        self.words, self.text = words, text
        self.sizes, self.seconds = sizes, seconds
        self.numbers: dict[str, int] | None = None

    def parts(self, most: int) -> list[list[int]]:
        """Its kernels in at most so many parts; one part where more gain nothing, or it is not known."""
        weights: dict[int, int] = {}
        for name, number in (self.numbers or {}).items():
            weights[number] = weights.get(number, 0) + self.sizes.get(name, 1)
        return divide(weights, most)


class Units:
    """Units that a process has compiled, a few."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Unit] = {}
        self._asked: Unit | None = None

    def find(self, words: tuple[str, ...], unit: str) -> Unit | None:
        """What is known of one with these words, from an earlier text."""
        return self._known.get((*words, *_own(unit)))

    def learn(self, words: tuple[str, ...], unit: str, cubins: Sequence[bytes], seconds: float) -> None:
        """Take note of what was compiled.

        Args:
            seconds: 0 where it was compiled in parts.
        """
        name = (*words, *_own(unit))
        sizes: dict[str, int] = {}
        for cubin in cubins:
            for symbol, code in kernels_in(cubin).items():
                sizes[common_name(symbol)] = len(code)
        known = self._known.pop(name, None)
        if known is None:
            known = Unit(words, unit, sizes, seconds)
        known.text, known.seconds = unit, seconds or known.seconds
        is_new = known.numbers is not None and not sizes.keys() <= known.numbers.keys()
        known.sizes = sizes
        self._known[name] = known
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        if known.numbers is None or (known.numbers and is_new):
            self._asked = known

    def make(self, ask: Callable[[tuple[str, ...], str], str | None]) -> None:
        """Have NVRTC asked for the kernels of the last unit, where nobody did yet.

        Args:
            ask: given the unit's words and a device half, the PTX; None where it does not compile.
        """
        unit, self._asked = self._asked, None
        if unit is None:
            return
        unit.numbers = {}
        if len(unit.sizes) < 2 or unit.seconds < _WORTH_IT_S or may_share(unit.text):
            return
        began = time.thread_time()
        ptx = ask(unit.words, without_kernels(unit.text))
        took = time.thread_time() - began
        if ptx is not None and unit.seconds - took >= _WORTH_IT_S:
            unit.numbers = numbers_in(ptx)


def _own(unit: str) -> tuple[str, ...]:
    """What stays of a unit when its op is edited: the names of the op's files, and what is generated for it."""
    files = dict.fromkeys(file for file, _ in halves.by_file(unit, of_op=True) if os.sep in file)
    return (*files, *(text for file, text in halves.by_file(unit) if os.sep not in file and file[:1] != "<"))


def fit(cubins: Sequence[bytes]) -> bool:
    """Whether each kernel is in one of `cubins`, and all of them know the same kernels."""
    names = [{common_name(name) for name in code_of_kernels(cubin)} for cubin in cubins]
    found = [common_name(name) for cubin in cubins for name in kernels_in(cubin)]
    return all(each == names[0] for each in names) and len(found) == len(set(found))


def said_of_all(logs: Sequence[str], cubins: Sequence[bytes]) -> str:
    """What NVRTC said of a unit, from what it said of each part: nothing twice, and nothing of stubs."""
    seen: dict[str, None] = {}
    resources = []
    for log, cubin in zip(logs, cubins, strict=True):
        kernels = kernels_in(cubin)
        head, *blocks = _BLOCK.split(log)
        seen.update(dict.fromkeys(_MESSAGE.findall(_OF_MEMORY.sub("", head))))
        resources += [block for block in blocks if (name := _COMPILED.match(block)) and name[1] in kernels]
    return "".join([*seen, *resources])


_BLOCK = re.compile(r"^(?=ptxas info +: Compiling entry function)", re.MULTILINE)
_COMPILED = re.compile(r"ptxas info +: Compiling entry function '(\w+)'")
_OF_MEMORY = re.compile(r"^ptxas info +: \d+ bytes gmem.*\n", re.MULTILINE)
_MESSAGE = re.compile(r"(?:.+\n)+\n*|\n+")


def side_by_side(compile_part: Callable[[int], bool], count: int) -> bool:
    """Whether all of `count` parts compile, the first in this process and each other in one that is forked."""
    began = time.monotonic()
    processes = [_fork(compile_part, part) for part in range(1, count)]
    done = False
    try:
        done = compile_part(0)
        deadline = time.monotonic() + _PATIENCE_S + _TIMES * (time.monotonic() - began)
        while processes and done and time.monotonic() < deadline:
            ended, status = os.waitpid(processes[-1], os.WNOHANG)
            if ended:
                processes.pop()
                done = status == 0
            else:
                time.sleep(0.002)
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return done and not processes


def _fork(compile_part: Callable[[int], bool], part: int) -> int:
    process = os.fork()
    if process == 0:
        status = 1
        try:
            status = 0 if compile_part(part) else 1
        finally:
            os._exit(status)
    return process
