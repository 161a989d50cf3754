"""The files that compilers name in their messages: their owners, their lines, and their names for display."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kjit.engine.diagnostics.printed import shown_path


@dataclass(frozen=True)
class Files:
    """The files of a build.

    Each is read at most once.

    Attributes:
        sources: the op's sources. generated: the names of kjit's units in `folder`, the working directory of the tools.
        libraries: folders with headers that are not the op's.
    """

    sources: Sequence[str]
    generated: frozenset[str]
    folder: Path
    libraries: Sequence[Path]
    _read: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def absolute(self, file: str) -> str:
        """The path of a file that a tool has named."""
        return os.path.normpath(os.path.join(self.folder, file))

    def is_own(self, file: str) -> bool:
        """Whether a file belongs to the op, rather than to a library or to kjit's generated code."""
        path = self.absolute(file)
        if path in self.sources:
            return True
        return file not in self.generated and not any(
            path.startswith(f"{os.path.normpath(library)}{os.sep}") for library in self.libraries
        )

    def is_own_or_generated(self, file: str) -> bool:
        """Whether a file belongs to the op, or is generated from the op's declaration."""
        return file in self.generated or self.is_own(file)

    def lines(self, file: str) -> list[str]:
        """The lines of a file; none if it cannot be read."""
        found = self._read.get(file)
        if found is None:
            try:
                text = Path(self.absolute(file)).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = None
            found = self._read[file] = [] if text is None else text.split("\n")
        return found

    def line(self, file: str, number: int) -> str | None:
        """One line of a file, counted from 1; None if there is no such line."""
        lines = self.lines(file)
        return lines[number - 1] if 0 < number <= len(lines) else None

    def words(self, file: str) -> set[str]:
        """The identifiers in a file."""
        return set(re.findall(r"[A-Za-z_]\w+", "\n".join(self.lines(file))))

    def export(self, file: str, number: int) -> tuple[str, str] | None:
        """Name and symbol of the export in this line of a generated unit."""
        if file not in self.generated:
            return None
        match = re.match(r"KJIT_EXPORT\((\w+), \((.*)\)\)", self.line(file, number) or "")
        return (match[1], match[2]) if match else None

    def place(self, file: str, number: int, column: int | None = None) -> str:
        """A position for display: `scale.cuh:3:58`, or the export of that line in a generated unit."""
        if file in self.generated:
            export = self.export(file, number)
            return f"the wrapper of export '{export[0]}'" if export else f"{file}:{number} (generated)"
        shown = shown_path(self.absolute(file))
        return f"{shown}:{number}" if column is None else f"{shown}:{number}:{column}"

    def include(self, file: str) -> str:
        """A header of a library in the form of an `#include`."""
        path = self.absolute(file)
        folders = [f"{os.path.normpath(folder)}{os.sep}" for folder in self.libraries]
        longest = max((folder for folder in folders if path.startswith(folder)), key=len, default="")
        return f"<{path[len(longest) :]}>" if longest else path
