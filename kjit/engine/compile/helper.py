"""The helper: a process with NVRTC loaded and headers precompiled, which does the work of commands for CUDA units.

ninja's commands start kjit's programs by `run`. If KJIT_HELPER names the socket of a helper, the helper forks, and the
fork works in the command's folder with its environment. If there is none, or the fork breaks, the command works itself.
A process that builds with NVRTC has at most one helper (start_helper.py), which ends with it, when a command is killed,
and after ten minutes without one.

Few imports: each command starts with this module.
"""

from __future__ import annotations

import contextlib
import importlib
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

VARIABLE = "KJIT_HELPER"

_LOOK_S = 1.0
_IDLE_S = 600.0
_PAUSE_S = 0.2  # before headers are precompiled: the process that builds may exit
_END = b"\0"  # after the output, before the exit status


def run(program: str, words: list[str]) -> int:
    """Run `main` of a program, by the helper if there is one, and return its exit status."""
    answer = _ask(os.environ[VARIABLE], program, words) if VARIABLE in os.environ else b""
    if answer[-2:-1] != _END:
        status: int = importlib.import_module(f"kjit.engine.compile.{program}").main(words)
        return status
    sys.stdout.buffer.write(answer[:-2])
    return answer[-1]


def _ask(path: str, program: str, words: list[str]) -> bytes:
    """The output of a program, `_END` and its exit status; anything else if there is no helper, or the fork broke."""
    import _socket  # takes a third of the time of `socket`

    answer = b""
    helper = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    with contextlib.suppress(OSError):
        helper.connect(path)
        request = marshal.dumps((program, words, os.getcwd(), dict(os.environ)))
        helper.sendall(len(request).to_bytes(8, "little") + request)
        while more := helper.recv(1 << 16):
            answer += more
        helper.sendall(_END)
    return answer


def main(words: list[str]) -> int:
    """Run the helper: the descriptor of its socket, the id of the process that builds, a folder, NVRTC's libraries."""
    import select
    import shutil
    import signal
    import socket
    import time

    from kjit.engine.compile import device_compiler, host_compiler, kernels_object, precompiled  # noqa: F401 (for forks)

    listener, parent, folder = socket.socket(fileno=int(words[0])), int(words[1]), words[2]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # commands report it
        device_compiler.reserve(os.path.join(folder, "empty.pch"), *words[3:])
    running: dict[int, socket.socket] = {}  # by the id of the fork
    since = time.monotonic()
    is_wanted = True
    while is_wanted and os.getppid() == parent and (running or time.monotonic() - since < _IDLE_S):
        for ready in select.select([listener, sys.stdin, *running.values()], [], [], _LOOK_S)[0]:
            since = time.monotonic()
            if ready is listener:
                connection, _ = listener.accept()
                running[_fork(connection, folder, [listener, *running.values()])] = connection
            elif isinstance(ready, socket.socket) and _received(ready, 1) == _END:
                running = {pid: each for pid, each in running.items() if each is not ready}
                ready.close()
            else:
                is_wanted = False  # the command was killed, or the process that builds ends
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG)[0]:
                if ended in running:  # it broke, and the command works itself
                    running.pop(ended).shutdown(socket.SHUT_RDWR)
    os.killpg(0, signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _received(connection: socket, size: int) -> bytes:
    """What has been sent: less than `size` if the other end is closed."""
    import socket

    with contextlib.suppress(ConnectionResetError):
        return connection.recv(size, socket.MSG_WAITALL)
    return b""


def _fork(connection: socket, folder: str, others: list[socket]) -> int:
    """Answer a request in a fork, which then precompiles headers for the next one; return the fork's id."""
    import signal
    import socket
    import time

    from kjit.engine.compile.precompiled import Headers

    request = _received(connection, int.from_bytes(_received(connection, 8), "little"))
    if pid := os.fork():
        return pid
    try:
        for other in others:
            other.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        program, words, directory, environment = marshal.loads(request)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        module = importlib.import_module(f"kjit.engine.compile.{program}")
        headers = Headers(folder)
        status = module.main(words, connection.fileno(), headers)
        connection.sendall(_END + bytes([status]))
        connection.shutdown(socket.SHUT_WR)
        time.sleep(_PAUSE_S)
        os.nice(19)
        os.environ["TMPDIR"] = folder  # that of the build no longer exists, and NVRTC writes there
        if headers.wanted is not None:
            headers.make(module.precompile)
    finally:
        os._exit(1)
