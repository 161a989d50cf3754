"""Headers that GCC has compiled ahead, for the host halves that a builder compiles one after another.

To read headers takes half of the time of a small host half, and from one edit of an op to the next they stay. So
builder.py has them precompiled while it waits: all of the preprocessed half before the first line of the op's own. The
next half with the very same text ahead, and the same flags, is compiled without it. What comes out is the same.

They are files in a folder of the builder's, a few at most, and end with it.

It imports little, because the first build waits for it.
"""

from __future__ import annotations

import os
import re

Ahead = tuple[tuple[str, ...], str]
"""What comes before an op's own code: the compiler with its flags, and the text."""

_MOST = 4
_SHORTEST = 100_000  # characters; what is shorter is read fast enough
_MARKER = re.compile(r'^# \d+ "((?:\\.|[^"\\])*)"(.*)$', re.MULTILINE)
USING = "-fpch-preprocess"
"""The flag of a compile that uses precompiled headers."""


def own_code(unit: str) -> int:
    """Where the op's own code begins in a preprocessed `unit`: the line marker ahead of it; 0 where all is its own."""
    own = None
    for marker in _MARKER.finditer(unit):
        if own is not None and not unit[own.end() : marker.start()].isspace():
            return own.start()
        is_own = not marker[1].startswith("<") and "3" not in marker[2].split()
        own = marker if is_own else None
    return 0 if own is None else own.start()


class Precompiled:
    """The precompiled headers of one process.

    Args:
        folder: an existing one.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._made: dict[Ahead, str | None] = {}  # nothing for what GCC does not take
        self._wanted: Ahead | None = None
        self._making: tuple[int, Ahead, str] | None = None
        self._count = 0

    def shortened(self, compiler: tuple[str, ...], unit: str) -> str | None:
        """A preprocessed `unit` with its precompiled headers in place of their text; None where there are none yet."""
        place = own_code(unit)
        if place < _SHORTEST or not self._folder.isprintable() or set('"\\') & set(self._folder):
            return None
        ahead = (compiler, unit[:place])
        if ahead not in self._made:
            self._wanted = ahead
            return None
        path = self._made.pop(ahead)
        self._made[ahead] = path  # the last that was used
        return None if path is None else f'#pragma GCC pch_preprocess "{path}"\n{unit[place:]}'

    def refuse(self, compiler: tuple[str, ...], unit: str) -> None:
        """Use none for such units any more."""
        self._made[compiler, unit[: own_code(unit)]] = None

    def start(self, signals: tuple[int, ...]) -> None:
        """Start to precompile what the last unit had ahead, where nobody did yet."""
        if self._wanted is None or self._making is not None:
            return
        ahead, self._wanted = self._wanted, None
        self._count += 1
        source, path, log = (os.path.join(self._folder, f"{self._count}.{end}") for end in ("ii", "gch", "log"))
        with open(source, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(ahead[1])
        words = [*ahead[0], "-x", "c++-header", "-fpreprocessed", "-c", source, "-o", path]
        said = [
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=said, setsigdef=signals)
        self._making = pid, ahead, path

    def look(self) -> None:
        """See whether what was started is done."""
        if self._making is not None:
            pid, _, _ = self._making
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._take(status)

    def stop(self) -> None:
        """End what was started, for a build that does not want to share the processors."""
        if self._making is not None:
            pid, ahead, _ = self._making
            os.kill(pid, 9)
            self._take(os.waitpid(pid, 0)[1])
            self._made.pop(ahead, None)

    def _take(self, status: int) -> None:
        assert self._making is not None
        _, ahead, path = self._making
        self._making = None
        base = path.removesuffix(".gch")
        # What it warns of would be said once only.
        is_silent = os.path.exists(f"{base}.log") and os.path.getsize(f"{base}.log") == 0
        for end in ("ii", "log"):
            if os.path.exists(f"{base}.{end}"):
                os.unlink(f"{base}.{end}")
        self._made[ahead] = path if status == 0 and is_silent else None
        while len(self._made) > _MOST:
            oldest = self._made.pop(next(iter(self._made)))
            if oldest is not None:
                os.unlink(oldest)
