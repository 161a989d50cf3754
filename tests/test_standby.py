"""kjit.standby: a process that waits for jobs, and runs each in a fork of itself."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kjit.errors import KjitError
from kjit.standby import Standby

Start = Callable[[str], Standby]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a process for a job; one of the modules that it should import is not there."""
    started: list[Standby] = []

    def start(job: str) -> Standby:
        started.append(Standby(job, ("json", "no_such_module"), os.environ, "gc:freeze"))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_each_job_has_its_answer(start: Start) -> None:
    standby = start("os.path:basename")
    assert [standby.do(each) for each in ("a/b", "c/ä")] == ["b", "ä"]


def test_each_job_is_done_in_another_process(start: Start) -> None:
    standby = start("os.path:realpath")
    assert standby.do("/proc/self") != standby.do("/proc/self")


def test_what_is_to_be_done_ahead_is_done_before_each_job(start: Start) -> None:
    standby = start("builtins:eval")
    assert [standby.do("__import__('gc').get_freeze_count() > 0") for _ in range(2)] == [True, True]


def test_a_job_that_raises_or_dies_is_an_error_and_the_next_one_is_done(
    start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    standby = start("os.path:getsize")
    with pytest.raises(KjitError, match="ended with status 1"):
        standby.do("/no/such/file")
    assert "FileNotFoundError" in capfd.readouterr().err
    assert standby.do("/proc/self/stat") == 0
    with pytest.raises(KjitError, match="ended with status 7"):
        start("os:_exit").do(7)


def test_a_job_that_exits_has_its_status_and_no_traceback(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KjitError, match="ended with status 143"):
        start("sys:exit").do(143)
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not signal the end of a parent")
def test_a_job_ends_if_the_process_that_requested_it_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    job = f"import time; file = open({str(fifo)!r}, 'w'); print('began', file=file, flush=True); time.sleep(600)"
    start = "Standby('builtins:exec', (), os.environ, 'gc:freeze')"
    code = f"import os; from kjit.standby import Standby; {start}.do({job!r})"
    process = subprocess.Popen([sys.executable, "-c", code])
    with open(fifo, encoding="utf-8") as written:
        assert written.readline() == "began\n"
        process.kill()
        process.wait()
        assert select.select([written], [], [], 120)[0], "the job goes on"
        assert written.read() == ""


def test_a_process_that_ended_is_an_error(start: Start) -> None:
    standby = start("os.path:basename")
    standby.do("a")
    standby.end()
    with pytest.raises((KjitError, ValueError)):
        standby.do("b")
