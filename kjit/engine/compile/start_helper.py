"""The start of this process's helper (helper.py), and its end."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable
from subprocess import DEVNULL, Popen
from typing import NamedTuple

from kjit.engine.cache.staging import make_temporary_folder
from kjit.engine.compile.helper import VARIABLE
from kjit.engine.toolchain.nvrtc import Nvrtc, command_of


class _Helper(NamedTuple):
    nvrtc: Nvrtc
    owner: int
    process: Popen[bytes]
    path: str
    remove_folder: Callable[[], None]


_helper: _Helper | None = None


def variables(nvrtc: Nvrtc) -> dict[str, str]:
    """The variable that names a helper to commands: of this process, or of the one that it is a fork of. It is started
    if there is none.

    Raises:
        CacheError: no folder for temporary files is writable.
    """
    global _helper
    if _helper is not None:
        has_ended = _helper.owner == os.getpid() and _helper.process.poll() is not None
        if has_ended or _helper.nvrtc != nvrtc:
            end()
    if _helper is None:
        folder, remove_folder = make_temporary_folder()
        command = [*command_of("helper"), *map(str, (folder, os.getpid(), nvrtc.library, nvrtc.builtins))]
        process = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
        _helper = _Helper(nvrtc, os.getpid(), process, str(folder / "socket"), remove_folder)
    return {VARIABLE: _helper.path}


@atexit.register
def end() -> None:
    """End the helper and its forks, if this process has started it."""
    global _helper
    if _helper is not None and _helper.owner == os.getpid():
        if _helper.process.poll() is None:
            os.killpg(_helper.process.pid, signal.SIGKILL)
            _helper.process.wait()
        _helper.remove_folder()
    _helper = None
