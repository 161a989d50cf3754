"""The client side of build servers (server.py): processes that have NVRTC loaded and run the commands of builds.

Each build takes an idle server, or starts one. Servers stay while other builds run, and one stays after the last build.
They end with this process. A forked process starts its own, unless its parent passes on its idle ones (`inherit`). No
build depends on a particular server: if one has ended or was killed, the next build starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path

from kjit.engine.cache.staging import make_temporary_folder
from kjit.engine.compile.run import kill_session
from kjit.engine.compile.server import began
from kjit.engine.compile.steps import Step
from kjit.engine.toolchain import machine
from kjit.engine.toolchain.memo import Stamp, stamp
from kjit.engine.toolchain.nvrtc import PROGRAMS, Nvrtc, command_of
from kjit.errors import CacheError

_POLL_S = 0.1
_GRACE_S = 5.0
_ATTEMPTS = 3
_FEWEST_THREADS = 4
_MOST_THREADS = 8


class _Server:
    """A build server.

    Attributes:
        of: the identity of the NVRTC and the programs that it has loaded.

    Raises:
        CacheError: no folder for temporary files is writable.
        OSError: no process can be started.
    """

    def __init__(self, nvrtc: Nvrtc, of: tuple[Stamp, ...]) -> None:
        self.of = of
        self._owner = os.getpid()
        self._connection, theirs = socket.socketpair()
        folder, remove = make_temporary_folder()
        self._remove_folder = remove
        with theirs:
            words = (str(theirs.fileno()), str(self._owner), str(folder), str(nvrtc.library), str(nvrtc.builtins))
            # In a session of its own: Ctrl-C in the terminal interrupts this process only.
            self._process = subprocess.Popen(
                [*command_of("server"), *words],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def build(self, request: bytes, cancel: threading.Event | None) -> list[bytes]:
        """The lines of its answer: its process id, and the outcome of the build; fewer if it has ended.

        Raises:
            CancelledError: `cancel` was set.
        """
        answer = b""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(request)
        while answer.count(b"\n") < 2:
            more = self._read()
            if more == b"":
                break
            answer += more or b""
            if more is None and cancel is not None and cancel.is_set():
                raise CancelledError
        return answer.split(b"\n")[:-1]

    def has_ended(self) -> bool:
        """Whether it ended while it was idle."""
        return self._owner == os.getpid() and self._process.poll() is not None

    def end(self) -> None:
        """End it and its commands, and wait until they have ended."""
        is_whole = False
        try:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + _GRACE_S
            while time.monotonic() < deadline and not is_whole:
                is_whole = self._read() == b""
        finally:
            if not is_whole or self._has_left_some():
                kill_session(self._process.pid)
            self._connection.close()
            if self._owner == os.getpid():
                self._process.wait()
                self._remove_folder()

    def _has_left_some(self) -> bool:
        """Whether commands may still be running, because it did not exit by itself. Asked before its id is reused."""
        if self._owner != os.getpid():
            return True
        if self._process.returncode is None:
            found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            return found is None or found.si_code != os.CLD_EXITED or found.si_status != 0
        return self._process.returncode != 0

    def _read(self) -> bytes | None:
        """Further output; None if there is none yet, empty if the connection is closed."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if not poll.poll(_POLL_S * 1000):
            return None
        try:
            return self._connection.recv(1 << 16)
        except ConnectionResetError:
            return b""


_lock = threading.Lock()
_idle: list[_Server] = []
_building = 0


def _forget() -> None:
    """Forget the parent's servers: its threads may be using them."""
    global _lock, _building
    _lock, _building = threading.Lock(), 0
    _inherited[:] = _idle
    _idle.clear()


_inherited: list[_Server] = []
os.register_at_fork(after_in_child=_forget)


def inherit() -> None:
    """Take over the idle servers of the parent process, which must not use them meanwhile."""
    with _lock:
        _idle.extend(_inherited)
        _inherited.clear()


@atexit.register
def end() -> None:
    """End the idle servers."""
    with _lock:
        ended = _idle[:]
        _idle.clear()
    for server in ended:
        server.end()


def start(nvrtc: Nvrtc) -> None:
    """Start a server for the next build, unless one is idle.

    Raises:
        OSError: no process can be started.
    """
    _leave(_take(nvrtc))


def run(
    steps: Sequence[Step],
    at_once: int,
    folder: Path,
    environment: Mapping[str, str],
    cancel: threading.Event | None,
    nvrtc: Nvrtc,
) -> subprocess.CompletedProcess[str]:
    """Run the commands of a build in `folder`, and end them if this call is interrupted or this process dies.

    Args:
        at_once: how many commands that compile units run in parallel.

    Returns:
        The failures, in ninja's format, and 0 if there are none; a negative status if the server was killed.

    Raises:
        CancelledError: `cancel` was set.
        OSError: no process can be started.
    """
    devices = sum(step.program == "device_compiler" for step in steps)
    request: dict[str, object] = {
        "folder": str(folder),
        "environment": dict(environment),
        "steps": [_as_json(step) for step in steps],
        "at_once": at_once,
        "cores": machine.cores(),
        "pid": os.getpid(),
        "began": began(os.getpid()),
    }
    lines: list[bytes] = []
    for _ in range(_ATTEMPTS):
        if lines:
            break
        server = _take(nvrtc)
        text = f"{json.dumps({**request, 'threads': _threads(devices)})}\n".encode()
        is_fit = False
        try:
            lines = server.build(text, cancel)
            is_fit = len(lines) == 2  # else it has ended: while it was idle, or during the build
        finally:
            if not is_fit:
                server.end()
            _leave(server if is_fit else None)
    if len(lines) < 2:
        return subprocess.CompletedProcess([], -signal.SIGKILL, "it was killed, or crashed\n")
    answer = json.loads(lines[1])
    return subprocess.CompletedProcess([], answer["status"], answer["output"])


def _threads(devices: int) -> int:
    """The number of threads for the compile of each of a build's `devices` device halves: an equal share of the
    processors of all current builds. One if the share is small, because threads cost CPU time."""
    share = machine.cores() // max(devices * _building, 1)
    return min(share, _MOST_THREADS) if share >= _FEWEST_THREADS else 1


def _take(nvrtc: Nvrtc) -> _Server:
    """An idle server, or a new one.

    Raises:
        OSError: no process can be started.
    """
    global _building
    of = (*nvrtc.stamps, *(stamp(Path(each)) for each in PROGRAMS))
    with _lock:
        unfit = [each for each in _idle if each.of != of or each.has_ended()]
        fit = [each for each in _idle if each not in unfit]
        server = fit.pop() if fit else None
        _idle[:] = fit
        _building += 1
    for each in unfit:
        each.end()
    try:
        return server or _Server(nvrtc, of)
    except (CacheError, OSError):
        _leave(None)
        raise


def _leave(server: _Server | None) -> None:
    """Keep a server for the next build; after the last of the parallel builds, end all but one."""
    global _building
    with _lock:
        _building -= 1
        if server is not None:
            _idle.append(server)
        ended = _idle[1:] if _building == 0 else []
        del _idle[len(_idle) - len(ended) :]
    for each in ended:
        each.end()


def _as_json(step: Step) -> dict[str, object]:
    return {
        "output": step.output,
        "arguments": step.arguments,
        "inputs": step.inputs,
        "log": step.log,
        "is_of_unit": step.is_of_unit,
        "program": step.program,
        "words": 0 if step.program is None else len(command_of(step.program)),
    }
