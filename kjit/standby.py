"""A process on standby, with slow imports done, that runs each job in a fork.

To import torch takes longer than to compile a kernel and to test it. So `kjit watch` starts one process that imports
torch and pytest and waits, and that forks for every job: the copy imports the project's files as they are now, and is
gone afterwards with all that it imported. Nothing of CUDA is touched before the fork, which would not survive it.

Jobs come as lines of JSON on stdin, and the answer to each is a line of JSON. What a job prints goes where the output
of the process goes that asked for it.
"""

from __future__ import annotations

import contextlib
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


class Standby:
    """A process that waits for jobs.

    Args:
        job: the function that does them, `package.module:function`; takes what JSON knows, and returns such a thing.
        imports: the modules that are imported ahead, where they can be.
        environment: of the process.
        ahead: a function that the process calls before it waits for a job, each time, `package.module:function`.
    """

    def __init__(self, job: str, imports: tuple[str, ...], environment: Mapping[str, str], ahead: str) -> None:
        self._answers, theirs = os.pipe()
        command = [sys.executable, "-c", _START, job, ",".join(imports), ahead, str(theirs)]
        # Not of this terminal's group: Ctrl-C is for who asks, who then ends it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=dict(environment), pass_fds=(theirs,), start_new_session=True
        )
        os.close(theirs)
        self._lines = os.fdopen(self._answers, encoding="utf-8")

    def do(self, request: object) -> Any:
        """What the job returns for `request`.

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
            raise KjitError("the process that builds and tests ended; what it printed is above.")
        answer = json.loads(line)
        if "status" in answer:
            raise KjitError(f"what builds and tests ended with status {answer['status']}; what it printed is above.")
        return answer["result"]

    def end(self) -> None:
        """End the process, and a job that runs. This takes a second at most."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                try:
                    os.killpg(self._process.pid, number)
                    self._process.wait(timeout=10.0 if number == signal.SIGTERM else None)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        self._lines.close()


def serve() -> None:
    """Do jobs until stdin ends: `Standby` starts this, and nobody else."""
    job, imports, ahead, answers = sys.argv[1:]
    function, prepare = _named(job), _named(ahead)
    for each in filter(None, imports.split(",")):
        with contextlib.suppress(ImportError):  # the job says so, if it needs it
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
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(result)
            answer = json.dumps({"result": function(request)}).encode()
            sys.stdout.flush()
            sys.stderr.flush()
            with os.fdopen(theirs, "wb") as file:
                file.write(answer)
            status = 0
        except KjitError as error:
            sys.stderr.write(f"error: {error}\n")
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
