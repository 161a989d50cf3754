"""Compiler messages: one value for each error and each warning.

GCC, clang, the assembler, nvcc's own front end and NVRTC begin a message with file and line; ptxas, the linker and the
compilers' drivers begin it with their name. Messages that follow from another tool's error are left out.

An export that is defined twice gives one message, whichever tool reports it: the compiler for the same C++ function,
the assembler for different ones, or the linker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from kjit.engine.diagnostics.symbols import demangle, function_name

Severity = Literal["error", "warning"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What the simulator's rewriter puts in place of code that it cannot run (rewrite/unsupported.py).
_REFUSED = re.compile(r"call to '?kjit_refused_\d+'? declared with (?:attribute error|'error' attribute): ")
_PLAIN_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'"})

# file:line[:column]: severity: text (GCC, clang, the assembler), file(line): severity [#number]: text (nvcc, NVRTC)
_HEAD = re.compile(
    r"(?P<file>[^\s|][^|]*?)(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<nvcc>\d+)\)): "
    r"(?P<severity>(?:fatal |catastrophic )?error|Error|[Ww]arning|remark|note)(?: #[\w-]+)?: (?P<text>.*)"
)
# The excerpt after it. nvcc and clang before 17 print the line without a number, and only the caret is recognised.
_EXCERPT = re.compile(
    r"\s*\d+ \|(?P<code>.*)|\s*\|(?P<marker>[ ~^]*\^[ ~^]*)|(?P<caret>[ ~]*\^[ ~^]*)|\s*(?:\d+ )?(?:\+\+\+ )?\|.*"
)
# GCC prints an instantiation before its message, clang in notes, nvcc after the message.
_GNU_CONTEXT = re.compile(r".+?: In (?P<how>instantiation|substitution) of '(?P<what>.*)':")
_GNU_STEP = re.compile(
    r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?:\s+"
    r"(?:recursively )?required (?:from|by substitution of) "
    r"(?:here|'(?P<what>.*)')"
)
_CLANG_STEP = re.compile(r"in instantiation of .*?'(?P<what>.*)' requested here")
_NVCC_STEP = re.compile(
    r"\s+(?:detected during:?\s+)?(?:\[\s*\d+\]\s*)?(?:implicit generation|instantiation) of (?:class |variable )?"
    r'"(?P<what>.*)" at line (?P<line>\d+)(?: of (?P<file>.+))?'
)
# tool[ file, line N;] severity : text (NVIDIA's tools, often without a name), tool: [severity:] text (others)
_TOOL = re.compile(
    r"(?:(?P<nvidia>[\w+-]+) )?(?:\S.*, line (?P<line>\d+); )?(?P<nvidia_severity>error|fatal|warning)\s*: (?P<said>.*)"
    r"|(?:\S*/)?(?P<tool>[^\s:/]+): (?:\d+: )?(?:(?P<severity>(?:fatal )?error|fatal|warning): )?(?P<text>.*)"
)
# Programs whose messages need no name.
_DRIVER = re.compile(r"\S*(?:gcc|[gc]\+\+|clang)\S*|cc|cc1plus|collect2|nvcc|cudafe\+\+|<command-line>|Command-line|sh")
_LINKER = re.compile(r"(?:[\w-]+-)?(?:ld(?:\.\w+)?|mold)")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`']?(?P<name>[^']+)")
_NOT_FOR_DEVICE = re.compile(r"Unresolved extern function '(?P<name>[^']+)'")
_DEFINED_TWICE = re.compile(r"multiple definition of [`'](?P<name>[^']+)'|redefinition of|already (?:been )?defined")
_IN_FUNCTION = re.compile(r"in function [`'].*':$")
_CONSEQUENCE = re.compile(
    r"ld returned|linker command failed|linker: (?:final link failed|.*hidden symbol .* isn't defined$)"
    r"|ptxas: Ptx assembly aborted|Failed to preprocess host compiler properties|Could not open input file"
)


@dataclass
class Frame:
    """A step of a template instantiation: the template, and the position that requires it."""

    what: str
    file: str
    line: int
    column: int | None = None


@dataclass
class Note:
    """A note of a message."""

    text: str
    file: str = ""
    line: int = 0


@dataclass
class Message:
    """An error or a warning with its notes.

    Attributes:
        file, line, column: as printed by the tool; no file if it names none.
        code, marker: the excerpt and the line with the caret, each after one character for the margin.
        symbol: for a message without a file, the undefined symbol or the kernel.
    """

    text: str
    file: str = ""
    line: int = 0
    column: int | None = None
    severity: Severity = "error"
    code: str | None = None
    marker: str | None = None
    symbol: str = ""
    frames: list[Frame] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def plain(log: str) -> str:
    """`log` without colours and typographic quotes."""
    return _REFUSED.sub("", _ANSI.sub("", log).translate(_PLAIN_QUOTES))


def parse(log: str, severity: Severity = "error") -> list[Message]:
    """The distinct errors (or warnings) in a `plain` log, in order."""
    reader = _Reader()
    for line in log.splitlines():
        reader.read(line)
    distinct: dict[tuple[str, int, str], Message] = {}
    for message in reader.messages:
        _read_definitions(message)
        if message.severity == severity:
            distinct.setdefault((message.file, message.line, message.text), message)
    # A driver's message about a failed tool is redundant if the tool has reported an error.
    causes = list(filter(is_cause, distinct.values()))
    return causes or list(distinct.values())


def is_cause(message: Message) -> bool:
    """Whether a message is more than that a tool failed."""
    return bool(message.file) or _CONSEQUENCE.match(message.text) is None


class _Reader:
    """The messages of the lines that were read so far."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        # The message or note that the next lines may continue, and the message that it belongs to.
        self._current: Message | None = None
        self._owner: Message | None = None
        self._is_of_nvcc = False
        self._previous = ""
        # What GCC prints before a message.
        self._whats: list[str] = []
        self._places: list[tuple[str, int, int | None]] = []
        self._is_part_of_note = False

    def read(self, line: str) -> None:
        if (head := _HEAD.fullmatch(line)) is not None:
            self._begin(head)
        elif (context := _GNU_CONTEXT.fullmatch(line)) is not None:
            self._whats = [context["what"]]
            self._is_part_of_note = context["how"] == "substitution"
        elif (step := _GNU_STEP.fullmatch(line)) is not None:
            self._places.append(_place(step))
            self._whats.append(step["what"] or "")
        elif not self._continues(line) and (message := _tool_message(line)) is not None:
            self.messages.append(message)
        self._previous = line

    def _begin(self, head: re.Match[str]) -> None:
        """Read the first line of a message or a note."""
        text, severity = head["text"].removesuffix(" [-fpermissive]").strip(), head["severity"].lower()
        file, line, column = _place(head)
        message = Message(text, file, line, column, severity="warning" if severity == "warning" else "error")
        message.frames = [Frame(what, *place) for what, place in zip(self._whats, self._places, strict=False)]
        owner = self.messages[-1] if severity == "note" and self.messages else message
        if severity == "note":
            if (step := _CLANG_STEP.fullmatch(text)) is not None:
                owner.frames.append(Frame(step["what"], file, line, column))
            elif text != "constraints not satisfied":
                owner.notes.append(Note(text, file, line))
        elif severity != "remark" and not self._is_part_of_note:
            self.messages.append(message)
        self._current, self._owner, self._is_of_nvcc = message, owner, head["nvcc"] is not None
        self._whats, self._places, self._is_part_of_note = [], [], False

    def _continues(self, line: str) -> bool:
        """Read a line of the excerpt or of nvcc's explanation; whether it is one."""
        message, owner = self._current, self._owner
        if message is None or owner is None:
            return False
        if not line.strip():
            self._current = None
        elif (excerpt := _EXCERPT.fullmatch(line)) is not None:
            if message.code is None and excerpt["caret"] is not None:
                message.code, message.marker = f" {self._previous}", f" {line}"
            elif message.code is None:
                message.code = excerpt["code"]
            elif message.marker is None:
                message.marker = excerpt["marker"]
        elif not self._is_of_nvcc:
            return False
        elif (step := _NVCC_STEP.fullmatch(line)) is not None:
            # The instantiations of a whole message may follow its last note.
            owner.frames.append(Frame(step["what"], step["file"] or message.file, int(step["line"])))
        elif message.code is None and not owner.frames and re.match(r"\s{12}\S", line):
            message.notes.append(Note(line.strip()))
        return True


def _place(match: re.Match[str]) -> tuple[str, int, int | None]:
    line = match["line"] or match["nvcc"]
    return match["file"], int(line), int(match["column"]) if match["column"] else None


def _tool_message(line: str) -> Message | None:
    """A message of ptxas, the linker, a compiler's driver or the shell."""
    if "multiple definition of" in line:
        return Message(line)
    if (match := _UNDEFINED.search(line)) is not None:
        name = match["name"].strip()
        return Message(f"undefined symbol: {name}", symbol=function_name(name))
    match = _TOOL.fullmatch(line)
    if match is None:
        return None
    tool, text = match["nvidia"] or match["tool"] or "", match["said"] or match["text"] or ""
    said = match["nvidia_severity"] or match["severity"]
    severity: Severity = "warning" if said == "warning" else "error"
    if tool == "ptxas":
        return _ptxas_message(text, match["line"], severity)
    if _LINKER.fullmatch(tool) is not None:
        # `x.o: in function ...:` begins a list; the errors are the lines after it.
        if _IN_FUNCTION.search(text) is not None:
            return None
        return Message(f"linker: {text}", severity="warning" if "warning: " in text else severity)
    if said is None and tool != "sh":
        return None
    return Message(text if not tool or _DRIVER.fullmatch(tool) else f"{tool}: {text}", severity=severity)


def _ptxas_message(text: str, line: str | None, severity: Severity) -> Message:
    text = re.sub(r"_Z\w+", lambda name: demangle(name[0]), text)
    text = re.sub(r"\b0x[0-9a-f]+(?= (?:bytes|max))", lambda number: str(int(number[0], 16)), text)
    if (missing := _NOT_FOR_DEVICE.match(text)) is not None:
        function = function_name(missing["name"])
        return Message(f"code for the device calls '{function}', which is not defined for the device", symbol=function)
    named = re.search(r"(?:Entry function '|[Ff]unction )([\w:<>{}, ]+)", text)
    place = f" (line {line} of the PTX that the compiler made)" if line else ""
    return Message(f"ptxas: {text}{place}", severity=severity, symbol=named[1] if named else "")


def _read_definitions(message: Message) -> None:
    """Turn a message about two definitions of what KJIT_EXPORT defines, or the linker's, into one about the name.

    The file that it names may be a temporary one.
    """
    match = _DEFINED_TWICE.search(message.text)
    if match is None:
        return
    if (export := re.search(r"__tvm_ffi_(\w+)", message.text)) is not None:
        message.text, message.symbol = f"export '{export[1]}' is defined twice", export[1]
        message.file, message.line, message.column, message.notes = "", 0, None, []
    elif match["name"]:
        message.text, message.symbol = f"'{match['name']}' is defined twice", function_name(match["name"])
