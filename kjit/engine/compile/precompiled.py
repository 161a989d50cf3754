"""Precompiled headers for the halves that a server compiles one after another.

Headers take half of the compile time of a small half, and edits of an op rarely change them. So server.py, while it
waits, has g++ (for the host half) and NVRTC (for the device half) precompile the prefix of the preprocessed text: all
of it before the first line of the op's own. A later half that begins with the same prefix, and has the same flags, is
compiled from the precompiled file, and only the rest is cut. The machine code is the same.

The files, a few at most, are in a folder of the server's, which is removed with the server. NVRTC can only use those
that its own process has made.

Few imports: the first build waits for them.
"""

from __future__ import annotations

import os
import re

from kjit.engine.compile import halves

Ahead = tuple[tuple[str, ...], str]
"""The text before an op's own code: the compiler's command line, and the preprocessed prefix."""

_MOST = 4
_SHORTEST = 100_000  # characters; a shorter prefix compiles fast enough
_MARKER = re.compile(r'^# \d+ "((?:\\.|[^"\\])*)"(.*)$', re.MULTILINE)
USING = "-fpch-preprocess"
"""g++'s flag for the use of precompiled headers."""


def own_code(unit: str) -> int:
    """The position of the line marker before the op's own code in a preprocessed `unit`; 0 if all of it is the op's."""
    place = end = 0
    included: list[bool] = []  # of each file that has been entered, whether it is the op's own
    is_own = True
    for marker in _MARKER.finditer(unit):
        if is_own and unit[end : marker.start()].strip():
            return place
        flags = marker[2].split()
        if "1" in flags:
            included.append("3" not in flags)
        elif "2" in flags and included:
            included.pop()
        # The expansion of a header's macro also changes the flags of a line in the op's own files.
        is_own = all(included) and not marker[1].startswith("<")
        end = marker.end()
        if is_own:
            place = marker.start()
    return place


class Kept:
    """Precompiled headers: files in an existing `folder`."""

    def __init__(self, folder: str) -> None:
        self._can_name = folder.isprintable() and not set('"\\') & set(folder)
        self._folder = folder
        self._made: dict[Ahead, str | None] = {}  # None for a prefix that the compiler does not precompile
        self._last: tuple[tuple[str, ...], str] | None = None  # the words and the text of the last unit
        self._count = 0

    def split(self, words: tuple[str, ...], unit: str) -> tuple[Ahead, str, str] | None:
        """The longest precompiled prefix of `unit`, its file, and the rest; None if there is none yet. A longer one, up
        to the op's own code, is made when the server is next idle."""
        if not self._can_name:
            return None
        self._last = words, unit
        fitting = [
            ahead
            for ahead, path in self._made.items()
            # The rest begins with a line marker, or its lines would not be known.
            if path and ahead[0] == words and unit.startswith(ahead[1]) and unit.startswith("# ", len(ahead[1]))
        ]
        if not fitting:
            return None
        ahead = max(fitting, key=lambda each: len(each[1]))
        path = self._made.pop(ahead)
        assert path is not None
        self._made[ahead] = path  # now the most recently used
        return ahead, path, unit[len(ahead[1]) :]

    def refuse(self, ahead: Ahead) -> None:
        """Stop precompiling this prefix."""
        self._keep(ahead, None)

    def _next(self) -> tuple[Ahead, str] | None:
        """The prefix to precompile next, and the path of the file. It is searched for only here: that takes longer than
        the comparison of prefixes."""
        if self._last is None:
            return None
        (words, unit), self._last = self._last, None
        place = own_code(unit)
        ahead = (words, unit[:place])
        if place < _SHORTEST or ahead in self._made:
            return None
        self._count += 1
        return ahead, os.path.join(self._folder, f"{type(self).__name__}{self._count}.pch")

    def _keep(self, ahead: Ahead, path: str | None) -> None:
        self._made[ahead] = path
        while len(self._made) > _MOST:
            oldest = self._made.pop(next(iter(self._made)))
            if oldest is not None:
                os.unlink(oldest)


class HostHeaders(Kept):
    """Precompiled headers of g++, made by a child process."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._making: tuple[int, Ahead, str] | None = None

    def shortened(self, words: tuple[str, ...], unit: str) -> tuple[Ahead, str] | None:
        """The prefix of a preprocessed `unit`, and the host half of the rest; None if the prefix is not precompiled."""
        found = self.split(words, unit)
        if found is None:
            return None
        ahead, path, rest = found
        return ahead, f'#pragma GCC pch_preprocess "{path}"\n{halves.host_half(rest)}'

    def start(self, signals: tuple[int, ...]) -> None:
        """Start precompiling the prefix of the last unit, if that was not done before."""
        if self._making is not None or (wanted := self._next()) is None:
            return
        from kjit.engine.compile.host_compiler import prefix

        ahead, path = wanted
        with open(f"{path}.ii", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{prefix()}{halves.host_half(ahead[1])}")
        words = [*ahead[0], "-x", "c++-header", "-fpreprocessed", "-c", f"{path}.ii", "-o", path]
        redirections = [
            (os.POSIX_SPAWN_OPEN, 1, f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=redirections, setsigdef=signals)
        self._making = pid, ahead, path

    def look(self) -> None:
        """Collect the child process, if it has ended."""
        if self._making is not None:
            pid, _, _ = self._making
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._take(status)

    def stop(self) -> None:
        """Kill the child process: a build needs the processors."""
        if self._making is not None:
            pid, ahead, _ = self._making
            os.kill(pid, 9)
            self._take(os.waitpid(pid, 0)[1])
            self._made.pop(ahead, None)

    def _take(self, status: int) -> None:
        assert self._making is not None
        _, ahead, path = self._making
        self._making = None
        # With a precompiled file, its warnings would appear in the first build only.
        is_silent = os.path.exists(f"{path}.log") and os.path.getsize(f"{path}.log") == 0
        for name in (f"{path}.ii", f"{path}.log"):
            if os.path.exists(name):
                os.unlink(name)
        self._keep(ahead, path if status == 0 and is_silent else None)


class DeviceHeaders(Kept):
    """Precompiled headers of NVRTC, made in this process. Their command lines are the path of its library, that of its
    builtins, the name of the unit, and the options.

    Attributes:
        halves: the device half of each precompiled prefix, which NVRTC wants to see again with each unit.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.halves: dict[Ahead, str] = {}

    def make(self) -> None:
        """Precompile the prefix of the last unit, if that was not done before."""
        if (wanted := self._next()) is None:
            return
        from kjit.engine.compile.device_compiler import precompile, prefix

        ahead, path = wanted
        library, builtins, source, *options = ahead[0]
        half = f"{prefix(ahead[1])}{halves.device_half(ahead[1])}"
        is_made = precompile(library, builtins, source, half, path, options)
        self._keep(ahead, path if is_made else None)
        kept = {**self.halves, ahead: half}
        self.halves = {each: kept[each] for each, made in self._made.items() if made is not None}
