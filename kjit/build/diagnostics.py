"""What did the compilers say, in a form that a person reads first time?

Five tools speak here, in five forms: GCC and clang (`file:line:column: error:`), nvcc's own front end
(`file(line): error:`, with the excerpt after its macros were expanded), ptxas, the assembler and the linker. Each is
read into one value, `Message`; errors in the op's own files come first, those in headers that it uses after them, and
what is only a consequence is counted. Nothing is lost: the whole log stays in the exception.

The same file reads what compilers say besides errors, `ptxas -v`'s table of resources and the list of headers, so that
no other part of kjit knows how compilers print.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

_SHOWN = 3
_LONGEST_LINE = 160
_NOTES_SHOWN = 2

_FEWER_AT_ONCE = "build fewer at once (`kjit build -j 1`), or give this machine more memory"

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PLAIN_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'"})

# file:line[:column]: severity: text           (GCC, clang, the assembler)
_GNU = re.compile(
    r"(?P<file>[^\s|][^|]*?):(?P<line>\d+)(?::(?P<column>\d+))?: "
    r"(?P<severity>fatal error|[Ee]rror|[Ww]arning|note): (?P<text>.*)"
)
# file(line): severity [#number]: text         (nvcc's front end)
_EDG = re.compile(
    r"(?P<file>\S.*?)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning|remark|note)"
    r"(?: #[\w-]+)?: (?P<text>.*)"
)
_GNU_CONTEXT = re.compile(r".+?: In (?P<how>instantiation|substitution) of '(?P<what>.*)':")
_GNU_REQUIRED = re.compile(
    r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?:\s+(?:recursively )?required (?:from|by substitution of) "
    r"(?:(?P<here>here)|'(?P<what>.*)')"
)
_CLANG_REQUIRED = re.compile(r"in instantiation of .*?'(?P<what>.*)' requested here")
_EDG_REQUIRED = re.compile(
    r"\s+(?:\[\s*\d+\]\s*)?(?:implicit generation|instantiation) of (?:class |variable )?"
    r'"(?P<what>.*)" at line (?P<line>\d+)(?: of (?P<file>.+))?'
)
_GNU_SOURCE = re.compile(r"\s*\d+ \|(?P<code>.*)")
_GNU_MARKER = re.compile(r"\s*\|(?P<marker>[ ~^]*\^[ ~^]*)")
_PTXAS = re.compile(r"ptxas (?:(?P<file>.+), line (?P<line>\d+); )?(?P<severity>error|fatal|warning)\s*: (?P<text>.*)")
_LINKER = re.compile(r"(?:\S*/)?(?:ld(?:\.\w+)?|mold): (?P<text>.*)")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`']?(?P<name>[^']+)")
_IN_FUNCTION = re.compile(r"in function [`'](?P<name>.*)':$")
_DRIVER = re.compile(
    r"(?:\S*/)?(?:\S*[gc]\+\+\S*|gcc\S*|clang\S*|cc1plus|collect2|nvcc)"
    r"(?:: (?:fatal )?error: | (?:fatal|error)\s*: )(?P<text>.*)"
)
_KILLED = re.compile(
    r"Killed signal terminated|signal 9 \(Kill|unable to execute command: Killed|: Killed$", re.MULTILINE
)
_SHELL = re.compile(r"(?:/bin/)?sh: (?:\d+: )?(?P<text>.*)")


@dataclass(frozen=True)
class KernelResources:
    """What one CUDA kernel needs, by ptxas.

    Attributes:
        kernel: its C++ name. arch: `sm_90a`.
        registers: for one thread. shared: static shared memory of a block, in bytes.
        spill_stores, spill_loads: bytes a thread moves to and from local memory for want of registers.
        stack: the stack frame of a thread, in bytes.
    """

    kernel: str
    arch: str
    registers: int
    shared: int
    spill_stores: int
    spill_loads: int
    stack: int


@dataclass(frozen=True)
class Report:
    """An explanation of a failed build: what to show, and what to do about it where that is known."""

    text: str
    hint: str | None


@dataclass
class _Frame:
    """A step of a template instantiation: what is instantiated, and the place that asked for it."""

    what: str
    file: str
    line: int


@dataclass
class _Message:
    """An error with all that belongs to it."""

    text: str
    file: str = ""
    line: int = 0
    column: int | None = None
    code: str | None = None
    marker: str | None = None
    frames: list[_Frame] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def explain(
    log: str, sources: Sequence[str], generated: Iterable[str], folder: Path, libraries: Sequence[Path]
) -> Report:
    """The errors of a failed build.

    Args:
        log: what the tools printed.
        sources: the op's files. generated: the names of kjit's own units in `folder`, where the tools ran.
        libraries: folders that hold headers which are not the op's.
    """
    log = _ANSI.sub("", log).translate(_PLAIN_QUOTES)
    if _KILLED.search(log):
        return Report(
            "The compiler was killed by the system (signal 9); this happens when memory runs out.",
            _FEWER_AT_ONCE,
        )
    messages = _parse(log)
    if not messages:
        words = log.strip().splitlines()
        if not words:
            return Report("The compiler stopped without a word, as it does when the system kills it.", _FEWER_AT_ONCE)
        return Report("\n".join(words[-5:]), None)
    view = _View(tuple(sources), frozenset(generated), folder, tuple(libraries))
    messages.sort(key=view.rank)
    shown = messages[:_SHOWN]
    parts = [view.render(message) for message in shown]
    left = len(messages) - len(shown)
    if left:
        parts.append(f"{left} more error{'s' if left > 1 else ''}")
    return Report("\n\n".join(parts), _hint(messages))


def is_disk_full(log: str) -> bool:
    """Whether a tool failed because no space is left on a disk.

    nvcc does not say so: a temporary file of its own that came out empty is then one that it cannot open.
    """
    return re.search(r"No space left on device|Could not open input file \S*tmpxft_", log) is not None


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
    """`log` without what `ptxas -v` adds to it, and without what nvcc says when an op's flag replaces one of kjit's."""
    noise = r"ptxas info .*|    \d+ bytes stack frame, .*|nvcc warning : incompatible redefinition for option .*"
    return re.sub(rf"^(?:{noise})\n?", "", log, flags=re.MULTILINE)


def parse_depfile(text: str) -> list[str]:
    """The files on which the target of a Make rule depends, as a compiler's `-MD` writes it."""
    text = text.replace("\\\n", " ")
    _, _, text = text.partition(":")
    # A space or # that is part of a name has a backslash before it, and a dollar sign is doubled.
    names = re.findall(r"(?:\\[ \t#:]|[^\s])+", text)
    return [re.sub(r"\\([ \t#:])", r"\1", name).replace("$$", "$") for name in names]


def demangle(name: str) -> str:
    """The C++ name behind a mangled one, or the name itself; function parameters are left out."""
    demangler = _demangler()
    if demangler is None:
        return name
    status = ctypes.c_int()
    pointer = demangler(name.encode(), None, None, ctypes.byref(status))
    if not pointer:
        return name
    text = (ctypes.cast(pointer, ctypes.c_char_p).value or b"").decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(pointer))
    return _function_name(text)


@lru_cache(maxsize=1)
def _demangler() -> Callable[..., int | None] | None:
    """The C++ runtime's own demangler: no process to start, and present wherever a compiler is."""
    for library in ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib"):
        try:
            function = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        return function
    return None


def _parse(log: str) -> list[_Message]:
    """The distinct errors in `log`, in order."""
    messages: list[_Message] = []
    lines = log.splitlines()
    index = 0
    function: str | None = None
    while index < len(lines):
        line = lines[index]
        if (place := _IN_FUNCTION.search(line)) is not None:
            function = place["name"]
        if (match := _EDG.fullmatch(line)) is not None:
            end = index + 1
            while end < len(lines) and lines[end].strip() and _EDG.fullmatch(lines[end]) is None:
                end += 1
            if match["severity"].endswith("error"):
                messages.append(_edg_message(match, lines[index + 1 : end]))
            index = end
        elif _GNU.fullmatch(line) or _GNU_CONTEXT.fullmatch(line) or _GNU_REQUIRED.fullmatch(line):
            index = _gnu_message(lines, index, messages)
        else:
            if (message := _tool_message(line)) is not None:
                if function is not None and message.text.startswith("undefined symbol"):
                    message.notes.append(f"used in {function}")
                messages.append(message)
            index += 1
    distinct = {(message.file, message.line, message.text): message for message in reversed(messages)}
    kept = [message for message in messages if distinct.get((message.file, message.line, message.text)) is message]
    # What a driver adds about a tool that failed under it says nothing where the tool has spoken.
    located = [message for message in kept if message.file or not _is_consequence(message.text)]
    return located or kept


def _edg_message(match: re.Match[str], body: list[str]) -> _Message:
    """An error of nvcc's front end: continuation lines, the excerpt with a caret under it, the instantiations."""
    message = _Message(match["text"], match["file"], int(match["line"]))
    for position, line in enumerate(body):
        if line.strip() == "^" and position > 0:
            message.code, message.marker = body[position - 1], line
        elif (frame := _EDG_REQUIRED.fullmatch(line)) is not None:
            message.frames.append(_Frame(frame["what"], frame["file"] or message.file, int(frame["line"])))
        elif re.match(r"\s{12}\S", line) and not message.frames and message.code is None:
            message.notes.append(line.strip())
    return message


def _gnu_message(lines: list[str], index: int, messages: list[_Message]) -> int:
    """Read one message of GCC or clang and the context before it; append it if it is an error.

    Returns:
        The index of the line after it.
    """
    whats: list[str] = []
    places: list[tuple[str, int]] = []
    is_part_of_note = False
    while index < len(lines) and _GNU.fullmatch(lines[index]) is None:
        if (context := _GNU_CONTEXT.fullmatch(lines[index])) is not None:
            whats = [context["what"]]
            is_part_of_note = context["how"] == "substitution"
        elif (required := _GNU_REQUIRED.fullmatch(lines[index])) is not None:
            places.append((required["file"], int(required["line"])))
            whats.append(required["what"] or "")
        elif _EDG.fullmatch(lines[index]) is not None:
            return index
        index += 1
    if index == len(lines):
        return index
    match = _GNU.fullmatch(lines[index])
    assert match is not None  # the loop above ended on it
    column = int(match["column"]) if match["column"] else None
    message = _Message(match["text"], match["file"], int(match["line"]), column)
    message.frames = [_Frame(what, file, line) for what, (file, line) in zip(whats, places, strict=False)]
    index += 1
    while index < len(lines):
        line = lines[index]
        if message.code is None and (source := _GNU_SOURCE.fullmatch(line)) is not None:
            message.code = source["code"]
        elif (
            message.code is not None and message.marker is None and (marker := _GNU_MARKER.fullmatch(line)) is not None
        ):
            message.marker = marker["marker"]
        elif message.code is None and index + 1 < len(lines) and re.fullmatch(r"[ ~]*\^[ ~^]*", lines[index + 1]):
            # clang before 17 prints the excerpt without line numbers.
            message.code, message.marker = f" {line}", f" {lines[index + 1]}"
            index += 1
        elif not re.match(r"\s*(?:\d+ )?\||\s*\+\+\+ \|", line):
            break
        index += 1
    if match["severity"].lower() in ("error", "fatal error") and not is_part_of_note:
        messages.append(message)
    elif match["severity"] == "note" and messages:
        if (asked := _CLANG_REQUIRED.fullmatch(match["text"])) is not None:
            messages[-1].frames.append(_Frame(asked["what"], match["file"], int(match["line"])))
        elif not match["text"].lstrip().startswith(("candidate", "template argument", "no known conversion")):
            messages[-1].notes.append(f"note: {match['text']}")
    return index


def _tool_message(line: str) -> _Message | None:
    """An error of ptxas, the linker, a compiler's driver or the shell."""
    if (match := _PTXAS.fullmatch(line)) is not None:
        if match["severity"] == "warning":
            return None
        text = re.sub(r"_Z\w+", lambda name: demangle(name[0]), match["text"])
        place = f" (line {match['line']} of the PTX that the compiler made)" if match["line"] else ""
        return _Message(f"ptxas: {text}{place}")
    if (match := _UNDEFINED.search(line)) is not None:
        return _Message(f"undefined symbol: {match['name'].strip()}")
    if (match := _LINKER.fullmatch(line)) is not None:
        text = match["text"]
        # `x.o: in function ...:` opens a list; the errors are the lines after it.
        if _IN_FUNCTION.search(text) or "warning:" in text:
            return None
        return _Message(f"linker: {text.removeprefix('error: ')}")
    if "multiple definition of" in line:
        return _Message(f"linker: {line.strip()}")
    if (match := _DRIVER.fullmatch(line)) is not None:
        return _Message(match["text"])
    if (match := _SHELL.fullmatch(line)) is not None:
        return _Message(match["text"])
    return None


def _is_consequence(text: str) -> bool:
    return text.startswith(
        ("ld returned", "linker command failed", "ptxas: Ptx assembly aborted", "Failed to preprocess")
    )


def _hint(messages: Sequence[_Message]) -> str | None:
    """What to do about the first error that is a known one."""
    for message in messages:
        text = message.text
        if "unsupported GNU version" in text or "unsupported clang version" in text:
            return "set CXX to an older compiler, which this CUDA takes"
        if text.startswith("the simulator cannot run"):
            return "write what it does in C++ for the simulator, under `#if KJIT_SIM`; the GPU keeps what is there"
        if "No such file or directory" in text and message.file:
            return "check the name, or add the folder of the header to extra_include_paths"
        if text.startswith("undefined symbol") or "cannot find -l" in text:
            return "define it in one of the op's sources, or name its library (and its folder, -L) in extra_ldflags"
        if "too much shared data" in text:
            return "a block has no more shared memory than that: use a smaller tile"
        if "complete object type" in text or "incomplete type" in text:
            return (
                "kjit/device.cuh only declares half and 8-bit types: include <kjit/utils.cuh> for CUDA's, or define "
                "KJIT_LIGHT_TYPES ahead of the first include for kjit's own, which compile faster"
            )
        if "is not allowed" in text and "calling a __host__ function" in text:
            return "mark the function __device__ (KJIT_DEVICE), or do it before the launch"
    return None


@dataclass(frozen=True)
class _View:
    """How a message is shown: which files are the op's, which are generated, and what excerpts look like."""

    sources: tuple[str, ...]
    generated: frozenset[str]
    folder: Path
    libraries: tuple[Path, ...]

    def rank(self, message: _Message) -> int:
        """Errors in the op's files first, then those in generated code, in headers of others, and of other tools."""
        if not message.file:
            return 3
        if message.file in self.generated:
            return 1
        return 0 if self._is_own(message.file) else 2

    def render(self, message: _Message) -> str:
        """A message as it is shown: place, text, excerpt with a caret, where the instantiation came from."""
        lines = []
        if message.file:
            lines.append(f"{self._place(message.file, message.line, message.column)}: error: {message.text}")
            lines += self._excerpt(message)
        else:
            lines.append(f"error: {message.text}")
        lines += [f"  {_shorten(note)}" for note in message.notes[:_NOTES_SHOWN]]
        if message.frames:
            lines.append(_shorten(f"  in {self._chain(message.frames)}", 2 * _LONGEST_LINE))
        return "\n".join(lines)

    def _chain(self, frames: Sequence[_Frame]) -> str:
        """Who instantiated what, from the inside out, without the steps inside other people's headers."""
        first, *rest = frames
        parts = [_instance(first.what)]
        for inner, outer in zip(frames, [*rest, None], strict=True):
            if self._is_own(inner.file) or inner.file in self.generated or outer is None:
                asked_in = f" in {_instance(outer.what)}" if outer is not None and outer.what else ""
                parts.append(f"from {self._place(inner.file, inner.line)}{asked_in}")
        return ", ".join(parts)

    def _place(self, file: str, line: int, column: int | None = None) -> str:
        if file in self.generated:
            text = self._source_line(file, line) or ""
            export = re.match(r"KJIT_EXPORT\((\w+)", text)
            return f"the wrapper of export '{export[1]}'" if export else f"{file}:{line} (generated)"
        path = self._absolute(file)
        relative = os.path.relpath(path)
        shown = path if relative.startswith("..") else relative
        return f"{shown}:{line}" if column is None else f"{shown}:{line}:{column}"

    def _excerpt(self, message: _Message) -> list[str]:
        code, marker = message.code, message.marker
        if message.column is None and (source := self._source_line(message.file, message.line)) is not None:
            # nvcc shows the line after its macros were expanded; what the person wrote is in the file.
            code, marker = f" {source}", _move_marker(source, code, marker)
        if code is None:
            return []
        number = str(message.line)
        lines = [f"  {number} |{code.rstrip()}"]
        if marker is not None:
            lines.append(f"  {' ' * len(number)} |{marker.rstrip()}")
        return lines

    def _source_line(self, file: str, line: int) -> str | None:
        try:
            with open(self._absolute(file), encoding="utf-8", errors="replace") as opened:
                for number, text in enumerate(opened, 1):
                    if number == line:
                        return text.rstrip("\n")
        except OSError:
            pass
        return None

    def _is_own(self, file: str) -> bool:
        path = self._absolute(file)
        if path in self.sources:
            return True
        return file not in self.generated and not any(
            path.startswith(f"{os.path.normpath(library)}{os.sep}") for library in self.libraries
        )

    def _absolute(self, file: str) -> str:
        return os.path.normpath(os.path.join(self.folder, file))


def _move_marker(source: str, expanded: str | None, marker: str | None) -> str | None:
    """The caret under the same word of `source` as `marker` has it under in `expanded`; None if that is not clear."""
    if expanded is None or marker is None:
        return None
    position = marker.index("^")
    word = re.match(r"\w+|.", expanded[position:])
    end = position + (word.end() if word else 1)
    # The word together with as much as it takes of what is before it to be found once; macros changed the rest.
    for start in range(position + 1):
        if source.count(expanded[start:end]) == 1:
            column = source.index(expanded[start:end]) + position - start
            # Tabs stay tabs, so that the caret stands right whatever a terminal makes of them.
            return " " + re.sub(r"[^\t]", " ", source[:column]) + "^"
    return None


def _instance(what: str) -> str:
    """`Scale<float, 4>::run` for `static void Scale<T, N>::run(View) [with T = float; int N = 4]`."""
    values: dict[str, str] = {}
    signature, separator, bindings = what.partition(" [with ")
    if separator:
        for binding in _split(bindings.rstrip("]")):
            name, equals, value = binding.partition("=")
            if equals:
                values[name.split()[-1]] = value.strip()
    name = _function_name(signature)
    replaced = re.sub(r"\b\w+\b", lambda word: values.get(word[0], word[0]), name)
    if replaced == name and values and "<" not in name:
        return f"{name}<{', '.join(values.values())}>"
    return replaced


def _split(text: str) -> list[str]:
    """The parts between the `,` or `;` of `text` that lie outside of brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif character in ",;" and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _function_name(signature: str) -> str:
    """`Scale<float, 4>::run` for `static void Scale<float, 4>::run(kjit::host::TensorView)`."""
    signature = signature.replace("(anonymous namespace)", "{anonymous}")
    depth, start = 0, 0
    for index, character in enumerate(signature):
        if character == "(" and depth == 0 and not signature[start:index].endswith("operator"):
            return signature[start:index].lstrip("*&")
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif character == " " and depth == 0 and not signature[start:index].endswith("operator"):
            start = index + 1
    return signature[start:].lstrip("*&")


def _shorten(text: str, longest: int = _LONGEST_LINE) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
