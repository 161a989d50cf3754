"""kjit.engine.compile.run: a build ends with the process that started it, and so do all its children."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from kjit.engine.builder import build
from kjit.engine.cache.store import Store
from kjit.engine.compile import run as run_file
from kjit.engine.compile.run import run
from kjit.engine.toolchain.compilers import find_cxx
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import LAYOUT
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc, by which processes are found")

_MARK = "KJIT_TEST_BUILD"
_PATIENCE_S = 30.0
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

_BUILD = """
import sys
from kjit.engine.builder import build
from kjit.engine.cache.store import Store
from kjit.spec import Spec, Target, Variant

kind, source = sys.argv[1:]
spec = Spec("slow", cpp_files=[source]) if kind == "cpu" else Spec("slow", cuda_files=[source])
build(Variant(spec, Target.cpu() if kind == "cpu" else Target.cuda("9.0a")), Store.open())
"""

# Each takes its compiler's innermost program some minutes.
_SLOW = {
    "cpu": """
constexpr unsigned spin(unsigned n) { unsigned x = 1; while (--n != 0) x = x * 1664525u + 1013904223u; return x; }
template <unsigned N> struct Sum { static constexpr unsigned value = spin(60000 + N) + Sum<N - 1>::value; };
template <> struct Sum<0> { static constexpr unsigned value = 1; };
unsigned sum() { return Sum<800>::value; }
""",
    "cuda": """
template <int N> __device__ float power(float x) {
#pragma unroll
  for (int i = 0; i < 400; ++i) x = sinf(x) * powf(x, float(N + i));
  return power<N - 1>(x);
}
template <> __device__ float power<0>(float x) { return x; }
__global__ void kernel(float* p) { p[0] = power<80>(p[0]); }
void launch(float* p) { kernel<<<1, 1>>>(p); }
""",
}


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """In the environment of every process that the test starts."""
    monkeypatch.setenv(_MARK, mark := uuid4().hex)
    return mark


def running(mark: str) -> dict[int, str]:
    """The other processes with this mark, and their names."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            environment = Path("/proc", name, "environ").read_bytes()
            if f"{_MARK}={mark}".encode() in environment.split(b"\0"):
                found[int(name)] = Path("/proc", name, "comm").read_text().strip()
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return found


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "program", "log", "compiler"),
    [
        ("cpu", "cc1plus", "*.o.log", "auto"),
        pytest.param("cuda", "cicc", "*.o.log", "nvcc", marks=pytest.mark.nvcc),
        pytest.param("cuda", Path(sys.executable).name, "*.cubin.log", "auto", marks=pytest.mark.nvcc),
    ],
)
def test_nothing_of_a_killed_build_runs_on_and_the_next_build_sweeps_what_it_left(
    mark: str,
    answer_op: WriteOp,
    tmp_path: Path,
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    program: str,
    log: str,
    compiler: str,
) -> None:
    if kind == "cpu" and find_cxx().family == "clang":  # which compiles in its own process
        program = find_cxx().path.name
    monkeypatch.setenv("KJIT_CUDA_COMPILER", compiler)
    if kind == "cuda" and (Toolchain.for_target(Target.cuda("9.0a")).nvrtc is None) != (compiler == "nvcc"):
        pytest.skip("needs NVRTC")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    source = tmp_path / "slow.src"
    source.write_text(_SLOW[kind])
    process = subprocess.Popen([sys.executable, "-c", _BUILD, kind, str(source)])

    def compiles() -> bool:
        assert process.poll() is None
        # The host compiler's own part runs within nvcc, too, before cicc does.
        return program in running(mark).values() and any(cache_dir.glob(f"{LAYOUT}/staging/*/{log}"))

    try:
        wait_until(compiles, f"{program} does not start")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not running(mark), f"still running: {running(mark)}")

    assert len(list((cache_dir / LAYOUT / "staging").iterdir())) == 2
    # A folder and its lock, of the build and, in two halves, of the process that runs its commands.
    assert len(list(temporary.glob("kjit-*/*"))) == (4 if (kind, compiler) == ("cuda", "auto") else 2)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    build(Variant(answer_op(tmp_path / "project"), Target.cpu()), Store.open())
    assert list((cache_dir / LAYOUT / "staging").iterdir()) == []
    assert list(temporary.iterdir()) == []


def test_what_a_killed_ninja_has_started_is_ended(mark: str, tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", "sleep 600 >out 2>&1 & kill -9 $$"], tmp_path, os.environ, None)
    assert done.returncode < 0
    wait_until(lambda: not running(mark), f"still running: {running(mark)}")


class Interrupt(threading.Event):
    """Not set, but a Ctrl-C whenever it is asked."""

    def is_set(self) -> bool:
        raise KeyboardInterrupt


def test_a_second_interrupt_takes_the_grace_away_and_leaves_nothing(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout == run_file._GRACE_S:
            raise KeyboardInterrupt
        return real(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        run(["/bin/sh", "-c", "trap '' TERM; sleep 600; sleep 600"], tmp_path, os.environ, Interrupt())
    assert running(mark) == {}


_INTERRUPTED = """
import os, threading
from pathlib import Path
from kjit.engine.compile import run

def interrupt(*_):
    raise KeyboardInterrupt

run._end = interrupt
cancel = threading.Event()
cancel.is_set = interrupt
try:
    run.run(["/bin/sh", "-c", "sleep 600; sleep 600"], Path("/"), os.environ, cancel)
except KeyboardInterrupt:
    pass
"""


def test_what_could_not_be_ended_for_interrupts_ends_with_this_process(mark: str) -> None:
    subprocess.run([sys.executable, "-c", _INTERRUPTED], check=True)
    wait_until(lambda: not running(mark), f"still running: {running(mark)}")


@pytest.mark.parametrize("command", ["echo said; echo on stderr >&2; exit 3", "echo said; sleep 1.5; exit 3"])
def test_a_build_that_ends_by_itself_leaves_nothing_not_even_a_zombie(command: str, mark: str, tmp_path: Path) -> None:
    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())

    libc = ctypes.CDLL(None, use_errno=True)
    before = children()
    # What is orphaned becomes this process's child, as it would that of the first process of a container.
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        done = run(["/bin/sh", "-c", command], tmp_path, os.environ, None)
        assert running(mark) == {}
        assert children() <= before
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert done.returncode == 3
    assert done.stdout.startswith("said\n")


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-ninja"):
        run([str(tmp_path / "no-ninja")], tmp_path, os.environ, None)
