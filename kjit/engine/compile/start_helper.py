"""The start of this process's helper (helper.py), and its end."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from socket import AF_UNIX, socket

from kjit.engine.cache.staging import make_temporary_folder
from kjit.engine.compile.helper import VARIABLE
from kjit.engine.toolchain.memo import stamp
from kjit.engine.toolchain.nvrtc import PROGRAMS, Nvrtc, command_of
from kjit.errors import CacheError

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class _Helper:
    of: object
    owner: int
    process: subprocess.Popen[bytes]
    path: str
    remove_folder: Callable[[], None]


_helper: _Helper | None = None


def variables(nvrtc: Nvrtc) -> dict[str, str]:
    """The variable that names a helper to commands: of this process, or of the one that it is a fork of. It is started
    if there is none; empty if that is not possible."""
    global _helper
    of = (nvrtc.stamps, [stamp(Path(each)) for each in PROGRAMS])
    if _helper is not None and (_helper.of != of or (_is_own(_helper) and _helper.process.poll() is not None)):
        end()
    if _helper is None:
        try:
            _helper = _start(nvrtc, of)
        except (CacheError, OSError) as error:
            _log.debug("there is no helper: %s", error)
            return {}
    return {VARIABLE: _helper.path}


def _start(nvrtc: Nvrtc, of: object) -> _Helper:
    folder, remove_folder = make_temporary_folder()
    try:
        with socket(AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen()
            words = map(str, (listener.fileno(), os.getpid(), folder, nvrtc.library, nvrtc.builtins))
            process = subprocess.Popen(
                [*command_of("helper"), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
    except OSError:
        remove_folder()
        raise
    return _Helper(of, os.getpid(), process, str(folder / "socket"), remove_folder)


def _is_own(helper: _Helper) -> bool:
    return helper.owner == os.getpid()


@atexit.register
def end() -> None:
    """End the helper and its forks, if this process has started it."""
    global _helper
    if _helper is not None and _is_own(_helper):
        if _helper.process.poll() is None:
            os.killpg(_helper.process.pid, signal.SIGKILL)
            _helper.process.wait()
        _helper.remove_folder()
    _helper = None
