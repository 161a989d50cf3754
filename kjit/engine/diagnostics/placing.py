"""The positions where messages are shown: lines that the user can change.

An error inside another header that was caused by an own line is shown at that line. Messages of the linker and of ptxas
name no file. They name a function or an instruction, which is searched for in the op's sources; the line is shown as
one that mentions the name, because this is a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kjit.cpp_text import blanked
from kjit.engine.diagnostics.files import Files
from kjit.engine.diagnostics.messages import Message, Note
from kjit.engine.diagnostics.symbols import base_name, instance

_BRACE_MISSING = re.compile(
    r"expected (?:an? )?['\"]}['\"]|expected unqualified-id before 'namespace'|namespace definition is not allowed"
    r"|closing brace of .* not found"
)


def order(messages: Iterable[Message], files: Files) -> list[Message]:
    """The messages at the positions where they are shown, the first of each line: in the op's files, then in
    generated code, in other headers, and of other tools."""
    placed = []
    for message in messages:
        # Libraries have many candidates for a call, and usually none was intended.
        notes = [note for note in message.notes if not note.file or files.is_own_or_generated(note.file)
                 or (note.file, note.line) == (message.file, message.line)]  # fmt: skip
        placed.append(_placed(replace(message, notes=notes), files))
    braces = [at for at in placed if _BRACE_MISSING.search(at.text)]
    if any(at.file in files.generated or at.text.startswith("closing") for at in braces):
        # Errors after the brace only follow from it.
        unclosed = _unclosed_braces(files)
        placed = [*unclosed, *(at for at in placed if not unclosed or at.file not in files.generated)]
    placed.sort(key=lambda at: (not at.file, not files.is_own_or_generated(at.file), not files.is_own(at.file)))
    first: dict[tuple[str, object], Message] = {}
    for message in placed:
        first.setdefault((message.file, message.line if message.file else message.text), message)
    return list(first.values())


def declaration(message: Message, files: Files) -> str | None:
    """The line of Python that causes a message about an export."""
    export = files.export(message.file, message.line)
    if export is None or (message.notes[:1] and message.notes[0].text.startswith("at <")):
        return None
    side = "cpp" if message.file.endswith(".cpp") else "cuda"
    return f'{side}_wrappers=[("{export[0]}", "{export[1]}")]'


def _placed(message: Message, files: Files) -> Message:
    """`message` at the position that the user can change."""
    if not message.file:
        return _mentioned(message, files)
    if files.is_own_or_generated(message.file):
        return message
    for index, frame in enumerate(message.frames):
        if files.is_own_or_generated(frame.file):
            inner = instance(message.frames[0].what)
            note = Note(f"at {files.include(message.file)}:{message.line}" + (f" in {inner}" if inner else ""))
            return replace(
                message,
                file=frame.file,
                line=frame.line,
                column=frame.column if files.is_own(frame.file) else None,
                code=None,
                marker=None,
                frames=message.frames[index + 1 :],
                notes=[note, *message.notes],
            )
    return message


def _at(message: Message, files: Files, file: str, line: int, column: int) -> Message:
    """`message` at a line of a source and a column, from 0."""
    code = files.line(file, line) or ""
    return replace(message, file=file, line=line, column=column + 1, code=f" {code}", marker=caret(code, column))


def _mentioned(message: Message, files: Files) -> Message:
    """A message of ptxas or the linker, at the line of a source that mentions its symbol or instruction."""
    name = base_name(message.symbol)
    patterns = [rf"\b(?P<word>{re.escape(name)})\b"] if name else []
    if "ptxas" in message.text and not name:
        # An instruction is in a string of an asm statement.
        quoted = re.findall(r"'\.?(\w[\w.]*)'", message.text)
        patterns = [rf'"[^"]*?\b(?P<word>{re.escape(word)})\b' for word in quoted]
    for places in filter(None, map(files.search, patterns)):
        # A kernel is defined before its launch; an undefined function is declared before its use; an export comes last.
        is_first = not message.text.startswith(("undefined", "export"))
        return _at(message, files, *places[0 if is_first else -1])
    return message


def _unclosed_braces(files: Files) -> list[Message]:
    places = [(path, unclosed_brace(files.lines(path))) for path in files.sources]
    return [_at(Message("this '{' has no '}'"), files, path, *place) for path, place in places if place is not None]


def unclosed_brace(lines: Sequence[str]) -> tuple[int, int] | None:
    """Line (from 1) and column (from 0) of the `{` that lacks its `}`; None if all have one.

    It is found by indentation: the first whose `}` is in a line with another indentation, else the outermost one that
    stays open.
    """
    # Braces in comments and literals do not count.
    text = blanked("\n".join(lines), directives=False)
    opened: list[tuple[int, int, int]] = []
    misfits: list[tuple[int, int]] = []
    for number, line in enumerate(text.split("\n"), 1):
        indent = len(line) - len(line.lstrip())
        for column, character in enumerate(line):
            if character == "{":
                opened.append((number, column, indent))
            elif character == "}" and opened:
                begin, place, depth = opened.pop()
                if begin != number and column == indent and depth != indent:
                    misfits.append((begin, place))
    return [*misfits, opened[0][:2]][0] if opened else None


def caret(line: str, column: int) -> str:
    """A caret under the given column; tabs are kept, so that it is aligned with any tab width."""
    return " " + re.sub(r"[^\t]", " ", line[:column]) + "^"
