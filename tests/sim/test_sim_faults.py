"""Faults that would end or hang a process on a CPU are errors of the launch, and the process continues."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from forked import Forks

from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.runtime import LAYOUT
from kjit.spec import Target

HERE = Path(__file__).parent
SOURCE = HERE / "fault_cases.cuh"

CHOSEN = "(block (2, 0, 0), thread (5, 0, 0))"
ILLEGAL = "an illegal memory access: kernel "
FREED = "which no kernel has allocated, or which is already freed"
ENDLESS = "has run for 0.2 seconds (KJIT_SIM_TIMEOUT)"
LATER = (
    "blocks from number 1 on have not started: one that waits for a later one needs a cooperative launch, or a cluster"
)

# The name of a case and what its report says, besides the place where the case has one.
FAULTS: dict[str, list[str]] = {
    "null_pointer": [f"{ILLEGAL}store writes to 0x0, which is at or near the null pointer", CHOSEN],
    "wild_pointer": [f"{ILLEGAL}store writes to 0x123456789000, which is not mapped", CHOSEN],
    "impossible_pointer": [f"{ILLEGAL}store uses ", "an invalid address", CHOSEN],
    "read_only": [f"{ILLEGAL}store writes to 0x", "which is not accessible that way", CHOSEN],
    "wild_read": [f"{ILLEGAL}load reads from 0x123456789004, which is not mapped", CHOSEN],
    "wild_copy": [f"{ILLEGAL}copy reads from 0x123456789000, which is not mapped", CHOSEN],
    "wild_text": [f"{ILLEGAL}print reads from 0x123456789000, which is not mapped", CHOSEN],
    "null_function": [f"{ILLEGAL}call calls the function at 0x0", CHOSEN],
    "division": ["kernel divide divides an integer by zero", CHOSEN],
    "aborted": ["kernel give_up calls abort()", CHOSEN],
    "terminated": ["kernel terminate_in was aborted by the C or C++ library", CHOSEN],
    "large_array": ["a stack overflow: ", "kernel use_locals<1048576>", "more than 576 KiB", "thread (0, 0, 0)"],
    "recursion": ["a stack overflow: ", "kernel recurse", CHOSEN],
    "deleted_twice": ["kernel allocate deletes 0x", FREED, CHOSEN],
    "foreign_memory": ["kernel release frees 0x", FREED, CHOSEN],
    "freed_twice": ["kernel release_twice frees 0x", FREED, CHOSEN],
    "one_of_two": ["kernel fail_alone calls abort()", "(block (1, 0, 0), thread (0, 0, 0))"],
    "child_launch": ["kernel parent launches a kernel, which the simulator cannot run", CHOSEN],
    "beyond_bounds": [
        "kernel bounded<31> is launched with blocks of 32 threads, and its __launch_bounds__ allow 31",
        "(block (0, 0, 0), thread (0, 0, 0))",
    ],
    "endless_loop": [
        f"kernel spin does not end: block (2, 0, 0) {ENDLESS}",
        "threads 0 to 4 wait at __syncthreads",
        "thread 5 runs",
        "threads 6 to 31 have not started",
    ],
    "later_block": [f"kernel poll does not end: block (0, 0, 0) {ENDLESS}", LATER],
    "atomic_poll": [f"kernel poll_atomically does not end: block (0, 0, 0) {ENDLESS}", "could go on"],
    "endless_barriers": [f"kernel meet_for_ever does not end: block (0, 0, 0) {ENDLESS}", "threads "],
}
# Refused, and reported where mistakes are looked for; else the last error of the runtime, as on a GPU.
REFUSED = {
    "too_many_threads": "invalid configuration argument: kernel count is not launched (1 x 1 x 1 blocks of 2048 x",
    "too_much_shared_memory": "invalid argument: kernel count is not launched (1 x 1 x 1 blocks of 32 x 1 x 1 threads",
}
RIGHT = ("right_array", "right_memory", "within_bounds")
# The checks see these before the processor does.
SEEN_BY_CHECKS = ("null_pointer", "wild_pointer", "impossible_pointer", "read_only", "wild_read", "wild_copy")


class Runs:
    """Runs cases in processes of their own, with a module in the cache `folder` for one simulator."""

    def __init__(self, folder: Path, mode: str, forked: Forks) -> None:
        self.folder = folder
        self.mode = mode
        self._forked = forked

    def code(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run `code` with `module` in it."""
        start = f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]\nimport torch\n"
        start += "from fault_runs import load, run\n"
        start += f"module = load({str(self.folder)!r}, {self.mode!r})\n"
        return self._forked.run(start + code, KJIT_SIM_TIMEOUT="0.2", KJIT_SIM_THREADS="2")

    def cases(self, *cases: str) -> dict[str, Any]:
        """The outcomes of several cases in one process."""
        done = self.code(f"import json\nprint('\\n' + json.dumps({{case: run(module, case) for case in {cases!r}}}))")
        assert done.returncode == 0, done.stderr
        outcomes: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return outcomes


@pytest.fixture(scope="module", params=["sim", "sim-check"])
def runs(request: pytest.FixtureRequest, _shared_cache: Path, forked: Forks) -> Runs:
    """For each simulator."""
    try:
        Toolchain.for_target(Target.sim(check=request.param == "sim-check"))
    except ToolchainError as error:
        pytest.skip(f"needs CUDA's headers for the simulator: {error.message}")
    return Runs(_shared_cache, request.param, forked)


@pytest.fixture(scope="module")
def outcomes(runs: Runs) -> dict[str, Any]:
    return runs.cases(*FAULTS, *REFUSED, *RIGHT)


def is_at_mark(report: str, case: str) -> bool:
    """Whether the report names a line with the mark of the case; true where the case has none."""
    lines = enumerate(SOURCE.read_text().splitlines(), 1)
    marked = [number for number, line in lines if re.search(rf"// FAULT:.* {case}\b", line)]
    return not marked or any(f"{SOURCE.name}:{number}" in report for number in marked)


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_an_error_that_names_its_place_and_the_process_goes_on(
    runs: Runs, outcomes: dict[str, Any], case: str
) -> None:
    report = outcomes[case]["report"]
    words = FAULTS[case]
    if runs.mode == "sim-check" and case in SEEN_BY_CHECKS:
        words = [re.sub(r"^.*: (kernel \w+) .*", r"\1", words[0]), CHOSEN]
    for each in words:
        assert each in report
    assert is_at_mark(report, case)
    assert outcomes[case]["goes_on"]


@pytest.mark.parametrize("case", REFUSED)
def test_a_launch_that_is_refused_is_reported_at_that_launch(runs: Runs, outcomes: dict[str, Any], case: str) -> None:
    report = outcomes[case]["report"]
    if runs.mode == "sim":
        assert report == ""
    else:
        assert REFUSED[case] in report
        assert is_at_mark(report, case)
        assert outcomes[case]["goes_on"]


@pytest.mark.parametrize("case", RIGHT)
def test_what_a_gpu_can_do_is_no_fault(outcomes: dict[str, Any], case: str) -> None:
    assert outcomes[case] == {"report": "", "goes_on": True}


def test_a_fault_outside_of_kernels_goes_where_it_would(runs: Runs) -> None:
    code = """
import ctypes, faulthandler, signal
seen = []
signal.signal(signal.SIGURG, lambda *_: seen.append("urgent"))
before = [signal.getsignal(s) for s in (signal.SIGABRT, signal.SIGFPE, signal.SIGURG)]
faulthandler.enable()
assert run(module, "division")["goes_on"] and "divides" in run(module, "division")["report"]
assert run(module, "endless_loop")["goes_on"]
assert [signal.getsignal(s) for s in (signal.SIGABRT, signal.SIGFPE, signal.SIGURG)] == before
signal.raise_signal(signal.SIGURG)
assert seen == ["urgent"]
print("still here", flush=True)
ctypes.string_at(0)
"""
    result = runs.code(code)
    assert result.stdout.endswith("still here\n"), result.stderr
    assert result.returncode == -signal.SIGSEGV
    assert result.stderr.count("Fatal Python error: Segmentation fault") == 1


def test_a_fault_of_another_thread_is_none_of_the_kernel(runs: Runs) -> None:
    code = """
import ctypes, faulthandler, os, threading
faulthandler.enable()
os.environ["KJIT_SIM_TIMEOUT"] = "60"
def crash():
    ctypes.CDLL(None).usleep(300000)
    ctypes.string_at(0)
threading.Thread(target=crash).start()
ctypes.CDLL(None).usleep(1000)
module.later_block(torch.zeros(128))
"""
    result = runs.code(code)
    assert result.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in result.stderr


def test_a_kernel_keeps_the_rounding_of_its_caller(runs: Runs) -> None:
    code = """
torch.set_flush_denormal(True)
tiny = torch.tensor([1e-39])
assert (tiny * 1).item() == 0
run(module, "division"), run(module, "endless_loop")
assert (tiny * 1).item() == 0
"""
    result = runs.code(code)
    assert result.returncode == 0, result.stderr


def test_two_modules_keep_to_their_own_faults(runs: Runs, tmp_path: Path) -> None:
    place = Path(LAYOUT, runs.mode, "fault_cases")
    (tmp_path / "other" / place).parent.mkdir(parents=True)
    shutil.copytree(runs.folder / place, tmp_path / "other" / place)
    code = f"""
import threading
other = load({str(tmp_path / "other")!r}, {runs.mode!r})
assert other is not module
reports = {{}}
def many(which, name):
    reports[name] = {{run(which, "division")["report"][-400:] for _ in range(20)}}
threads = [threading.Thread(target=many, args=each) for each in ((module, "a"), (other, "b"), (module, "c"))]
for each in threads: each.start()
for each in threads: each.join()
assert reports["a"] == reports["b"] == reports["c"] and len(reports["a"]) == 1, reports
import ctypes
print("still here", flush=True)
ctypes.string_at(0)
"""
    result = runs.code(code)
    assert result.stdout.endswith("still here\n"), result.stderr
    assert result.returncode == -signal.SIGSEGV
