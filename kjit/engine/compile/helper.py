"""The helper: a process with NVRTC loaded, which forks to do the work of commands for CUDA units.

ninja's commands start kjit's programs by `run`. If KJIT_HELPER names the socket of a helper, a fork of it works in the
command's folder and with its environment. If there is none, or the fork breaks, the command works itself. The helper
ends with the process that builds (start_helper.py), if a command is killed, and after ten minutes without one.

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
_PAUSES = 300
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
    """The output of a program, `_END` and its exit status; anything else if there is no helper, or its fork broke."""
    import _socket  # takes a third of the time of `socket`

    helper = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    answer = b""
    with contextlib.suppress(OSError):
        helper.connect(path)
        request = marshal.dumps((program, words, os.getcwd(), dict(os.environ)))
        helper.sendall(len(request).to_bytes(8, "little") + request)
        while more := helper.recv(1 << 16):
            answer += more
    return answer


def main(words: list[str]) -> int:
    """Run the helper: the descriptor of its socket, the id of the process that builds, a folder, NVRTC's libraries."""
    import shutil
    import signal
    import socket
    import time

    from kjit.engine.compile import device_compiler, host_compiler, kernels_object, precompiled  # noqa: F401 (for forks)

    listener, parent, folder = socket.socket(fileno=int(words[0])), int(words[1]), words[2]
    listener.settimeout(_LOOK_S)
    with contextlib.suppress(OSError):  # commands report it
        device_compiler.reserve(os.path.join(folder, "empty.pch"), *words[3:])
    since = time.monotonic()
    while os.getppid() == parent and time.monotonic() - since < _IDLE_S:
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            since = time.monotonic()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if os.fork() == 0:
                _work(connection, folder)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for forks
            connection.close()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
    return 0


def _work(connection: socket, folder: str) -> None:
    """Answer a request, then precompile headers for the next one, and exit."""
    import _thread
    import signal
    import socket
    import time

    from kjit.engine.compile.precompiled import Headers

    is_answered = False

    def watch() -> None:
        with contextlib.suppress(OSError):
            connection.recv(1)
        if not is_answered:  # the command was killed
            os.killpg(0, signal.SIGKILL)

    try:
        size = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "little")
        program, words, directory, environment = marshal.loads(connection.recv(size, socket.MSG_WAITALL))
        _thread.start_new_thread(watch, ())
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        module = importlib.import_module(f"kjit.engine.compile.{program}")
        headers = Headers(folder)
        status = module.main(words, connection.fileno(), headers)
        is_answered = True
        connection.sendall(_END + bytes([status]))
        connection.shutdown(socket.SHUT_WR)
        os.nice(19)
        for _ in range(_PAUSES):  # until the build has ended
            time.sleep(_PAUSE_S)
            if not os.path.isdir(os.environ.get("TMPDIR", "")):
                break
        os.environ["TMPDIR"] = folder  # that of the build no longer exists, and NVRTC writes there
        if headers.wanted is not None:
            headers.make(module.precompile)
    finally:
        os._exit(1)
