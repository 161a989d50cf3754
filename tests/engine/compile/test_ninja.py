"""kjit.engine.compile.ninja: what runs when, how it ends, and that it ends with the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from waiting import wait_until

from kjit.engine.builder import build
from kjit.engine.cache.store import Store
from kjit.engine.compile import ninja
from kjit.engine.compile.ninja import Ran, run_steps
from kjit.engine.compile.steps import Step
from kjit.engine.diagnostics.printed import failed_steps
from kjit.engine.toolchain.compilers import find_cxx
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.runtime import LAYOUT
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc, by which processes are found")

_MARK = "KJIT_TEST_BUILD"

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


@pytest.mark.parametrize(
    ("kind", "program", "file", "compiler"),
    [
        ("cpu", "cc1plus", "build.ninja", "auto"),
        pytest.param("cuda", "cicc", "build.ninja", "nvcc", marks=[pytest.mark.nvcc, pytest.mark.nightly]),
        pytest.param("cuda", Path(sys.executable).name, "*.cut.ii", "auto", marks=pytest.mark.nvcc),
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
    file: str,
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
        return program in running(mark).values() and any(cache_dir.glob(f"{LAYOUT}/staging/*/{file}"))

    try:
        wait_until(compiles, f"{program} does not start")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not running(mark), f"still running: {running(mark)}")

    assert len(list((cache_dir / LAYOUT / "staging").iterdir())) == 1
    # That of the build and, in two halves, of the helper, which may have removed its folder.
    assert len(list(temporary.glob("kjit-*"))) in ((1, 2) if (kind, compiler) == ("cuda", "auto") else (1,))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    build(Variant(answer_op(tmp_path / "project"), Target.cpu()), Store.open())
    assert list((cache_dir / LAYOUT / "staging").iterdir()) == []
    assert list(temporary.iterdir()) == []


def shell(output: str, command: str, inputs: tuple[str, ...] = ()) -> Step:
    return Step(output, ("/bin/sh", "-c", command), inputs)


def run(folder: Path, *steps: Step, **options: Any) -> Ran:
    return run_steps(steps, options.pop("jobs", 4), folder, {}, options.pop("cancel", None), **options)


def test_the_output_of_each_command_is_its_own_and_ninjas_apart(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        shell("a", "echo said; echo on stderr >&2; touch a"),
        shell("b", "printf 'FAILED: b\\nno line at the end'; printf '\\377' >&2; exit 3"),
        shell("c", "echo 'ninja: build stopped: it says.'; exit 1"),
        shell("d", "touch d"),
        keep_going=True,
    )
    assert done.logs == {
        "a": "said\non stderr\n",
        "b": "FAILED: b\nno line at the end\udcff",
        "c": "ninja: build stopped: it says.\n",
        "d": "",
    }
    assert failed_steps(done.said) == {"b", "c"}
    assert "build stopped: cannot make progress due to previous errors." in done.said


def test_after_a_failure_what_does_not_depend_on_it_runs_where_that_is_asked_for(tmp_path: Path) -> None:
    steps = [
        shell("a", "exit 3"),
        shell("b", "sleep 0.5; echo whole >b"),
        shell("c", "echo no >c", ("a",)),
        shell("d", "cat b >d", ("b",)),
    ]
    done = run(tmp_path, *steps)
    assert done.returncode != 0
    assert not (tmp_path / "d").exists()
    done = run(tmp_path, *steps, keep_going=True)
    assert failed_steps(done.said) == {"a"}
    assert not (tmp_path / "c").exists()
    assert (tmp_path / "d").read_text() == "whole\n"


@pytest.mark.parametrize("command", ["kill -9 $$", "/no/such/compiler"])
def test_a_command_that_is_killed_or_missing_has_failed(command: str, tmp_path: Path) -> None:
    done = run(tmp_path, shell("a", command), shell("b", "touch b"))
    assert failed_steps(done.said) == {"a"}


class Interrupt(threading.Event):
    """Not set, but a Ctrl-C when it is asked, once the command runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "began"

    def is_set(self) -> bool:
        if self._file.exists():
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize("again", [False, True])
def test_an_interrupted_build_leaves_nothing(
    again: bool, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout == ninja._GRACE_S and again:
            time.sleep(0.5)
            raise KeyboardInterrupt
        return real(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, shell("a", "touch began; sleep 600; sleep 600"), cancel=Interrupt(tmp_path))
    assert running(mark) == {}


def test_a_cancelled_build_leaves_nothing(mark: str, tmp_path: Path) -> None:
    cancel = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(run, tmp_path, shell("a", "touch began; sleep 600; sleep 600"), cancel=cancel)
        wait_until((tmp_path / "began").exists, "it does not start")
        cancel.set()
        with pytest.raises(CancelledError):
            building.result()
    assert running(mark) == {}


def test_a_ninja_that_cannot_be_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ninja"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    monkeypatch.setattr(ninja, "find_ninja", lambda: broken)
    with pytest.raises(ToolchainError, match=r"cannot be run: No such file or directory\."):
        run(tmp_path, shell("a", "touch a"))
