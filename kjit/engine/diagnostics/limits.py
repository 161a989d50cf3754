"""Mistakes in CUDA sources, distinguished from limits of NVRTC by the errors of both halves.

Code that NVRTC does not support is compiled by nvcc. A mistake is reported at once: nvcc would report the same a second
later, since NVRTC is its front end with the same messages, and the compiler of the host half is the one that nvcc
calls. An error is certainly a mistake if

- ptxas rejects the code of a kernel, a C++ compiler rejects a unit without kernels, or the linker misses a symbol that
  is not a kernel;
- the preprocessor misses a header of the host half, which nvcc reads with the same flags;
- NVRTC and the C++ compiler both reject a line of the op;
- NVRTC rejects device code, which the other compiler does not see, in a file of the op (or of kjit, whose headers all
  compile with NVRTC), unless it misses a name that a library may define for nvcc alone.

Every other error counts as a limit, and nvcc decides. That is always correct, and seldom slow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from kjit.engine.compile import halves
from kjit.engine.compile.steps import Step
from kjit.engine.diagnostics.files import Files
from kjit.engine.diagnostics.messages import Message, parse, plain
from kjit.engine.diagnostics.symbols import base_name
from kjit.engine.toolchain.locations import kjit_include

# Compilers report a missing token on different lines.
_NEAR = 2

_NAMED = re.compile(r"^(?:error: )(?P<text>only nvcc.*)$", re.MULTILINE)
"""An error of kjit's programs about a unit that only nvcc compiles."""
_OF_NVRTC = re.compile(
    r"^(?:nvrtc: )?error: (?P<text>(?:(?<=nvrtc: error: )(?:unrecognized|invalid|unsupported|missing|failed with an "
    r"internal error)|Broken module found).*)$",
    re.MULTILINE,
)
"""An error of NVRTC without a place: about an option, or an internal one."""
_MISSING = re.compile(r"(?P<name>\S+): No such file or directory$|'(?P<clang>[^']+)' file not found$")
_LACKING = re.compile(
    r'identifier "(?P<name>\w+)" is undefined|has no (?:actual )?member "(?P<member>\w+)"'
    r'|name followed by "::"|not a (?:class|template|type|namespace)|incomplete type'
)
_CALL = re.compile(
    r"calling a |no instance of |more than one (?:instance|operator|conversion)|no operator |too (?:few|many) arguments"
    r"|does not match|no matching"
)
_OF_LIBRARY = re.compile(
    r"\b(?:std|cub|thrust|cuda)::|exception|\btry\b|\bthrow\b|typeid|type_info|dynamic_cast|thread_local|__int128"
    r"|not supported|unsupported|internal error|execution space|__managed__|attribute"
)
_UNRESOLVED = re.compile(r"ptxas: Unresolved extern")
_OF_CUDA = re.compile(r"(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)|__\w+")


def shown(broken: Sequence[tuple[Step, str]]) -> list[tuple[Step, str]]:
    """The failed commands, with their output, that are shown to the user. If NVRTC rejected a unit, the host half is
    not: nvcc would not have started the host compiler."""
    named = [(step, log) for step, log in broken if _NAMED.search(log)]
    refused = {_unit(step) for step, _ in broken if step.output.endswith(".cubin")}
    return named or [(step, log) for step, log in broken if not (_is_host(step) and _unit(step) in refused)]


class Limit(NamedTuple):
    """Why nvcc has to compile something.

    Attributes:
        reason: the end of a sentence.
        word: the name in the op's sources that needs nvcc, or `#include` if a header does; None if that is unknown.
    """

    reason: str
    word: str | None


class Halves:
    """The failed commands of a build in two halves.

    Args:
        broken: the commands that failed, with their output.
        steps: all commands of the build.
        files: the owners of the files that compilers name.
        read: the content of a file in the build's folder, by its name; empty if there is none.
    """

    def __init__(
        self,
        broken: Sequence[tuple[Step, str]],
        steps: Sequence[Step],
        files: Files,
        read: Callable[[str], str],
    ) -> None:
        self._broken = broken
        self._steps = steps
        self._files = files
        self._read = read

    def limit(self) -> Limit | None:
        """Why nvcc may compile the rejected sources; None if it would not, or if a tool failed without a message about
        the sources."""
        logs = [(step, plain(log)) for step, log in self._broken]
        for pattern in (_NAMED, _OF_NVRTC):
            for named in filter(None, (pattern.search(log) for _, log in logs)):
                word = re.search(r"\bcuda\w+|__managed__", named["text"])
                return Limit(named["text"], None if word is None else word[0])
        uncertain: list[Message] = []
        for step, log in logs:
            messages = [each for each in parse(log) if each.file or each.text.startswith(("ptxas: ", "undefined "))]
            doubts = [each for each in messages if not self._is_certain(step, each)]
            if not doubts:
                return None
            uncertain += doubts
        if not uncertain:
            return None
        is_of_headers = not any(self._is_ours(each.file) or self._is_launch(each.file) for each in uncertain)
        return Limit(_words(uncertain[0]), "#include" if is_of_headers else None)

    def _is_certain(self, step: Step, message: Message) -> bool:
        """Whether nvcc would certainly report this error too."""
        if step is self._steps[-1]:
            if "anonymous namespace" in message.text and "is defined twice" in message.text:
                return False  # two units that both define it: for clang everything in one becomes global
            return not message.symbol or not self._may_be_for_device(base_name(message.symbol))
        if not _is_device(step) and not _is_host(step):
            return True  # a unit without kernels
        if not message.file:
            return _UNRESOLVED.match(message.text) is None
        if step.output.endswith(".ii") and _is_host(step):
            return _MISSING.search(message.text) is not None or self._is_ours(message.file)
        if _is_host(step):
            return False  # NVRTC decides
        if message.text.endswith(" is undefined in device code"):
            return True  # a variable of the host (two_halves.py)
        if self._is_refused_by_both(step, message):
            return True
        return step.output.endswith(".cubin") and self._is_own_mistake(step, message)

    def _is_refused_by_both(self, step: Step, message: Message) -> bool:
        others = [
            place
            for other, log in self._broken
            if _is_host(other) and _unit(other) == _unit(step)
            for each in parse(plain(log))
            for place in self._own_places(each)
        ]
        return any(
            file == other and abs(line - place) <= _NEAR
            for file, line in self._own_places(message)
            for other, place in others
        )

    def _own_places(self, message: Message) -> list[tuple[str, int]]:
        places = [(message.file, message.line), *((frame.file, frame.line) for frame in message.frames)]
        return [
            (self._files.absolute(file), line)
            for file, line in places
            if file and self._files.is_own_or_generated(file)
        ]

    def _is_own_mistake(self, step: Step, message: Message) -> bool:
        if not self._is_ours(message.file):
            return False
        if message.text.startswith("static assertion failed"):
            return True
        if (self._files.absolute(message.file), message.line) not in self._device_code(step):
            return False
        text = message.text
        if (lacking := _LACKING.search(text)) is not None:
            name = lacking["name"] or lacking["member"]
            return name is not None and not name.startswith("__") and name not in self._words_of_libraries
        if _OF_LIBRARY.search(text):
            return False
        if _CALL.search(text):
            called = re.search(r'"(?:[^"(]*\W)?(?P<name>\w+)(?:<.*>)?(?:\(.*)?"', text)
            if called is None or called["name"].startswith("__"):
                return False
            return called["name"] not in self._words_of_libraries
        return True

    def _device_code(self, step: Step) -> set[tuple[str, int]]:
        """The lines of device functions in the files of the op and of kjit."""
        if step.output not in self._lines:
            found = halves.device_lines(self._read(step.inputs[0]), self._is_ours)
            self._lines[step.output] = {(self._files.absolute(file), line) for file, line, _ in found}
        return self._lines[step.output]

    @cached_property
    def _lines(self) -> dict[str, set[tuple[str, int]]]:
        return {}

    @cached_property
    def _words_of_libraries(self) -> set[str]:
        """All names in the headers of CUDA, the C++ library and tvm-ffi, preprocessed for the host."""
        words: set[str] = set()
        for step in self._steps:
            if step.output.endswith(".ii") and not _is_device(step):
                for name, text in halves.by_file(self._read(step.output)):
                    if not self._is_ours(name):
                        words.update(re.findall(r"[A-Za-z_]\w+", text))
        return words

    def _may_be_for_device(self, name: str) -> bool:
        """Whether a symbol that the linker misses may be a kernel, or a device function that host code calls."""
        if _OF_CUDA.fullmatch(name):
            return True
        declared = re.compile(rf"__attribute__\(\((?:global|device)\)\)[^;{{}}]*\b{re.escape(name)}\s*[(<]")
        units = (step.output for step in self._steps if step.output.endswith(".ii") and not _is_device(step))
        return any(declared.search(self._read(unit)) for unit in units)

    def _is_ours(self, file: str) -> bool:
        """Whether it is a file of the op, or a header of kjit."""
        path = Path(self._files.absolute(file))
        headers = kjit_include()
        is_of_kjit = headers in path.parents and headers / "kjit_rtc" not in path.parents
        return is_of_kjit or self._files.is_own_or_generated(file)

    def _is_launch(self, file: str) -> bool:
        """Whether it is the header in which launches of the op are compiled."""
        return Path(self._files.absolute(file)) == kjit_include() / "kjit_rtc" / "host.h"


def _is_device(step: Step) -> bool:
    return re.search(r"\.sm_\w+\.(?:ii|cubin|ptx)$", step.output) is not None


def _is_host(step: Step) -> bool:
    return not _is_device(step) and step.output.endswith((".ii", ".host.o", ".kernels.s", ".kernels.o"))


def _unit(step: Step) -> str:
    return step.output.partition(".")[0]


def _words(message: Message) -> str:
    place = f" ({os.path.basename(message.file)}:{message.line})" if message.file else ""
    return f"without nvcc there is an error: {message.text}{place}"
