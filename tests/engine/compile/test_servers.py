"""kjit.engine.compile.servers: builds by a process that keeps NVRTC loaded, their failures, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

from kjit.engine.compile import servers
from kjit.engine.compile.servers import run
from kjit.engine.compile.steps import Step
from kjit.engine.diagnostics.printed import failed_steps
from kjit.engine.toolchain.nvrtc import Nvrtc, command_of

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc, by which processes are found")

_PATIENCE_S = 30.0
# A server loads what there is.
NVRTC = Nvrtc(Path("/no/libnvrtc.so.13"), Path("/no/libnvrtc-builtins.so.13.0"), (13, 0), ())


def shell(output: str, command: str, inputs: tuple[str, ...] = (), *, is_of_unit: bool = False) -> Step:
    return Step(output, ("/bin/sh", "-c", command), inputs, is_of_unit=is_of_unit)


def build(
    folder: Path, *steps: Step, at_once: int = 4, cancel: threading.Event | None = None
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    return run(steps, at_once, folder, os.environ, cancel, NVRTC)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def pid_in(path: Path) -> int:
    """The process id that a command has written to a file."""
    wait_until(lambda: path.is_file() and path.read_text().endswith("\n"), f"{path} is not written")
    return int(path.read_text())


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    servers.end()
    yield
    servers.end()


def test_commands_run_after_those_that_make_their_inputs_and_write_to_their_logs(tmp_path: Path) -> None:
    done = build(
        tmp_path,
        shell("c", "cat a b >c; echo said; echo on stderr >&2", ("a", "b")),
        shell("a", "echo 1 >a"),
        shell("b", "cat a >b; echo 2 >>b", ("a",)),
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "c").read_text() == "1\n1\n2\n"
    assert (tmp_path / "c.log").read_text() == "said\non stderr\n"


def test_builds_after_each_other_are_of_one_process_with_the_environment_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for value in ("first", "second"):
        monkeypatch.setenv("KJIT_TEST_VALUE", value)
        folder = tmp_path / value
        assert build(folder, shell("a", "echo $PPID $KJIT_TEST_VALUE $(pwd)")).returncode == 0
        told.append((folder / "a.log").read_text().split())
    assert told[0][0] == told[1][0]
    assert [each[1:] for each in told] == [["first", str(tmp_path / "first")], ["second", str(tmp_path / "second")]]


def test_builds_side_by_side_have_a_process_each_and_one_stays(tmp_path: Path) -> None:
    # Each ends when the other has begun.
    command = "echo $PPID >pid; touch ../{0}.began; until [ -e ../{1}.began ]; do sleep 0.05; done"
    with ThreadPoolExecutor(2) as pool:
        for each in [
            pool.submit(build, tmp_path / name, shell("pid", command.format(name, other)))
            for name, other in (("one", "two"), ("two", "one"))
        ]:
            assert each.result().returncode == 0
    pids = {pid_in(tmp_path / name / "pid") for name in ("one", "two")}
    assert len(pids) == 2
    assert sum(map(alive, pids)) == 1
    servers.end()
    assert not any(map(alive, pids))


def test_no_more_commands_of_units_run_at_once_than_asked_for(tmp_path: Path) -> None:
    command = "mkdir lock && sleep 0.1 && rmdir lock"
    steps = [shell(name, command, is_of_unit=True) for name in ("a", "b", "c")]
    assert build(tmp_path, *steps, at_once=1).returncode == 0


def test_after_a_failure_what_does_not_depend_on_it_runs(tmp_path: Path) -> None:
    done = build(
        tmp_path,
        shell("a", "exit 3"),
        shell("b", "until [ -e a.log ]; do sleep 0.05; done; sleep 0.2; echo whole >b"),
        shell("c", "echo no >c", ("a",)),
        shell("d", "cat b >d", ("b",)),
    )
    assert (done.returncode, done.stdout) == (1, "FAILED: [code=3] a\n")
    assert failed_steps(done.stdout) == {"a"}
    assert not (tmp_path / "c").exists()
    assert (tmp_path / "d").read_text() == "whole\n"


@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        (shell("a", "kill -9 $$"), 137, ""),
        (Step("a", ("/no/such/compiler", "-c")), 127, "/no/such/compiler: No such file or directory\n"),
        (
            Step("a", (*command_of("kernels_object"), "no.o", "no.s", ""), program="kernels_object"),
            1,
            "FileNotFoundError: [Errno 2] No such file or directory: 'no.o'\n",
        ),
        (
            Step(
                "a",
                (*command_of("device_compiler"), "/no/a", "/no/b", os.devnull, "a.cubin", ""),
                program="device_compiler",
            ),
            1,
            "nvrtc: error: /no/b: cannot open shared object file: No such file or directory\n",
        ),
    ],
)
def test_how_a_command_ended_is_reported_as_by_ninja(step: Step, status: int, said: str, tmp_path: Path) -> None:
    done = build(tmp_path, step)
    assert (done.returncode, done.stdout) == (1, f"FAILED: [code={status}] a\n")
    log = (tmp_path / "a.log").read_text()
    assert log == said or log.endswith(f"\n{said}")


def test_a_cancelled_build_leaves_nothing(tmp_path: Path) -> None:
    cancel = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        command = "trap '' TERM; sleep 600 & echo $! >pid; wait; sleep 600"
        building = pool.submit(build, tmp_path, shell("a", command), cancel=cancel)
        pid = pid_in(tmp_path / "pid")
        cancel.set()
        with pytest.raises(CancelledError):
            building.result()
    assert not alive(pid)
    assert build(tmp_path, shell("a", "true")).returncode == 0


def test_what_a_killed_server_has_started_is_ended_and_the_next_build_has_another(tmp_path: Path) -> None:
    done = build(tmp_path, shell("a", "sleep 600 & echo $! >pid; kill -9 $PPID; wait"))
    assert done.returncode < 0
    assert "was killed" in done.stdout
    assert not alive(pid_in(tmp_path / "pid"))
    assert build(tmp_path, shell("a", "true")).returncode == 0


def test_a_failure_of_a_server_is_reported_and_the_next_build_has_another(tmp_path: Path) -> None:
    done = run([shell("a", "true")], 1, tmp_path / "gone", os.environ, None, NVRTC)
    assert done.returncode < 0
    assert "No such file or directory" in done.stdout
    assert build(tmp_path, shell("a", "true")).returncode == 0


def test_a_server_that_has_ended_while_it_waited_is_replaced(tmp_path: Path) -> None:
    assert build(tmp_path, shell("pid", "echo $PPID >pid")).returncode == 0
    before = pid_in(tmp_path / "pid")
    os.kill(before, signal.SIGKILL)
    assert build(tmp_path, shell("pid", "echo $PPID >pid")).returncode == 0
    assert pid_in(tmp_path / "pid") != before


_KILLED = """
import os, sys
from pathlib import Path
sys.path.append(sys.argv[2])
from test_servers import build, shell
if sys.argv[3] == "forked" and os.fork() == 0:
    import time
    time.sleep(600)  # with all that the build's process has open
build(Path(sys.argv[1]), shell("a", "sleep 600 & echo $! >pid; echo $PPID >server; wait"))
"""


@pytest.mark.parametrize("how", ["alone", "forked"])
def test_nothing_of_a_killed_process_builds_on(how: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", _KILLED, str(tmp_path), os.path.dirname(__file__), how]
    process = subprocess.Popen(words, start_new_session=True)
    pids = [pid_in(tmp_path / "pid"), pid_in(tmp_path / "server")]
    process.kill()
    process.wait()
    try:
        wait_until(lambda: not any(map(alive, pids)), "the build goes on")
    finally:
        if how == "forked":
            os.killpg(process.pid, signal.SIGKILL)


def test_a_forked_process_has_a_server_of_its_own_unless_it_inherits_one(tmp_path: Path) -> None:
    assert build(tmp_path / "parent", shell("pid", "echo $PPID >pid")).returncode == 0
    for name in ("own", "inherited"):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if name == "inherited":
                    servers.inherit()
                status = build(tmp_path / name, shell("pid", "echo $PPID >pid")).returncode
                if name == "own":
                    servers.end()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    parent, own, inherited = (pid_in(tmp_path / name / "pid") for name in ("parent", "own", "inherited"))
    assert own != parent
    assert inherited == parent
    assert build(tmp_path / "parent", shell("pid", "echo $PPID >pid")).returncode == 0
    assert pid_in(tmp_path / "parent" / "pid") == parent
