"""Compiler messages: one value for each error and each warning.

The formats are those of GCC and clang (`file:line:column: error:`), nvcc's own front end (`file(line): error:`, with
the excerpt after macro expansion), ptxas, the assembler and the linker. Only messages that follow from another tool's
error are left out.

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
    r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?:\s+(?:recursively )?required (?:from|by substitution of) "
    r"(?:(?P<here>here)|'(?P<what>.*)')"
)
_GNU_EVALUATED = re.compile(
    r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?:\s+in 'constexpr' expansion of '(?P<what>.*)'"
)
_CLANG_REQUIRED = re.compile(r"in instantiation of .*?'(?P<what>.*)' requested here")
_EDG_REQUIRED = re.compile(
    r"\s+(?:detected during:?\s+)?(?:\[\s*\d+\]\s*)?(?:implicit generation|instantiation) of (?:class |variable )?"
    r'"(?P<what>.*)" at line (?P<line>\d+)(?: of (?P<file>.+))?'
)
_GNU_SOURCE = re.compile(r"\s*\d+ \|(?P<code>.*)")
_GNU_MARKER = re.compile(r"\s*\|(?P<marker>[ ~^]*\^[ ~^]*)")
_PTXAS = re.compile(r"ptxas (?:(?P<file>.+), line (?P<line>\d+); )?(?P<severity>error|fatal|warning)\s*: (?P<text>.*)")
_LINKER = re.compile(r"(?:\S*/)?(?:[\w-]+-)?(?:ld(?:\.\w+)?|mold): (?P<text>.*)")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`']?(?P<name>[^']+)")
_DEFINED_TWICE = re.compile(
    r"(?P<second>\S+?):.*multiple definition of [`'](?P<name>[^']+)'; (?P<first>.+?): first defined"
)
_IN_FUNCTION = re.compile(r"in function [`'](?P<name>.*)':$")
_DRIVER = re.compile(
    r"(?:\S*/)?(?P<tool>\S*[gc]\+\+\S*|gcc\S*|clang\S*|cc1plus|collect2|nvcc|cudafe\+\+|cicc|fatbinary|nvlink|<command-line>)"
    r"(?:: (?:(?:fatal )?error|(?P<gnu>warning)): | (?:fatal|error|(?P<nvcc>warning))\s*: )(?P<text>.*)"
)
_NOT_FOR_DEVICE = re.compile(r"Unresolved extern function '(?P<name>[^']+)'")
# Messages of nvcc's parts without a name of the program.
_NAMELESS = re.compile(r"(?:fatal|error|(?P<warning>warning))\s*: (?P<text>.*)|Command-line error: (?P<edg>.*)")
# nvcc runs its host compiler first, to identify it.
_NO_HOST_COMPILER = re.compile(r"(?P<path>\S.*): No such file or directory|sh: (?:\d+: )?(?P<name>.*): not found")
_HOST_COMPILER_FAILED = "Failed to preprocess host compiler properties"
_EXPORTED_TWICE = re.compile(
    r"redefinition of '.*?__tvm_ffi_(?P<gnu>\w+)|function \"(?:\w+::)*__tvm_ffi_(?P<edg>\w+)\" has already been defined"
    r"|symbol [`']__tvm_ffi_(?P<assembler>\w+)(?:\.cold)?' is already defined"
)
_SHELL = re.compile(r"(?:/bin/)?sh: (?:\d+: )?(?P<text>.*)")
_CANDIDATE = re.compile(r"candidate:? (?:(?:is:|function|constructor|template)\s*)*(?P<text>.*)")
_SAYS_NOTHING = re.compile(
    r"template argument|no known conversion|constraints not satisfied|the required expression|expanded from macro"
    r"|'\w+' declared here"
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
    """A note of a message. A `candidate` is a function that was not viable."""

    text: str
    file: str = ""
    line: int = 0
    is_candidate: bool = False


@dataclass
class Message:
    """An error or a warning with its notes.

    Attributes:
        file, line, column: as printed by the tool; no file if it names none.
        code, marker: the excerpt and the line with the caret, as printed.
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
    return _ANSI.sub("", log).translate(_PLAIN_QUOTES)


def parse(log: str, severity: Severity = "error") -> list[Message]:
    """The distinct errors (or warnings) in a `plain` log, in order."""
    messages: list[Message] = []
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
            _edg_message(match, lines[index + 1 : end], messages)
            index = end
        elif any(form.fullmatch(line) for form in (_GNU, _GNU_CONTEXT, _GNU_REQUIRED, _GNU_EVALUATED)):
            index = _gnu_message(lines, index, messages)
        elif (following := lines[index + 1 : index + 2]) and _HOST_COMPILER_FAILED in following[0]:
            match = _NO_HOST_COMPILER.fullmatch(line)
            path = (match["path"] or match["name"]) if match else ""
            messages.append(Message(f"nvcc's host compiler '{path}' does not exist" if path else line))
            index += 1
        else:
            if (message := _tool_message(line)) is not None:
                if function is not None and message.text.startswith("undefined symbol"):
                    message.notes.append(Note(f"used in {_user(function)}"))
                messages.append(message)
            index += 1
    for message in messages:
        _read_export(message)
    wanted = [message for message in messages if message.severity == severity]
    distinct = {(message.file, message.line, message.text): message for message in reversed(wanted)}
    kept = [message for message in wanted if distinct[message.file, message.line, message.text] is message]
    # A driver's message about a failed tool is redundant if the tool has reported an error.
    causes = [message for message in kept if message.file or not _is_consequence(message.text)]
    return causes or kept


def says_why(log: str) -> bool:
    """Whether a tool reported a cause in a `plain` log, and not only a failure."""
    return any(message.file or not _is_consequence(message.text) for message in parse(log))


def _read_export(message: Message) -> None:
    """Turn a message about a function that KJIT_EXPORT defines into one about the export."""
    match = _EXPORTED_TWICE.search(message.text)
    if match is None:
        return
    name = match["gnu"] or match["edg"] or match["assembler"]
    message.text, message.symbol = f"export '{name}' is defined twice", name
    message.notes.clear()
    if match["assembler"]:
        # It names a temporary file, which is gone.
        message.file, message.line, message.column = "", 0, None


def _edg_message(match: re.Match[str], body: list[str], messages: list[Message]) -> None:
    """A message of nvcc's front end: continuation lines, the excerpt with a caret, the instantiations."""
    severity = match["severity"]
    if severity == "note" and messages:
        last = messages[-1]
        last.notes.append(Note(match["text"], match["file"], int(match["line"])))
        # The instantiations of the whole message follow its last note.
        last.frames += _edg_frames(body, match["file"])
    if severity in ("note", "remark"):
        return
    # In the wording of other compilers, and without a space before a quotation mark.
    text = re.sub(r'^static assertion failed with "(.*)"$', r"static assertion failed: \1", match["text"])
    text = text.replace('> ")', '>")')
    is_warning = severity == "warning"
    message = Message(text, match["file"], int(match["line"]), severity="warning" if is_warning else "error")
    for position, line in enumerate(body):
        if line.strip() == "^" and position > 0:
            message.code, message.marker = body[position - 1], line
        elif _EDG_REQUIRED.fullmatch(line) is not None:
            break
        elif re.match(r"\s{12}\S", line) and message.code is None:
            message.notes.append(Note(line.strip()))
    message.frames = _edg_frames(body, message.file)
    messages.append(message)


def _edg_frames(body: list[str], file: str) -> list[Frame]:
    """The instantiations in the lines after a message or a note of nvcc's front end in `file`."""
    frames = filter(None, map(_EDG_REQUIRED.fullmatch, body))
    return [Frame(frame["what"], frame["file"] or file, int(frame["line"])) for frame in frames]


def _gnu_message(lines: list[str], index: int, messages: list[Message]) -> int:
    """Read one message of GCC or clang with its context, and append it, or add it to the last one as a note.

    Returns:
        The index of the line after it.
    """
    whats: list[str] = []
    places: list[tuple[str, int, int | None]] = []
    is_part_of_note = False
    while index < len(lines) and _GNU.fullmatch(lines[index]) is None:
        line = lines[index]
        if (context := _GNU_CONTEXT.fullmatch(line)) is not None:
            whats = [context["what"]]
            is_part_of_note = context["how"] == "substitution"
        elif (required := _GNU_REQUIRED.fullmatch(line)) is not None:
            places.append(_place(required))
            whats.append(required["what"] or "")
        elif (evaluated := _GNU_EVALUATED.fullmatch(line)) is not None:
            # These follow the instantiations, and go inwards while those go outwards.
            places.insert(0, _place(evaluated))
            whats.insert(0, evaluated["what"])
        elif _EDG.fullmatch(line) is not None:
            return index
        index += 1
    if index == len(lines):
        return index
    match = _GNU.fullmatch(lines[index])
    assert match is not None  # the loop above ended on it
    severity, text = match["severity"].lower(), match["text"]
    message = Message(re.sub(r" \[-fpermissive\]$", "", text), *_place(match))
    message.severity = "warning" if severity == "warning" else "error"
    message.frames = [Frame(what, *place) for what, place in zip(whats, places, strict=False)]
    index = _excerpt(lines, index + 1, message)
    if severity != "note":
        if not is_part_of_note:
            messages.append(message)
    elif messages:
        if (asked := _CLANG_REQUIRED.fullmatch(text)) is not None:
            messages[-1].frames.append(Frame(asked["what"], *_place(match)))
        elif (candidate := _CANDIDATE.match(text.strip())) is not None:
            note = f"candidate: {candidate['text']}".removesuffix(": ")
            messages[-1].notes.append(Note(note, message.file, message.line, is_candidate=True))
        elif _SAYS_NOTHING.match(text.strip()) is None:
            messages[-1].notes.append(Note(text.strip(), message.file, message.line))
    return index


def _place(match: re.Match[str]) -> tuple[str, int, int | None]:
    return match["file"], int(match["line"]), int(match["column"]) if match["column"] else None


def _excerpt(lines: list[str], index: int, message: Message) -> int:
    """Read the excerpt after a message of GCC or clang; the index of the line after it."""
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
    return index


def _tool_message(line: str) -> Message | None:
    """A message of ptxas, the linker, a compiler's driver or the shell."""
    if (match := _PTXAS.fullmatch(line)) is not None:
        return _ptxas_message(match)
    if (match := _DEFINED_TWICE.search(line)) is not None:
        return _defined_twice(match)
    if (match := _UNDEFINED.search(line)) is not None:
        name = match["name"].strip()
        return Message(f"undefined symbol: {name}", symbol=function_name(name))
    if (match := _LINKER.fullmatch(line)) is not None:
        text = match["text"]
        # `x.o: in function ...:` begins a list; the errors are the lines after it.
        if _IN_FUNCTION.search(text):
            return None
        severity: Severity = "warning" if "warning: " in text else "error"
        return Message(f"linker: {text.removeprefix('error: ').removeprefix('warning: ')}", severity=severity)
    if (match := _DRIVER.fullmatch(line)) is not None:
        said_by = f"{match['tool']}: " if match["tool"] in ("fatbinary", "nvlink", "cicc") else ""
        return Message(f"{said_by}{match['text']}", severity="warning" if match["gnu"] or match["nvcc"] else "error")
    if (match := _NAMELESS.fullmatch(line)) is not None:
        return Message(match["text"] or match["edg"], severity="warning" if match["warning"] else "error")
    if (match := _SHELL.fullmatch(line)) is not None:
        return Message(match["text"])
    return None


def _user(function: str) -> str:
    name = function_name(function)
    export = name.removeprefix("__tvm_ffi_")
    return name if export == name else f"export '{export}'"


def _ptxas_message(match: re.Match[str]) -> Message:
    text = re.sub(r"_Z\w+", lambda name: demangle(name[0]), match["text"])
    text = re.sub(r"\b0x[0-9a-f]+(?= (?:bytes|max))", lambda number: str(int(number[0], 16)), text)
    if (missing := _NOT_FOR_DEVICE.match(text)) is not None:
        if missing["name"].startswith("__cudaCDP"):
            return Message("kernel launch from __device__ or __global__ functions requires separate compilation mode")
        function = function_name(missing["name"])
        return Message(f"code for the device calls '{function}', which is not defined for the device", symbol=function)
    named = re.search(r"(?:Entry function '|[Ff]unction )([\w:<>{}, ]+)", text)
    place = f" (line {match['line']} of the PTX that the compiler made)" if match["line"] else ""
    severity: Severity = "warning" if match["severity"] == "warning" else "error"
    return Message(f"ptxas: {text}{place}", severity=severity, symbol=named[1] if named else "")


def _defined_twice(match: re.Match[str]) -> Message:
    name = match["name"]
    export = name.removeprefix("__tvm_ffi_")
    what = f"export '{export}'" if export != name else f"'{name}'"
    first, second = (_object_source(match[group]) for group in ("first", "second"))
    where = f"in {first} and in {second}" if first != second else f"in {first}"
    return Message(f"{what} is defined twice, {where}", symbol=export if export != name else "")


def _object_source(text: str) -> str:
    """The source in `cpp0.o:scale.cpp:(.text+0x10)` or `tmpxft_1_2-6_scale.cudafe1.cpp`."""
    names = [part for part in text.split(":") if part and not part.startswith("(") and not part.endswith(".o")]
    name = (names or [text])[0]
    nvcc = re.fullmatch(r"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(?P<unit>.+)\.cudafe1\.cpp", name)
    return f"{nvcc['unit']}.cu" if nvcc else name


def _is_consequence(text: str) -> bool:
    return text.startswith(
        (
            "ld returned",
            "linker command failed",
            "linker: final link failed",
            "ptxas: Ptx assembly aborted",
            _HOST_COMPILER_FAILED,
            # The output of a failed host preprocessor.
            "Could not open input file",
        )
    ) or bool(re.match(r"linker: .*hidden symbol .* isn't defined$", text))
