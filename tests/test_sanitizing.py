"""kjit.sanitizing: findings from the reports of compute-sanitizer and of the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kjit.engine.diagnostics.machine_code import Instruction, Kernel
from kjit.engine.toolchain.locations import kjit_include
from kjit.inspection import Code
from kjit.sanitizing import (
    Finding,
    Lines,
    fold,
    parse_sanitizer,
    parse_simulator,
    read_events,
    sanitizer_command,
    tensors_of,
)

# As compute-sanitizer 2026.4's documentation shows its reports.
BOUNDS = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void <unnamed>::scale_kernel<float>(const T1 *, T1 *, long)+0xb0 in /p/kernels/csrc/scale.cuh:22
=========     by thread (233,0,0) in block (3,0,0)
=========     Address 0x710fdc800fa4 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x710fdc800000 of size 4,004 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: run_out_of_bounds() [0xadb6] in memcheck_demo
=========
========= Invalid __global__ write of size 4 bytes
=========     at void <unnamed>::scale_kernel<float>(const T1 *, T1 *, long)+0xb0 in /p/kernels/csrc/scale.cuh:22
=========     by thread (234,0,0) in block (3,0,0)
=========     Address 0x710fdc800fa8 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x710fdc800000 of size 4,004 bytes
=========
========= Invalid __global__ read of size 16 bytes
=========     at load(const float *)+0xb0 in /p/vec.cuh:39
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x87654321 is misaligned
=========     and is inside the nearest allocation at 0x710fdc800000 of size 1,024 bytes
=========         Device Frame: copy(const float *)+0x30 in /p/copy.cuh:44
=========
========= ERROR SUMMARY: 3 errors
"""
RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(int *, int *)+0x90 in /p/sum.cuh:41
=========     and Read access at sum(int *, int *)+0x100 in /p/sum.cuh:51 [508 hazards]
=========
========= Error: Race reported between Write access at void max<float>(int *)+0x90
=========     and Write access at void max<float>(int *)+0x90 [2 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
# As compute-sanitizer 2025.3 wrote it on an H100; the offsets are those of nvdisasm.
RACE_OF_TEMPLATE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void <unnamed>::race_kernel<float, (int)4>(const T1 *, long)+0x130 in /k/vec.h:7
=========     and Read access at void <unnamed>::race_kernel<float, (int)4>(const T1 *, long)+0x180 in /k/vec.h:9 [132 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""  # noqa: E501
OTHERS = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at add(int *)+0x70 in /p/add.cuh:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= Barrier error detected. Divergent thread(s) in block.
=========     at wait(int *)+0x11f0 in /p/wait.cuh:42
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: outer(int *, int *)+0xe40 in /p/wait.cuh:60
=========
========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to cudaLaunch.
=========
========= Error: process didn't terminate successfully
========= ERROR SUMMARY: 2 errors
"""


def test_reports_of_many_threads_are_one_mistake_with_the_argument_that_it_concerns() -> None:
    tensors = {(0x710FDC800000, 4004): "out"}
    first, second = fold(parse_sanitizer(BOUNDS, "memcheck", tensors))
    assert first == Finding(
        "memcheck",
        "writes 4 bytes of global memory past the end of out",
        "scale_kernel<float>",
        "/p/kernels/csrc/scale.cuh",
        22,
        "out",
        2,
        "thread (233,0,0) of block (3,0,0)",
    )
    assert (second.what, second.kernel, second.line) == (
        "reads 16 bytes of global memory at a misaligned address",
        "copy",
        39,
    )


def test_a_race_names_both_places() -> None:
    first, second = parse_sanitizer(RACES, "racecheck")
    assert first.what == (
        "has a race in shared memory: a thread writes, and another one reads at sum.cuh:51,"
        " without a barrier in between"
    )
    assert (first.kernel, first.file, first.line, first.count) == ("sum", "/p/sum.cuh", 41, 508)
    assert (second.kernel, second.file, second.count) == ("max<float>", "", 2)
    assert "a thread writes, and another one writes, without" in second.what


def test_the_line_of_the_op_comes_before_that_of_a_header() -> None:
    own = (("/k/vec.h", 7), ("/p/race.cuh", 19))
    code = (
        Instruction(0x130, "STS [R3], R0", own),
        Instruction(0x180, "LDS R7, [R6]", (("/k/vec.h", 9), ("/p/race.cuh", 20))),
    )
    kernel = Kernel("{anonymous}::race_kernel<float, 4>", "sm_90a", code, None)
    (found,) = parse_sanitizer(RACE_OF_TEMPLATE, "racecheck", place=Lines([Code("race", (kernel,), ("/p/race.cuh",))]))
    assert (found.file, found.line, found.count) == ("/p/race.cuh", 19, 132)
    assert "another one reads at race.cuh:20, without" in found.what
    (found,) = parse_sanitizer(RACE_OF_TEMPLATE, "racecheck", place=Lines([]))
    assert (found.file, found.line) == ("/k/vec.h", 7)


def test_a_mistake_in_a_header_of_kjits_is_reported_at_the_line_that_calls_it() -> None:
    header = f"{kjit_include()}/kjit/dtype.h"
    text = f"""========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at kjit::widen<float>(const T1 &)+0xf0 in {header}:344
=========     by thread (33,0,0) in block (0,0,0)
=========         Device Frame: void <unnamed>::oob_kernel<float>(const T1 *)+0xf0 in /p/oob.cuh:19
=========
========= ERROR SUMMARY: 1 error
"""
    (found,) = parse_sanitizer(text, "memcheck")
    assert (found.kernel, found.file, found.line) == ("oob_kernel<float>", "/p/oob.cuh", 19)
    (found,) = parse_sanitizer(text.replace(" in /p/oob.cuh:19", ""), "memcheck")
    assert (found.file, found.line) == (header, 344)


@pytest.mark.parametrize(
    ("tool", "knows", "filtered"),
    [
        ("memcheck", "--kernel-name", ["--kernel-name", "kernel_substring=4copy"]),
        ("initcheck", "--kernel-name", []),
        (
            "initcheck",
            "--kernel-name --initcheck-track-filtered-global-memory",
            ["--kernel-name", "kernel_substring=4copy"],
        ),
    ],
)
def test_only_the_ops_kernels_are_looked_at_where_that_hides_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, knows: str, filtered: list[str]
) -> None:
    program = tmp_path / "compute-sanitizer" / "compute-sanitizer"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho ' --print-limit {knows}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("KJIT_CUDA_HOME", str(tmp_path))
    command = sanitizer_command(tool, tmp_path / "log", ["{anonymous}::copy<float>"])
    options = [str(program), f"--tool={tool}", f"--log-file={tmp_path / 'log'}", "--print-limit=10000"]
    assert command == [*options, *filtered]


def test_what_nobody_wrote_and_barriers_that_not_all_reach_and_nothing_else() -> None:
    unwritten, barrier = parse_sanitizer(OTHERS, "initcheck")
    assert unwritten.what == "reads 4 bytes of global memory that was never written"
    assert (barrier.what, barrier.kernel, barrier.line) == (
        "Barrier error detected. Divergent thread(s) in block",
        "outer",
        42,
    )


OUT_OF_BOUNDS = (
    "Failed at scale.cuh:39: CUDA error: kernel scale_kernel<float> reads 4 bytes at 0x5597f748d984, just past the end"
    " of argument 1 of scale (x: float32[1]), at /p/scale.cuh:19 (block (0, 0, 0), thread (1, 0, 0)) (launching 1 x 1 x"
    " 1 blocks of 256 x 1 x 1 threads with 0 bytes of dynamic shared memory)"
)
RACE = (
    "CUDA error: kernel sum<float, 4> has a race: thread (3, 0, 0) of block (0, 0, 0) reads byte 4 of __shared__ tile"
    " (256 bytes), at /p/sum.cuh:9, and thread (2, 0, 0) writes 4 bytes there, at /p/sum.cuh:7, with no barrier in"
    " between"
)
RACE_IN_SHORT = (
    "has a race: thread (3, 0, 0) of block (0, 0, 0) reads byte 4 of __shared__ tile (256 bytes) at sum.cuh:9, and"
    " thread (2, 0, 0) writes 4 bytes there at sum.cuh:7, with no barrier in between"
)


@pytest.mark.parametrize(
    ("error", "what", "kernel", "line", "argument", "example"),
    [
        (
            OUT_OF_BOUNDS,
            "reads 4 bytes past the end of x",
            "scale_kernel<float>",
            19,
            "x",
            "block (0, 0, 0), thread (1, 0, 0), test_it",
        ),
        (RACE, RACE_IN_SHORT, "sum<float, 4>", 9, None, "test_it"),
    ],
)
def test_what_the_simulator_says(
    error: str, what: str, kernel: str, line: int, argument: str | None, example: str
) -> None:
    events = [
        {"event": "failed", "test": "t.py::test_it", "error": error},
        {"event": "failed", "test": "t.py::test_other", "error": "assert 1 == 2"},
    ]
    (found,) = parse_simulator(events)
    assert found == Finding("sim-check", what, kernel, found.file, line, argument, 1, example)
    assert Path(found.file).parent == Path("/p")


def test_a_record_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "events"
    events = [{"event": "called", "tensors": [["x", 16, 4], ["out", 32, 8]]}, {"event": "begins", "test": "t"}]
    path.write_text("\n".join(map(json.dumps, events)) + '\n{"event": "fai')
    assert read_events(path) == events
    assert tensors_of(events) == {(16, 4): "x", (32, 8): "out"}
    assert read_events(tmp_path / "none") == []
