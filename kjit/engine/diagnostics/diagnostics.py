"""Compiler output as readable errors, warnings and resource usage.

Errors in the op's own files come first. An error inside another header that was caused by an own line is shown at that
line. Each has its position, its text, the line with a caret, and in one line the template instantiations. Of several
errors on one line only the first is shown, as the others usually follow from it; the rest is counted. The whole log is
in the exception.

Messages of the linker and of ptxas name no file. They name a function or an instruction, which is searched for in the
op's sources; the line is shown as one that mentions the name, because this is a guess.

Messages are parsed in messages.py, other output of compilers here (the resources from `ptxas -v`, the list of headers),
so that no other part of kjit depends on the formats of compilers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from kjit import env
from kjit.engine.cache.folders import is_noexec
from kjit.engine.diagnostics import advice, messages
from kjit.engine.diagnostics.advice import Given
from kjit.engine.diagnostics.messages import Message, Note, parse, plain
from kjit.engine.diagnostics.symbols import base_name, instance
from kjit.engine.diagnostics.symbols import demangle as demangle

_NEEDS_CPP20 = re.compile("kjit's (?:headers need|simulator needs) C[+][+]20")  # by kjit/language.h

_SHOWN = 3
_LONGEST_LINE = 160
_NOTES_SHOWN = 3
_CANDIDATES_SHOWN = 3
_WARNINGS_SHOWN = 10

FEWER_AT_ONCE = "build fewer at once (`kjit build -j 1`), or give this machine more memory"

_KILLED = re.compile(
    r"Killed signal terminated|signal 9 \(Kill|unable to execute command: Killed|: Killed$", re.MULTILINE
)
_SEMICOLON_MISSING = re.compile(r"expected (?:an? )?(?:',' or )?['\"];['\"]")
_BRACE_MISSING = re.compile(
    r"expected (?:an? )?['\"]}['\"]|expected unqualified-id before 'namespace'|namespace definition is not allowed"
    r"|closing brace of .* not found"
)


@dataclass(frozen=True)
class KernelResources:
    """The resources of one CUDA kernel, from ptxas.

    Attributes:
        kernel: its C++ name. arch: `sm_90a`.
        registers: per thread. shared: static shared memory per block, in bytes.
        spill_stores, spill_loads: bytes per thread that are spilled to and reloaded from local memory.
        stack: the stack frame per thread, in bytes.
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
    """An explanation of a failed build, with a hint if there is one."""

    text: str
    hint: str | None


@dataclass(frozen=True)
class Files:
    """The owners of files.

    Attributes:
        sources: the op's sources. generated: the names of kjit's units in `folder`, the working directory of the tools.
        libraries: folders with headers that are not the op's.
    """

    sources: Sequence[str]
    generated: frozenset[str]
    folder: Path
    libraries: Sequence[Path]


def explain(log: str, files: Files, target: str, given: Given = MappingProxyType({})) -> Report:
    """The errors of a failed build.

    Args:
        log: the output of the tools.
        target: the target of the build, as `str(Target)`.
        given: the flags that are not kjit's, by source.
    """
    log = plain(log)
    if _KILLED.search(log):
        return Report(
            "The compiler was killed by the system (signal 9); this happens when memory runs out.",
            FEWER_AT_ONCE,
        )
    found = parse(log)
    if not found:
        words = log.strip().splitlines()
        if not words:
            return Report("The compiler ended without a message, as it does when the system kills it.", FEWER_AT_ONCE)
        return Report("\n".join(words[-5:]), None)
    needed = next(filter(None, (_NEEDS_CPP20.search(message.text) for message in found)), None)
    if needed is not None:
        # All other errors follow from it.
        return Report(*advice.older_language(needed[0], given))
    view = _View(files)
    warnings = parse(log, "warning")
    ordered = view.order([_with_cause(message, warnings) for message in found])
    shown = ordered[:_SHOWN]
    parts = [view.render(message) for message in shown]
    left = len(found) - len(shown)
    if left > 0:
        parts.append(f"{left} more error{'s' if left > 1 else ''}")
    return Report("\n\n".join(parts), advice.hint(shown, view.declaration, target, given))


def _with_cause(message: Message, warnings: Sequence[Message]) -> Message:
    """A message about an undefined symbol, at the position of a compiler's warning about that symbol."""
    if not message.text.startswith("undefined symbol"):
        return message
    for warning in warnings:
        if message.symbol and warning.file and re.search(rf"['\"]{re.escape(message.symbol)}\W", warning.text):
            # nvcc's text begins with the options for which it holds.
            reason = re.sub(r'^when "-[^"]*" in .*? mode \([^)]*\), ', "", warning.text)
            said = Note(f"the compiler warned: {reason}")
            return replace(warning, text=message.text, severity="error", symbol="", notes=[said, *message.notes])
    return message


def explain_warnings(log: str, files: Files) -> str:
    """The warnings of a successful build, each once; empty if there are none.

    Output that is not in the form of a warning is included unchanged.
    """
    log = without_resources(plain(log))
    warnings = parse(log, "warning")
    if not warnings:
        return log.strip()
    view = _View(files)
    parts = [view.render(replace(warning, frames=[])) for warning in view.order(warnings)]
    if len(parts) > _WARNINGS_SHOWN:
        parts[_WARNINGS_SHOWN:] = [f"{len(parts) - _WARNINGS_SHOWN} more warnings"]
    return "\n\n".join(parts)


def explain_load(log: str, library: str) -> Report:
    """Why the loader rejects a library: one sentence, without a full stop.

    Args:
        library: its path, which must exist.
    """
    lines = log.strip().splitlines() or ["the loader does not say why"]
    last = lines[-1].strip()
    if (missing := re.search(r"([^\s:]+): cannot open shared object file", last)) is not None:
        return Report(
            f"it needs {missing[1]}, which the loader does not find",
            "install it, or say where it is: `-Wl,-rpath,/its/folder` in extra_ldflags",
        )
    if (undefined := re.search(r"undefined symbol: (\w+)", last)) is not None:
        return Report(
            f"undefined symbol: {demangle(undefined[1])}",
            "name the library that has it in extra_ldflags; one that was replaced since the build may have lost it",
        )
    if "failed to map segment" in last and is_noexec(os.path.dirname(library)):
        return Report(
            f"'{os.path.dirname(library)}' is on a disk that is mounted noexec",
            f"set {env.CACHE_DIR} to a folder on another disk, or mount this one without noexec",
        )
    return Report(last, "`kjit doctor` checks the machine")


def is_disk_full(log: str) -> bool:
    """Whether a tool reported a full disk. Not every tool can: see `says_why`."""
    return re.search(r"No space left on device|Disk quota exceeded", log) is not None


def says_why(log: str) -> bool:
    """Whether a tool reported a cause, and not only a failure.

    A tool without space for its output often does not, as its messages may not have space either.
    """
    log = without_resources(plain(log))
    if parse(log):
        return messages.says_why(log)
    return bool(log.strip()) and not parse(log, "warning")


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
    """`log` without the output of `ptxas -v`, and without nvcc's warnings about flags of kjit replaced by an op's."""
    noise = r"ptxas info .*|    \d+ bytes stack frame, .*|nvcc warning : incompatible redefinition for option .*"
    return re.sub(rf"^(?:{noise})\n?", "", log, flags=re.MULTILINE)


def parse_depfile(text: str) -> list[str]:
    """The dependencies of the first Make rule, as compilers (`-MD`) and linkers write it."""
    text = text.replace("\\\n", " ")
    _, _, text = text.partition(":")
    text = text.partition("\n")[0]
    # In a name, a space or # follows a backslash, and a dollar sign is doubled. Backslashes are doubled only before a
    # space.
    names = re.findall(r"(?:[^\s\\]+|\\+[ \t#:]|\\)+", text)
    return [_ESCAPED.sub(_unescaped, name).replace("$$", "$") if "\\" in name or "$" in name else name
            for name in names]  # fmt: skip


_ESCAPED = re.compile(r"(\\+)([ \t#:])")


def _unescaped(match: re.Match[str]) -> str:
    kept = len(match[1]) // 2 if match[2] in " \t" else len(match[1]) - 1
    return "\\" * kept + match[2]


class _View:
    """Formats messages: their positions, their order, their excerpts."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lines = lru_cache(maxsize=64)(self._read)

    def order(self, messages: Iterable[Message]) -> list[Message]:
        """The messages at the positions where they are shown, the first of each line: in the op's files, then in
        generated code, in other headers, and of other tools."""
        led_to: dict[str, Message] = {}
        placed = []
        for message in messages:
            at = self._placed(message)
            if at.file != message.file:
                led_to.setdefault(message.file, at)
            elif not at.frames and not self._is_ours(at.file) and at.file in led_to:
                # GCC reports an instantiation only once.
                at = replace(at, file=led_to[at.file].file, line=led_to[at.file].line)
            placed.append(at)
        if any(self._is_at_end(message) and _BRACE_MISSING.search(message.text) for message in placed):
            unclosed = self._unclosed_braces()
            if unclosed:
                # Errors after the brace only follow from it.
                placed = [*unclosed, *(message for message in placed if message.file not in self._files.generated)]
        placed.sort(key=self._rank)
        first: dict[tuple[str, object], Message] = {}
        for message in placed:
            first.setdefault((message.file, message.line if message.file else message.text), message)
        return list(first.values())

    def _is_at_end(self, message: Message) -> bool:
        """Whether a message is about what follows the op's sources, or about what one of them does not end."""
        return message.file in self._files.generated or message.text.startswith("closing brace of ")

    def declaration(self, message: Message) -> str | None:
        """The line of Python that causes a message about an export."""
        export = self._export(message.file, message.line)
        if export is None or (message.notes[:1] and message.notes[0].text.startswith("at <")):
            return None
        side = "cpp" if message.file.endswith(".cpp") else "cuda"
        return f'{side}_wrappers=[("{export[0]}", "{export[1]}")]'

    def render(self, message: Message) -> str:
        """A formatted message: position, text, excerpt with a caret, notes, instantiations."""
        lines = []
        suggested = advice.suggestion(message, self._words, self._files.libraries)
        text = message.text + (f"; did you mean '{suggested}'?" if suggested else "")
        if message.file:
            message = self._before_gap(message)
            source = self._source_line(message.file, message.line)
            if message.column is not None and source is not None and message.column > len(source) + 1:
                message = replace(message, column=None)  # counted after macros were expanded, for the simulator
            lines.append(f"{self._place(message.file, message.line, message.column)}: {message.severity}: {text}")
            lines += self._excerpt(message)
        else:
            lines.append(f"{message.severity}: {text}")
        lines += [f"  {_shorten(note)}" for note in self._notes(message)]
        if message.frames:
            lines.append(_shorten(f"  in {self._chain(message)}", 2 * _LONGEST_LINE))
        return "\n".join(lines)

    def _rank(self, message: Message) -> int:
        if not message.file:
            return 3
        if message.file in self._files.generated:
            return 1
        return 0 if self._is_own(message.file) else 2

    def _placed(self, message: Message) -> Message:
        """`message` at the position that the user can change."""
        if message.symbol and message.text.startswith(f"export '{message.symbol}' is defined twice"):
            return self._exported_twice(message)
        if not message.file:
            found = self._mentioned(message)
            return message if found is None else found
        if self._is_ours(message.file):
            return message
        for index, frame in enumerate(message.frames):
            if self._is_ours(frame.file):
                inner = instance(message.frames[0].what)
                note = Note(f"at {self._include(message.file)}:{message.line}" + (f" in {inner}" if inner else ""))
                return replace(
                    message,
                    file=frame.file,
                    line=frame.line,
                    column=frame.column if self._is_own(frame.file) else None,
                    code=None,
                    marker=None,
                    frames=message.frames[index + 1 :],
                    notes=[note, *message.notes],
                )
        return message

    def _exported_twice(self, message: Message) -> Message:
        """A message about an export, with its definitions in the op's sources and in Python."""
        pattern = re.compile(rf"\bKJIT_EXPORT\s*\(\s*{message.symbol}\s*,")
        places = [
            (path, number, match.start())
            for path in self._files.sources
            for number, line in enumerate(self._lines(path), 1)
            if (match := pattern.search(line)) is not None
        ]
        wrappers = [
            f"by {'cpp' if name.endswith('.cpp') else 'cuda'}_wrappers in Python"
            for name in sorted(self._files.generated)
            if any(line.startswith(f"KJIT_EXPORT({message.symbol},") for line in self._lines(name))
        ]
        twice = f"export '{message.symbol}' is defined twice"
        if not places:
            return replace(message, text=f"{twice}, {' and '.join(wrappers)}") if len(wrappers) > 1 else message
        (path, number, column), *more = places
        line = self._lines(path)[number - 1]
        others = [*wrappers, *(f"in {self._place(path, number)}" for path, number, _ in more)]
        text = f"{twice}: here, and {' and '.join(others)}" if others else message.text
        return replace(
            message, text=text, file=path, line=number, column=column + 1, code=f" {line}", marker=_caret(line, column)
        )

    def _mentioned(self, message: Message) -> Message | None:
        """A message of ptxas or the linker, with the line of a source that mentions its symbol or instruction."""
        name = base_name(message.symbol)
        quoted = re.findall(r"'\.?(\w[\w.]*)'", message.text) if "ptxas" in message.text and not name else []
        patterns = [re.compile(rf"\b{re.escape(name)}\b")] if name else []
        # An instruction is in a string of an asm statement.
        patterns += [re.compile(rf'"[^"]*?\b(?P<word>{re.escape(word)})\b') for word in quoted]
        for pattern in patterns:
            places = [
                (path, number, line, match)
                for path in self._files.sources
                for number, line in enumerate(self._lines(path), 1)
                if (match := pattern.search(line)) is not None and not line.lstrip().startswith(("//", "*", "#include"))
            ]
            if places:
                # A kernel is defined before its launch; an undefined function is declared before its use.
                path, number, line, match = places[-1 if message.text.startswith("undefined") else 0]
                column = match.start("word" if "word" in pattern.groupindex else 0)
                return replace(
                    message, file=path, line=number, column=column + 1, code=f" {line}", marker=_caret(line, column)
                )
        return None

    def _unclosed_braces(self) -> list[Message]:
        found = []
        for path in self._files.sources:
            place = unclosed_brace(self._lines(path))
            if place is not None:
                line, column = place
                code = self._lines(path)[line - 1]
                marker = _caret(code, column)
                found.append(Message("this '{' has no '}'", path, line, column + 1, code=f" {code}", marker=marker))
        return found

    def _before_gap(self, message: Message) -> Message:
        """Compilers report a missing semicolon at the next line; this moves it to the end of the line that lacks it."""
        if _SEMICOLON_MISSING.match(message.text) is None:
            return message
        lines = self._lines(message.file)
        source = lines[message.line - 1] if message.line <= len(lines) else ""
        marker = message.marker if message.column is not None else _move_marker(source, message.code, message.marker)
        if marker is None or source[: marker.index("^") - 1].strip():
            return message
        for number in range(message.line - 1, 0, -1):
            line = re.sub(r"\s*(?://.*)?$", "", lines[number - 1])
            if line.strip():
                column = len(line)
                marker = f"{_caret(line, column)} missing here"
                return replace(message, line=number, column=column + 1, code=f" {line}", marker=marker)
        return message

    def _notes(self, message: Message) -> list[str]:
        lines = []
        explained = [note for note in message.notes if not note.is_candidate]
        # Libraries have many candidates, and usually none was intended.
        candidates = [note for note in message.notes if note.is_candidate and self._is_own(note.file)]
        for note in (*explained[:_NOTES_SHOWN], *candidates[:_CANDIDATES_SHOWN]):
            is_elsewhere = note.file and (note.file, note.line) != (message.file, message.line)
            place = f" ({self._place(note.file, note.line)})" if is_elsewhere and self._is_ours(note.file) else ""
            lines.append((f"note: {note.text}" if note.file and not note.is_candidate else note.text) + place)
        return lines

    def _chain(self, message: Message) -> str:
        """The chain of instantiations, innermost first, without steps inside other headers."""
        frames = message.frames
        first, *rest = frames
        parts = [instance(first.what)] if first.what else []
        for inner, outer in zip(frames, [*rest, None], strict=True):
            if self._is_ours(inner.file) or outer is None:
                asked_in = f" in {instance(outer.what)}" if outer is not None and outer.what else ""
                parts.append(f"from {self._place(inner.file, inner.line)}{asked_in}")
        return ", ".join(parts)

    def _place(self, file: str, line: int, column: int | None = None) -> str:
        if file in self._files.generated:
            export = self._export(file, line)
            return f"the wrapper of export '{export[0]}'" if export else f"{file}:{line} (generated)"
        shown = shown_path(self._absolute(file))
        return f"{shown}:{line}" if column is None else f"{shown}:{line}:{column}"

    def _include(self, file: str) -> str:
        """A header of a library in the form of an `#include`."""
        path = self._absolute(file)
        folders = [f"{os.path.normpath(folder)}{os.sep}" for folder in self._files.libraries]
        longest = max((folder for folder in folders if path.startswith(folder)), key=len, default="")
        return f"<{path[len(longest) :]}>" if longest else path

    def _export(self, file: str, line: int) -> tuple[str, str] | None:
        """Name and symbol of the export in this line of a generated unit."""
        if file not in self._files.generated:
            return None
        match = re.match(r"KJIT_EXPORT\((\w+), \((.*)\)\)", self._source_line(file, line) or "")
        return (match[1], match[2]) if match else None

    def _excerpt(self, message: Message) -> list[str]:
        code, marker = message.code, message.marker
        source = self._source_line(message.file, message.line)
        if source is not None and (code is None or message.column is None):
            # nvcc shows the line after macro expansion; the original is in the file.
            if marker is not None:
                marker = _move_marker(source, code, marker)
            elif message.column is not None:
                marker = _caret(source, message.column - 1)
            code, marker = f" {source}", marker or _marker_of_name(source, message.text)
        elif source is not None and marker is not None and message.file in self._files.generated:
            # For the simulator, macros are expanded before the compiler counts columns.
            named = _marker_of_name(source, message.text)
            marker = named if named is not None and named.index("^") != marker.index("^") else marker
        if code is None:
            return []
        number = str(message.line)
        lines = [f"  {number} |{code.rstrip()}"]
        if marker is not None:
            lines.append(f"  {' ' * len(number)} |{marker.rstrip()}")
        return lines

    def _source_line(self, file: str, line: int) -> str | None:
        lines = self._lines(file)
        return lines[line - 1] if 0 < line <= len(lines) else None

    def _words(self, file: str) -> set[str]:
        return set(re.findall(r"[A-Za-z_]\w+", "\n".join(self._lines(file))))

    def _read(self, file: str) -> list[str]:
        try:
            return Path(self._absolute(file)).read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return []

    def _is_ours(self, file: str) -> bool:
        """Whether it is a file of the op or generated from its declaration."""
        return file in self._files.generated or self._is_own(file)

    def _is_own(self, file: str) -> bool:
        path = self._absolute(file)
        if path in self._files.sources:
            return True
        return file not in self._files.generated and not any(
            path.startswith(f"{os.path.normpath(library)}{os.sep}") for library in self._files.libraries
        )

    def _absolute(self, file: str) -> str:
        return os.path.normpath(os.path.join(self._files.folder, file))


def shown_path(path: str) -> str:
    """An absolute path for display: relative if it is in the current folder."""
    try:
        relative = os.path.relpath(path)
    except FileNotFoundError:  # the current folder is gone
        return path
    return path if relative.startswith("..") else relative


def unclosed_brace(lines: Sequence[str]) -> tuple[int, int] | None:
    """Line (from 1) and column (from 0) of the `{` that lacks its `}`; None if all have one.

    It is found by indentation: the first whose `}` is in a line with another indentation, else the outermost one that
    stays open.
    """
    text = "\n".join(lines)
    # Braces in comments and literals do not count; spaces preserve the positions of all other characters.
    text = re.sub(
        r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'',
        lambda match: re.sub(r"[^\n]", " ", match[0]),
        text,
        flags=re.DOTALL,
    )
    opened: list[tuple[int, int, int]] = []
    misfit: tuple[int, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        indent = len(line) - len(line.lstrip())
        for column, character in enumerate(line):
            if character == "{":
                opened.append((number, column, indent))
            elif character == "}" and opened:
                begin, place, depth = opened.pop()
                if begin != number and column == indent and depth != indent and misfit is None:
                    misfit = (begin, place)
    if not opened:
        return None
    return misfit or opened[0][:2]


def _caret(line: str, column: int) -> str:
    """A caret under the given column; tabs are kept, so that it is aligned with any tab width."""
    return " " + re.sub(r"[^\t]", " ", line[:column]) + "^"


def _move_marker(source: str, expanded: str | None, marker: str | None) -> str | None:
    """A caret under the word of `source` that `marker` is under in `expanded`; None if that is ambiguous."""
    if expanded is None or marker is None:
        return None
    position = marker.index("^")
    word = re.match(r"\w+|.", expanded[position:])
    end = position + (word.end() if word else 1)
    # The word with enough of the preceding text to be unique; macros changed the rest.
    for start in range(position + 1):
        if source.count(expanded[start:end]) == 1:
            return _caret(source, source.index(expanded[start:end]) + position - start)
    return None


def _marker_of_name(source: str, text: str) -> str | None:
    """A caret under the first name quoted in a message, if the line has it exactly once."""
    quoted = re.search(r"""["'](?:[\w:]*::)?(\w+)""", text)
    places = list(re.finditer(rf"\b{quoted[1]}\b", source)) if quoted else []
    return _caret(source, places[0].start()) if len(places) == 1 else None


def _shorten(text: str, longest: int = _LONGEST_LINE) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
