"""The start of this process's helper (helper.py), and its end."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading
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
    socket: str
    remove: Callable[[], None]


_helper: _Helper | None = None
_lock = threading.Lock()


def variables(nvrtc: Nvrtc) -> dict[str, str]:
    """The variable that names the helper to commands, of this process or of one that it is a fork of. It is started if
    there is none. Empty if that is not possible."""
    global _helper
    of = (nvrtc.stamps, [stamp(Path(each)) for each in PROGRAMS])
    if not _lock.acquire(blocking=False):
        return {}  # another thread starts it, or did when this process was forked
    try:
        if _helper is not None and (_helper.of != of or _has_ended(_helper)):
            end()
        if _helper is None:
            _helper = _start(nvrtc, of)
        return {VARIABLE: _helper.socket}
    except (CacheError, OSError) as error:
        _log.debug("there is no helper: %s", error)
        return {}
    finally:
        _lock.release()


def _has_ended(helper: _Helper) -> bool:
    return helper.owner == os.getpid() and helper.process.poll() is not None


def _start(nvrtc: Nvrtc, of: object) -> _Helper:
    folder, remove = make_temporary_folder()
    path = str(folder / "socket")
    try:
        with socket(AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            words = (str(listener.fileno()), str(os.getpid()), str(folder), str(nvrtc.library), str(nvrtc.builtins))
            process = subprocess.Popen(
                [*command_of("helper"), *words],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
    except OSError:
        remove()
        raise
    return _Helper(of, os.getpid(), process, path, remove)


@atexit.register
def end() -> None:
    """End the helper, if this process has started one."""
    global _helper
    if _helper is not None and _helper.owner == os.getpid():
        _helper.process.communicate(b"\n")
        _helper.remove()
    _helper = None
