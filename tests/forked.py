"""Scripts that run as in a process of their own, forked from one that has imported torch and kjit's commands, which
take a second and a third of one.

Each is run by a fork, whose modules are those of the preamble alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SERVER = """
import atexit, gc, json, os, sys, traceback
exec(sys.argv[1])
gc.freeze()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    raise SystemExit
request = json.loads(line)
for number, name in enumerate(request["streams"]):
    opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY)
    os.dup2(opened, number)
    os.close(opened)
os.environ.clear()
os.environ.update(request["environment"])
if "tempfile" in sys.modules:
    sys.modules["tempfile"].tempdir = None  # what it found by the variables of this process
if request["cwd"]:
    os.chdir(request["cwd"])
sys.argv = ["-c", *request["arguments"]]
status = 0
try:
    exec(compile(request["script"], "<string>", "exec"), {"__name__": "__main__"})
except SystemExit as error:
    status = error.code or 0
except BaseException:
    traceback.print_exc()
    status = 1
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)  # what torch does at the end of a process takes half a second
"""

_HERE = str(Path(__file__).parent)


class Forks:
    """A Python that waits for scripts, and forks for each."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def run(
        self, script: str, *arguments: object, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script, which may be indented, to its end, as `python -c script arguments` would.

        Args:
            cwd: the folder to run it in, or None for that in which this class was entered.
            environment: on top of that of this process. What Python or torch read as they start is not among it.
        """
        streams = [Path(os.devnull), self._folder / "stdout", self._folder / "stderr"]
        for stream in streams[1:]:
            stream.write_bytes(b"")
        request = {
            "script": textwrap.dedent(script),
            "arguments": [str(argument) for argument in arguments],
            "environment": {**os.environ, **environment},
            "streams": [str(stream) for stream in streams],
            "cwd": str(cwd or ""),
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = self._process.stdout.readline()
        assert status, "the Python that forks has ended"
        stdout, stderr = (stream.read_text() for stream in streams[1:])
        return subprocess.CompletedProcess(["python", "-c", script], int(status), stdout, stderr)

    def pytest(self, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run pytest to its end, as `python -m pytest arguments` would; the parameters are those of `run`.

        Installed plugins are not loaded, which takes a third of a second, unless `environment` says otherwise.

        Plugins of a fork may be modules of this folder. On a machine with a GPU it is no fork: CUDA cannot be used in a
        fork of a process that has asked for it.
        """
        import torch

        # Else pytest takes itself for a worker of the run that this test belongs to.
        outer = [name for name in os.environ if name.startswith("PYTEST_")]
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
        if torch.cuda.is_available():
            return subprocess.run(
                [sys.executable, "-m", "pytest", *arguments],
                cwd=cwd,
                env={name: value for name, value in os.environ.items() if name not in outer} | environment,
                capture_output=True,
                text=True,
                check=False,
            )
        script = (
            f"import os, sys, pytest\nfor name in {outer}: del os.environ[name]\n"
            f"sys.path.append({_HERE!r})\nsys.exit(pytest.main(sys.argv[1:]))"
        )
        return self.run(script, *arguments, cwd=cwd, **environment)


@contextmanager
def forks(preamble: str) -> Iterator[Forks]:
    """A Python that has executed `preamble`, until the block ends."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVER, preamble]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        yield Forks(process, Path(folder))
        process.communicate()  # ends it, as its input does
