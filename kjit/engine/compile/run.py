"""Running a build in a session of its own, and ending it with all its processes.

A build is a tree of processes: ninja, a shell for each command, the compiler and its parts (cc1plus, cicc, ptxas).
ninja puts each command into its own process group, but no process of the tree leaves the session made for it here. To
end a build, its session is ended:

- by this process, if it is interrupted or the build is cancelled;
- if this process was killed, by a shell that checks once a second whether this process still exists. It needs `/proc`;
  without that (macOS), the compilers of a killed build run to completion.

This process waits for the shell, its child, so that no zombie remains in a container whose first process does not reap
orphans. Alternatives have flaws. PR_SET_PDEATHSIG is bound to a thread, is not inherited by grandchildren, and from
Python needs code between `fork` and `exec`, which may hang in a process with threads. A pipe is not closed if another
child forked meanwhile still has it open. A watcher in Python would be killed by the same `pkill python`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path

from kjit.engine.compile.server import began

_GRACE_S = 3.0
_POLL_S = 0.1
_LOOK_S = 0.01
_LOOKS = 200

# $1 is this process, $2 the leader of the build's session. The id of a session is not reused while it has a process.
_WATCH = r"""
look() {
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return
  set -- ${line##*) }
  above=$2 of_session=$4 since=${20}
}
trap 'kill $!; wait; exit' TERM
parent=$1 session=$2
look "$session" && began=$since || exit
while look $$ && [ "$above" = "$parent" ]; do
  sleep 1 &
  wait $!
done
look "$session" && [ "$since" != "$began" ] && exit
for attempt in 1 2 3 4 5 6 7 8 9; do
  found=
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    look "$pid" && [ "$of_session" = "$session" ] && kill -9 "$pid" && found=1
  done
  [ "$found" ] || exit
  sleep 0.1
done
"""


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], cancel: threading.Event | None
) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, and end it and its children if this call is interrupted or this process dies.

    Returns:
        Its stdout and stderr, combined, and its exit status.

    Raises:
        CancelledError: `cancel` was set.
        OSError: no process can be started.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    watcher: subprocess.Popen[bytes] | None = None
    try:
        watcher = _watch(process)
        output = _wait(process, cancel)
    except BaseException:
        _end(process, watcher)
        raise
    if process.returncode < 0:
        _signal_session(process.pid, signal.SIGKILL)  # it was killed, and could not end its commands
    _dismiss(watcher)
    return subprocess.CompletedProcess(command, process.returncode, output.decode(errors="replace"))


def _watch(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
    """Start the shell that ends `process` and its session if this process dies; None without /proc."""
    if not os.path.isdir("/proc/self"):
        return None
    # In a session of its own: a signal that kills this process may be sent to its whole group.
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "sh", str(os.getpid()), str(process.pid)],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dismiss(watcher: subprocess.Popen[bytes] | None) -> None:
    if watcher is not None:
        watcher.terminate()
        watcher.wait()


def _wait(process: subprocess.Popen[bytes], cancel: threading.Event | None) -> bytes:
    """Wait for `process` to end, and return its output."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_POLL_S)[0]
        if cancel is not None and cancel.is_set():
            raise CancelledError


def _end(process: subprocess.Popen[bytes], watcher: subprocess.Popen[bytes] | None) -> None:
    """End the build and all its processes.

    SIGTERM goes to every process of the session, because ninja does not pass it on to commands whose output it does not
    read. Processes that ignore it are killed, at once after a second Ctrl-C. The watcher runs until the end, in case
    this function is itself interrupted.
    """
    try:
        deadline = time.monotonic() + _GRACE_S
        _signal_session(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        # The leader may end before the others: up to 1.11.1.1, PyPI's ninja was a script that started ninja.
        while any(map(began, _session(process.pid))) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
    finally:
        kill_session(process.pid)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        _dismiss(watcher)


def kill_session(leader: int) -> None:
    """Kill a session, repeatedly until none of its processes is left: one of them may start another meanwhile, and this
    process can only wait for its own children."""
    for _ in range(_LOOKS):
        _signal_session(leader, signal.SIGKILL)
        if not any(map(began, _session(leader))):
            break
        time.sleep(_LOOK_S)


def _signal_session(leader: int, number: signal.Signals) -> None:
    for pid in _session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _session(leader: int) -> Iterator[int]:
    """The processes of a session; only its leader without /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        names = [str(leader)]
    for name in names:
        if name.isdecimal():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(name)) == leader:
                    yield int(name)
