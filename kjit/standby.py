"""A standby process that has done slow imports and runs each job in a fork.

Importing torch takes longer than compiling and testing a kernel. So `kjit watch` starts a process that imports torch
and pytest, and forks for every job: the child imports the current files of the project, and exits. CUDA is not
initialised before the fork, as it would not survive that.

Jobs are lines of JSON on stdin, and so are the answers on stdout. The output of a job goes to that of the requesting
process.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kjit.errors import KjitError
from kjit.project import PYTHON_C

_START = f"{PYTHON_C} from kjit.standby import serve; serve()"

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class Standby:
    """A process that waits for jobs.

    Args:
        job: the function that runs them, `package.module:function`; it takes and returns JSON values.
        imports: modules to import in advance, if they are installed.
        environment: the environment of the process.
        ahead: a function that the process calls each time before it waits for a job, `package.module:function`.
    """

    def __init__(self, job: str, imports: tuple[str, ...], environment: Mapping[str, str], ahead: str) -> None:
        self._answers, theirs = os.pipe()
        command = [sys.executable, "-c", _START, job, ",".join(imports), ahead, str(theirs)]
        # In its own process group: Ctrl-C goes to the requesting process, which then ends this one.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=dict(environment), pass_fds=(theirs,), start_new_session=True
        )
        os.close(theirs)
        self._lines = os.fdopen(self._answers, encoding="utf-8")

    def do(self, request: object) -> Any:
        """Run the job with `request`, and return its result.

        Raises:
            KjitError: the process ended, or the job did, without an answer.
        """
        assert self._process.stdin is not None  # it is a pipe
        try:
            self._process.stdin.write(f"{json.dumps(request)}\n".encode())
            self._process.stdin.flush()
            line = self._lines.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise KjitError("the process that builds and tests ended; its output is above.")
        answer = json.loads(line)
        if "status" in answer:
            raise KjitError(
                f"the process that builds and tests ended with status {answer['status']}; its output is above."
            )
        return answer["result"]

    def end(self) -> None:
        """End the process and a running job, within a second."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                try:
                    os.killpg(self._process.pid, number)
                    self._process.wait(timeout=10.0 if number == signal.SIGTERM else None)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        self._lines.close()


def serve() -> None:
    """Run jobs until the end of stdin; the main function of `Standby`'s process."""
    job, imports, ahead, answers = sys.argv[1:]
    function, prepare = _named(job), _named(ahead)
    _end_with_parent()
    for each in filter(None, imports.split(",")):
        with contextlib.suppress(ImportError):  # the job reports it if necessary
            importlib.import_module(each)
    out = int(answers)
    os.set_inheritable(out, False)
    prepare()
    for line in sys.stdin.buffer:
        answer = json.dumps(_in_a_copy(function, json.loads(line)))
        os.write(out, f"{answer}\n".encode())
        prepare()


def _named(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _in_a_copy(function: Callable[[Any], Any], request: object) -> dict[str, Any]:
    result, theirs = os.pipe()
    here = os.getpid()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _end_with_parent()
            if os.getppid() != here:
                os._exit(status)  # it has ended already
            os.close(result)
            answer = json.dumps({"result": function(request)}).encode()
            sys.stdout.flush()
            sys.stderr.flush()
            with os.fdopen(theirs, "wb") as file:
                file.write(answer)
            status = 0
        except KjitError as error:
            sys.stderr.write(f"error: {error}\n")
        except SystemExit as left:
            if isinstance(left.code, int):
                status = left.code
            else:
                sys.stderr.write(f"{left.code}\n")
        except BaseException:  # noqa: BLE001 (a copy may not go on in place of the original)
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(result, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0 or not answer:
        return {"status": code}
    answered: dict[str, Any] = json.loads(answer)
    return answered


def _end_with_parent() -> None:
    """Receive SIGTERM when the parent process ends, so that no job goes on without it. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
