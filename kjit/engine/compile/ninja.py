"""The commands of a build, run by ninja: it schedules them, keeps their outputs apart, and ends them if it is stopped.

(docs/architecture.md says why kjit writes the ninja file itself.)
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

from kjit.engine.cache.folders import NO_SPACE
from kjit.engine.compile.build_folder import write_text
from kjit.engine.compile.steps import Step
from kjit.engine.toolchain.programs import find_ninja
from kjit.errors import ToolchainError
from kjit.spec import HOST_VARIABLE

# Variables that change the output or the messages, and are not part of a key. The last five are nvcc's (nvcc.profile);
# Makefiles export variables of these names.
_DROPPED_ENVIRONMENT = (
    "CLICOLOR_FORCE",
    "DEPENDENCIES_OUTPUT",
    "LD_RUN_PATH",
    "MAKEFLAGS",
    "NINJA_STATUS",
    HOST_VARIABLE,  # the command line has that compiler
    "SUNPRO_DEPENDENCIES",
    "CUDAFE_FLAGS",
    "INCLUDES",
    "LIBRARIES",
    "PTXAS_FLAGS",
    "SYSTEM_INCLUDES",
)

# For launchers. Their "direct" mode relies on the list of headers of an earlier compile, and misses a new header that
# shadows one of them; kjit has decided to compile, and must not get the old object. ccache would hash the folder of the
# build, which differs each time.
LAUNCHER_ENVIRONMENT = {"CCACHE_NODIRECT": "1", "CCACHE_NOHASHDIR": "1", "SCCACHE_DIRECT": "false"}

_STOPPED = re.compile(r"ninja: build stopped: .*\n\Z")
_GRACE_S = 5.0
_POLL_S = 0.1

# Its input ends without a line when this process has ended, even if that was killed.
_WATCH = 'read -r line || kill -TERM -"$1"'


@dataclass(frozen=True)
class Ran:
    """The end of a build.

    Attributes:
        logs: the output of each command that has ended, by its file.
        said: what ninja said itself: with a line `FAILED: [code=1] file` for each failure.
    """

    returncode: int
    logs: Mapping[str, str]
    said: str


def run_steps(
    steps: Sequence[Step],
    jobs: int,
    folder: Path,
    extra: Mapping[str, str],
    cancel: threading.Event | None,
    *,
    keep_going: bool = False,
) -> Ran:
    """Run `steps` in `folder`, and end them if this call is interrupted or this process dies.

    Args:
        jobs: how many run in parallel.
        extra: environment variables for them.
        keep_going: after a failure, start those that do not depend on it.

    Raises:
        CancelledError: `cancel` was set.
        ToolchainError: ninja cannot be run.
    """
    ninja = find_ninja()
    _write(folder, steps)
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED_ENVIRONMENT}
    mark = secrets.token_hex(8)  # before the name of each command that has ended
    environment |= {"LC_ALL": "C", "NINJA_STATUS": mark, **extra}
    command = [str(ninja), f"-j{jobs}", *(["-k0"] if keep_going else [])]
    try:
        process = _start(command, folder, environment, stdout=subprocess.PIPE)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise ToolchainError(
            f"ninja ('{ninja}') cannot be run: {error.strerror}.", hint="install it with `pip install ninja`"
        ) from None
    watch = ["/bin/sh", "-c", _WATCH, "sh", str(process.pid)]
    with process:
        try:
            with _start(watch, Path("/"), None, stdin=subprocess.PIPE) as watcher:
                try:
                    output = _wait(process, cancel)
                finally:
                    watcher.communicate(b"\n")
        except BaseException:
            _end(process)
            raise
    return _parse(process.returncode, os.fsdecode(output).replace("\r\n", "\n"), mark, steps)


def _start(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C in the terminal interrupts this process only."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _write(folder: Path, steps: Sequence[Step]) -> None:
    lines = ["rule run", "  command = $run", "  description = $out"]
    for step in steps:
        lines.append(f"build {step.output}: run {' '.join(step.inputs)}".rstrip())
        # `exec` saves a process, and passes on the compiler's exit status.
        lines.append("  run = " + _exec(step).replace("$", "$$"))
    (folder / ".ninja_log").unlink(missing_ok=True)
    write_text(folder / "build.ninja", "\n".join([*lines, ""]))


def _exec(step: Step) -> str:
    return f"exec {step.command}"


def _parse(returncode: int, output: str, mark: str, steps: Sequence[Step]) -> Ran:
    """Take the output of commands out of ninja's."""
    commands = {step.output: _exec(step) for step in steps}
    first, *parts = output.split(mark)
    said, logs = [first], {}
    for part in parts:
        name, _, log = part.partition("\n")
        before, found, after = log.partition(f"{commands[name]}\n")
        if found and before.lstrip().startswith("FAILED: "):
            said.append(before.lstrip())
            log = after
        if part is parts[-1]:
            said += _STOPPED.findall(log)
            log = _STOPPED.sub("", log)
        logs[name] = log.lstrip("\n")  # ninja ends the last line of the output before
    return Ran(returncode, logs, "".join(said))


def _wait(process: subprocess.Popen[bytes], cancel: threading.Event | None) -> bytes:
    """Wait for `process` to end, and return its output."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_POLL_S)[0]
        if cancel is not None and cancel.is_set():
            raise CancelledError


def _end(process: subprocess.Popen[bytes]) -> None:
    """End ninja, which ends its commands first; at once if this is interrupted, too."""
    with contextlib.suppress(ProcessLookupError):
        try:
            # To the group: up to 1.11.1.1, PyPI's ninja was a script that started ninja.
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
