"""The files that compilers name in their messages: their owners, their lines, and their names for display."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kjit.engine.diagnostics.printed import shown_path

_OF_CUDA = ("crt/*.h", "*_functions.h", "*_intrinsics.h", "cuda_*runtime_api.h")


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
        return path in self.sources or (file not in self.generated and not self._library(path))

    def is_own_or_generated(self, file: str) -> bool:
        """Whether a file belongs to the op, or is generated from the op's declaration."""
        return file in self.generated or self.is_own(file)

    def lines(self, file: str) -> list[str]:
        """The lines of a file; none if it cannot be read."""
        if file not in self._read:
            try:
                text = Path(self.absolute(file)).read_text(encoding="utf-8", errors="replace")
            except OSError:
                text = None
            self._read[file] = [] if text is None else text.split("\n")
        return self._read[file]

    def line(self, file: str, number: int) -> str | None:
        """One line of a file, counted from 1; None if there is no such line."""
        lines = self.lines(file)
        return lines[number - 1] if 0 < number <= len(lines) else None

    def search(self, pattern: str) -> list[tuple[str, int, int]]:
        """File, line (from 1) and column (from 0) of the group `word` in each line of the sources with the pattern."""
        return [
            (path, number, match.start("word"))
            for path in self.sources
            for number, line in enumerate(self.lines(path), 1)
            if not line.lstrip().startswith(("//", "*", "#include")) and (match := re.search(pattern, line)) is not None
        ]

    def words(self, file: str) -> set[str]:
        """The identifiers in a file."""
        return set(re.findall(r"[A-Za-z_]\w+", "\n".join(self.lines(file))))

    def is_in_cuda(self, name: str) -> bool:
        """Whether CUDA's headers for device code, or its runtime API, have a function of this name."""
        called = re.compile(rf"\b{re.escape(name)}\s*\(")
        return any(
            called.search("\n".join(self.lines(str(path)))) is not None
            for folder in self.libraries
            if (folder / "cuda_runtime_api.h").is_file()
            for pattern in _OF_CUDA
            for path in sorted(folder.glob(pattern))
        )

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
        library = self._library(path)
        return f"<{path[len(library) :]}>" if library else path

    def _library(self, path: str) -> str:
        """The innermost folder of a library with a file, with a slash; empty if there is none."""
        folders = [f"{os.path.normpath(folder)}{os.sep}" for folder in self.libraries]
        return max((folder for folder in folders if path.startswith(folder)), key=len, default="")
