"""The build server: a process that runs the commands of CUDA units in two halves, build after build.

servers.py runs `main` of this file as a program:

    socket parent folder libnvrtc.so libnvrtc-builtins.so

Starting Python and loading NVRTC takes as long as compiling a small kernel, and so does NVRTC's first compile. A server
pays for both once. It reads a request (a line of JSON) from `socket`, runs the build's commands in the order of their
inputs with the parallelism in the request, answers with the failures, and waits for the next request. Meanwhile it
precompiles headers into `folder` (precompiled.py).

kjit's own programs run in threads, other commands in processes of the server's session. If the client closes the
connection or its process ends, the server ends its commands and exits. If NVRTC crashes the server, only one build
fails.

Few imports: the first build waits for them.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from kjit.engine.compile.precompiled import DeviceHeaders, HostHeaders

PROGRAMS = ("device_compiler", "host_compiler", "kernels_object")
"""The programs that run in threads: modules of this package whose `main` takes arguments and a file descriptor."""

_LOOK_S = 1.0
_GRACE_S = 3.0
_PAUSE_S = 0.2  # after a build, before headers are precompiled: the client may exit
_IDLE_S = 600.0
_MOST_MEMORY = 512 << 20
"""The resident memory, in bytes, above which the server exits after a build: NVRTC's libraries never free theirs."""

_NOT_FOUND = 127  # a shell's exit status
_BY_SIGNAL = 128
# Signals that Python or this process handles, reset in child processes.
_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM)


def main(words: list[str]) -> int:
    connection, parent, folder, *libraries = int(words[0]), int(words[1]), *words[2:]
    os.set_inheritable(connection, False)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wake, woken = os.pipe()
    for handle in (wake, woken):
        os.set_blocking(handle, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    headers = _Headers(folder)
    if not select.select([connection], [], [], 0)[0]:
        _load(libraries)  # it was started ahead of the first build
    text, since, patience = b"", time.monotonic(), _LOOK_S
    while os.getppid() == parent and time.monotonic() - since < _IDLE_S:
        if not select.select([connection], [], [], patience)[0]:
            headers.make()
            patience = _LOOK_S
            continue
        more = os.read(connection, 1 << 20)
        if not more:
            break
        text += more
        if text.endswith(b"\n"):
            headers.stop()
            os.write(connection, f"{os.getpid()}\n".encode())
            _answer(json.loads(text), connection, wake, woken, libraries, headers)
            _give_back()
            if _memory() > _MOST_MEMORY:
                break
            text, since, patience = b"", time.monotonic(), _PAUSE_S
    headers.stop()
    return 0


def _give_back() -> None:
    """Return free memory to the system, hundreds of MB after a build, if the C library has a function for that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _memory() -> int:
    """The resident memory of this process, in bytes. (The maximum from `getrusage` starts at that of the parent.)"""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def began(pid: int) -> str:
    """The start time of a process, which distinguishes it from a later one with the same id; empty if there is no such
    process, if it is a zombie, and without /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def _answer(
    request: dict[str, Any], connection: int, wake: int, woken: int, libraries: list[str], headers: _Headers
) -> None:
    build = _Build(request, connection, wake, woken, headers)
    try:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        status, output = build.run(libraries), build.output
        os.chdir("/")
    except Exception:  # noqa: BLE001 (the client reports it)
        status, output = -1, _traceback()
    _write(connection, f"{json.dumps({'status': status, 'output': output})}\n".encode())
    if status < 0:
        os.killpg(0, signal.SIGKILL)


def _traceback() -> str:
    import traceback  # slower to import than everything else here

    return traceback.format_exc()


def _write(handle: int, content: bytes) -> None:
    with open(handle, "wb", closefd=False) as file:
        file.write(content)


def _load(libraries: list[str]) -> None:
    """Import the programs and load NVRTC, unless that is done. If NVRTC is missing, the program that needs it reports
    that."""
    for program in PROGRAMS:
        importlib.import_module(f"kjit.engine.compile.{program}")
    library, builtins = libraries
    with contextlib.suppress(OSError):
        ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(library)


class _Headers:
    """The precompiled headers of the programs, none before the first build."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._host: HostHeaders | None = None
        self._device: DeviceHeaders | None = None

    def load(self) -> None:
        if self._host is None:
            from kjit.engine.compile.precompiled import DeviceHeaders, HostHeaders

            self._host, self._device = HostHeaders(self._folder), DeviceHeaders(self._folder)

    def of(self, program: str) -> list[object]:
        """The further arguments of a program's `main`."""
        given: dict[str, list[object]] = {"host_compiler": [self._host], "device_compiler": [self._device]}
        return given.get(program, [])

    def make(self) -> None:
        """Precompile while nothing is built: for the host in a process, for the device in this one."""
        if self._host is not None and self._device is not None:
            os.environ["TMPDIR"] = self._folder  # that of the last build no longer exists, and NVRTC writes there
            self._host.look()
            self._host.start(_SIGNALS)
            self._device.make()

    def stop(self) -> None:
        """Stop precompiling, because a build needs the processors."""
        if self._host is not None:
            self._host.look()
            self._host.stop()


class _Build:
    """The commands of one build.

    Attributes:
        output: the failures, in ninja's format.
    """

    def __init__(self, request: dict[str, Any], connection: int, wake: int, woken: int, headers: _Headers) -> None:
        self._request = request
        self._headers = headers
        self._connection = connection
        self._wake = wake
        self._woken = woken
        self._waiting: list[dict[str, Any]] = request["steps"]
        self._unmade = {step["output"] for step in self._waiting}
        self._processes: dict[int, dict[str, Any]] = {}
        self._threads: dict[str, dict[str, Any]] = {}
        self._done: list[tuple[str, int]] = []
        self._has_failed = False
        self.output = ""

    def run(self, libraries: list[str]) -> int:
        """Run all commands except those whose inputs failed, because the messages of one half of a unit explain those
        of the other. 0 if none failed."""
        is_loaded = False
        looked = time.monotonic()
        while True:
            self._take()
            self._start()
            if not self._processes and not self._threads:
                return 1 if self._has_failed else 0
            if not is_loaded:
                _load(libraries)  # while the first commands run
                self._headers.load()
                is_loaded = True
            readable, _, _ = select.select([self._wake, self._connection], [], [], _LOOK_S)
            if self._connection in readable:
                self._end()
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                if began(self._request["pid"]) != self._request["began"]:
                    self._end()

    def _start(self) -> None:
        """Start commands whose inputs exist, within the parallelism of the request."""
        for step in list(self._waiting):
            running = [*self._processes.values(), *self._threads.values()]
            if len(running) >= self._request["cores"]:
                break
            is_full = sum(each["is_of_unit"] for each in running) >= self._request["at_once"]
            if self._unmade.intersection(step["inputs"]) or (step["is_of_unit"] and is_full):
                continue
            self._waiting.remove(step)
            log = os.open(step["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            # NVRTC compiles one unit at a time in a process.
            if step["program"] is not None and step["program"] not in self._threads:
                self._threads[step["program"]] = step
                _thread.start_new_thread(self._run_program, (step, log))
            else:
                self._start_process(step, log)

    def _start_process(self, step: dict[str, Any], log: int) -> None:
        words = step["arguments"]
        redirections = [(os.POSIX_SPAWN_DUP2, log, number) for number in (1, 2)]
        try:
            pid = os.posix_spawn(words[0], words, os.environ, file_actions=redirections, setsigdef=_SIGNALS)
            self._processes[pid] = step
        except OSError as error:
            _write(log, f"{words[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
            self._end_of(step, _NOT_FOUND)
        finally:
            os.close(log)

    def _run_program(self, step: dict[str, Any], log: int) -> None:
        """Run one of kjit's programs, in a thread."""
        status = 1
        try:
            module = importlib.import_module(f"kjit.engine.compile.{step['program']}")
            given = self._headers.of(step["program"])
            if step["program"] == "device_compiler":
                given.append(self._request["threads"])
            status = module.main(step["arguments"][step["words"] :], log, *given)
        except Exception:  # noqa: BLE001 (printed, as Python does for a process)
            _write(log, _traceback().encode(errors="surrogateescape"))
        finally:
            os.close(log)
            self._done.append((step["program"], status))
            os.write(self._woken, b"\0")

    def _take(self) -> None:
        """Record the commands that have ended."""
        if select.select([self._wake], [], [], 0)[0]:
            os.read(self._wake, 4096)
        while self._done:
            program, status = self._done.pop()
            self._end_of(self._threads.pop(program), status)
        for pid in list(self._processes):
            ended, state = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(state)
                self._end_of(self._processes.pop(pid), code if code >= 0 else _BY_SIGNAL - code)

    def _end_of(self, step: dict[str, Any], status: int) -> None:
        if status == 0:
            self._unmade.discard(step["output"])
        else:
            self._has_failed = True
            self.output += f"FAILED: [code={status}] {step['output']}\n"

    def _end(self) -> NoReturn:
        """End all commands and this process. Compilers remove their files on SIGTERM; a command that ignores it is
        killed."""
        os.killpg(0, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while self._processes and time.monotonic() < deadline:
            select.select([self._wake], [], [], _GRACE_S)
            self._take()
        os.killpg(0, signal.SIGKILL)
        os._exit(1)
