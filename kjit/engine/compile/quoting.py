"""Quoting of words for compilers, shells and ninja.

g++ and clang take every word literally, except a quote or a line break in the name of an include. nvcc does not: it
splits values at commas, removes backslashes, and passes the rest to a shell, mostly in double quotes, where `$` and
backticks are expanded. So it gets only plain names: of files in the build's folder, and of symbolic links to folders
whose names it would misread. Output shows the real names again. Macros are escaped. Other flags with characters that
the shell would expand are rejected (refusals.py), because nvcc quotes flags differently for each of its parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kjit.engine.toolchain.options import PLAIN_FOR_CXX as PLAIN_FOR_CXX
from kjit.engine.toolchain.options import PLAIN_FOR_NVCC as PLAIN_FOR_NVCC
from kjit.engine.toolchain.options import Dialect, parse
from kjit.errors import UsageError

_INCLUDABLE = re.compile(r'[^"\\$\n]+')

_TO_ESCAPE = re.compile(r'[\\$`",]')
# For nvcc, which removes one backslash, and for the shell after it. nvcc itself escapes quotes for the shell.
_ESCAPED = {"\\": r"\\\\", "$": r"\\$", "`": r"\\`", '"': r"\"", ",": r"\,"}


@dataclass
class Links:
    """Links to folders whose names a compiler would misread: `kjit_link0` for `/home/me/it's mine`."""

    names: dict[str, str] = field(default_factory=dict)

    def folder(self, path: str, plain: re.Pattern[str]) -> str:
        """The folder `path`, or a link to it if a compiler would misread its name."""
        return path if plain.fullmatch(path) else self.names.setdefault(path, f"kjit_link{len(self.names)}")

    def source(self, path: str, plain: re.Pattern[str]) -> str:
        """The file `path`, as written in an #include."""
        folder, name = os.path.split(path)
        if _INCLUDABLE.fullmatch(name) is None:
            raise UsageError(f"C++ cannot include '{path}' because of characters in its name.", hint="rename it")
        return os.path.join(self.folder(folder, plain), name)

    def program(self, path: str) -> str:
        """The program `path`, as written in a flag of nvcc."""
        folder, name = os.path.split(path)
        return os.path.join(self.folder(folder, PLAIN_FOR_NVCC), name)

    def flags(self, flags: Iterable[str], plain: re.Pattern[str], dialect: Dialect = "c++") -> list[str]:
        """`flags` with absolute paths, and for nvcc macros, rewritten so that the compiler reads them correctly."""
        changed: list[str] = []
        for flag in parse(flags, dialect):
            if flag.meaning == "host compiler" and os.path.isabs(flag.value):
                value = self.program(flag.value)
            elif dialect == "nvcc" and flag.meaning == "macro":
                value = for_nvcc(flag.value)
            else:
                # A comma may also be part of a name.
                paths = [flag.value] if os.path.exists(flag.value) else flag.values(dialect)
                value = ",".join(self._path(path, plain) if os.path.isabs(path) else path for path in paths)
            changed += flag._replace(value=value).words()
        return changed

    def _path(self, path: str, plain: re.Pattern[str]) -> str:
        return self.folder(path, plain) if os.path.isdir(path) else self.source(path, plain)

    def restore(self, text: str) -> str:
        """`text` with real names instead of links."""
        for folder, link in self.names.items():
            text = re.sub(rf"(?<![\w./]){link}(?!\w)", lambda _: folder, text)  # noqa: B023 (used at once)
        return text


def for_nvcc(macro: str) -> str:
    """A macro and its value, escaped so that nvcc's parts get them unchanged."""
    return _TO_ESCAPE.sub(lambda match: _ESCAPED[match[0]], macro)
