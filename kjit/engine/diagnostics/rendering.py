"""The text of a message: position, excerpt with a caret, notes, and in one line the template instantiations."""

from __future__ import annotations

from dataclasses import replace

from kjit.engine.diagnostics import hints
from kjit.engine.diagnostics.files import Files
from kjit.engine.diagnostics.messages import Message
from kjit.engine.diagnostics.placing import caret
from kjit.engine.diagnostics.symbols import instance

_LONGEST_LINE = 160
_OF_KJIT = ("kjit::details::", "kjit::kernels::")
_NOTES_SHOWN = 4


def render(message: Message, files: Files) -> str:
    """A formatted message: position, text, excerpt with a caret, notes, instantiations."""
    lines = []
    suggested = hints.suggestion(message, files.words, files.libraries)
    text = message.text + (f"; did you mean '{suggested}'?" if suggested else "")
    if message.file:
        source = files.line(message.file, message.line)
        if message.column is not None and source is not None and message.column > len(source) + 1:
            message = replace(message, column=None)  # counted after macros were expanded, for the simulator
        lines.append(f"{files.place(message.file, message.line, message.column)}: {message.severity}: {text}")
        lines += _excerpt(message, files)
    else:
        lines.append(f"{message.severity}: {text}")
    lines += [f"  {_shorten(note)}" for note in _notes(message, files)]
    if chain := _chain(message, files):
        lines.append(_shorten(f"  in {chain}", 2 * _LONGEST_LINE))
    return "\n".join(lines)


def _notes(message: Message, files: Files) -> list[str]:
    lines = []
    for note in message.notes[:_NOTES_SHOWN]:
        is_elsewhere = note.file and (note.file, note.line) != (message.file, message.line)
        shows_place = is_elsewhere and files.is_own_or_generated(note.file)
        place = f" ({files.place(note.file, note.line)})" if shows_place else ""
        lines.append((f"note: {note.text}" if note.file else note.text) + place)
    return lines


def _chain(message: Message, files: Files) -> str:
    """The chain of instantiations, innermost first, without steps inside other headers.

    It is empty if it begins inside kjit's own code, as NVRTC's does for a mistake that nvcc finds before instantiation.
    """
    frames = message.frames
    what = instance(frames[0].what) if frames else ""
    if what.startswith(_OF_KJIT):
        return ""
    parts = [what] if what else []
    for inner, outer in zip(frames, [*frames[1:], None], strict=False):
        if files.is_own_or_generated(inner.file) or outer is None:
            template = f" in {instance(outer.what)}" if outer is not None and outer.what else ""
            parts.append(f"from {files.place(inner.file, inner.line)}{template}")
    return ", ".join(parts)


def _excerpt(message: Message, files: Files) -> list[str]:
    code, marker = message.code, message.marker
    source = files.line(message.file, message.line)
    if source is not None and (code is None or message.column is None):
        column = _column(source, code, marker) if message.column is None else message.column - 1
        code, marker = f" {source}", None if column is None else caret(source, column)
    if code is None:
        return []
    number = str(message.line)
    # For the simulator, macros are expanded before the compiler counts columns.
    markers = [f"  {' ' * len(number)} |{marker.rstrip()}"] if marker and message.file not in files.generated else []
    return [f"  {number} |{code.rstrip()}", *markers]


def _column(source: str, code: str | None, marker: str | None) -> int | None:
    """The column in `source` of the caret under nvcc's excerpt of that line; None if macros were expanded there."""
    if code is None or marker is None or code.strip() != source.strip():
        return None
    return marker.index("^") - (len(code) - len(code.lstrip())) + len(source) - len(source.lstrip())


def _shorten(text: str, longest: int = _LONGEST_LINE) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
