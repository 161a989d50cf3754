"""The helper: a process with NVRTC loaded, which forks to do the work of commands for CUDA units.

ninja's commands start kjit's programs by `run`. If KJIT_HELPER names the socket of a helper, a fork of it works in the
command's folder and with its environment. If there is none, or the fork breaks, the command works itself. The helper
and its forks end with the process that builds (start_helper.py). Few imports: each command starts with this module.
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

_PAUSE_S = 1.0  # between looks at the process that builds, and before headers are precompiled: the build may go on
_END = b"\0"  # after the output, before the exit status


def run(program: str, words: list[str]) -> int:
    """Run `main` of a program, by the helper if there is one, and return its exit status."""
    answer = b""
    if VARIABLE in os.environ:
        import _socket  # takes a third of the time of `socket`

        helper = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            helper.connect(os.environ[VARIABLE])
            helper.sendall(marshal.dumps((program, words, os.getcwd(), dict(os.environ))))
            while more := helper.recv(1 << 16):
                answer += more
    if answer[-2:-1] != _END:
        status: int = importlib.import_module(f"kjit.engine.compile.{program}").main(words)
        return status
    sys.stdout.buffer.write(answer[:-2])
    return answer[-1]


def main(words: list[str]) -> int:
    """Run the helper: a folder, the id of the process that builds, NVRTC's libraries."""
    import signal
    import socket

    from kjit.engine.compile import device_compiler, host_compiler, kernels_object, precompiled  # noqa: F401 (for forks)

    precompiled.folder, parent, *libraries = words
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(precompiled.folder, "socket"))
        listener.listen()
        listener.settimeout(_PAUSE_S)
        with contextlib.suppress(OSError):  # commands report it
            device_compiler.reserve(os.path.join(precompiled.folder, "empty.pch"), *libraries)
        while os.getppid() == int(parent):
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if os.fork() == 0:
                    _work(connection)
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for forks
                connection.close()
    os.killpg(0, signal.SIGKILL)
    return 0


def _work(connection: socket) -> None:
    """Answer a request, then precompile headers for the next one, and exit."""
    import time

    from kjit.engine.compile import precompiled

    try:
        program, words, directory, environment = marshal.load(connection.makefile("rb"))
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        module = importlib.import_module(f"kjit.engine.compile.{program}")
        connection.sendall(_END + bytes([module.main(words, connection.fileno())]))
        connection.close()
        if precompiled.wanted is not None:
            os.nice(19)
            time.sleep(_PAUSE_S)
            os.environ["TMPDIR"] = precompiled.folder  # that of the build goes with it, and NVRTC writes there
            precompiled.make(module.precompile)
    finally:
        os._exit(1)
