"""The simulator's checks: each planted mistake is reported with its place, and correct kernels are left alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from exported import functions_of, place_of

import kjit
from kjit.engine.toolchain.compilers import find_cxx
from kjit.scaffold.new import parse_devices, scaffold_op
from kjit.testing import simulated

SOURCE = Path(__file__).parent / "check_cases.cuh"

# The name of a case: its kernel, the threads of `out`, and what the report says besides.
MISTAKES: dict[str, tuple[str, int, list[str]]] = {
    "past_the_end": (
        "fill",
        1000,
        [
            "writes 4 bytes",
            "just past the end of argument 1 of past_the_end (out: float32[1000])",
            "block (31, 0, 0), thread (8, 0, 0)",
        ],
    ),
    "negative_index": (
        "shift",
        32,
        [
            "reads 4 bytes",
            "4 bytes before the start of argument 1 of negative_index (out: float32[32])",
            "block (0, 0, 0), thread (0, 0, 0)",
        ],
    ),
    "misaligned": (
        "fill_fours",
        32,
        ["AlignedVector' at the misaligned address 0x", "which is not a multiple of 16", "thread (0, 0, 0)"],
    ),
    "null_pointer": ("store_through", 32, ["writes 4 bytes at 0xc", "null pointer", "thread (3, 0, 0)"]),
    "wild_pointer": (
        "store_far_away",
        32,
        ["writes 4 bytes at 0x123456789000, outside of all memory of the launch", "thread (0, 0, 0)"],
    ),
    "past_dynamic_shared": (
        "stage_dynamic",
        64,
        ["writes 4 bytes", "just past the end of the block's 248 bytes of dynamic shared memory", "thread (62, 0, 0)"],
    ),
    "past_static_shared": (
        "stage_static",
        64,
        ["writes 4 bytes, just past the end of __shared__ ", " (160 bytes)", "thread (40, 0, 0)"],
    ),
    "past_the_end_at_once": ("copy_rows", 30, ["writes 40 bytes", "past the end of argument 1", "thread (2, 0, 0)"]),
    "unwritten": (
        "half_written",
        128,
        [
            "reads 4 bytes of uninitialised shared memory: byte ",
            "of __shared__ tile (256 bytes)",
        ],
    ),
    "race": (
        "reverse",
        64,
        ["writes byte", "of __shared__ tile (256 bytes)", "reads 4 bytes there"],
    ),
    "race_with_read": ("use_again", 64, ["reads byte", "of __shared__ tile (256 bytes)", "writes 4 bytes there"]),
    "race_of_writes": (
        "raise",
        64,
        ["writes byte 0 of __shared__ flag (4 bytes)", "writes 4 bytes there"],
    ),
    "race_in_warp": ("exchange", 64, ["of __shared__ lanes (256 bytes)"]),
    "race_between_warps": ("exchange_between_warps", 64, ["of __shared__ lanes (256 bytes)"]),
    "global_race": (
        "exchange_globally",
        64,
        [
            "has a race",
            "in argument 1 of global_race (out: float32[64])",
            "no barrier in between",
            "reads 4 bytes there",
        ],
    ),
    "race_of_blocks": (
        "overlap",
        96,
        ["of block (", "writes 0x", "nothing that orders the blocks", "writes 4 bytes there"],
    ),
    "mixed_accesses": ("add_up", 32, ["atomically updates 0x", "nothing that orders the blocks"]),
    "exited_lane": (
        "sum_of_half",
        32,
        ["shuffles from lane 16", "has ended", "thread (8, 0, 0)"],
    ),
}
RIGHT = [name for name, _ in functions_of(SOURCE) if name.startswith("correct_") and name != "correct_addresses"]


@pytest.fixture(scope="module")
def module(load_simulated: Callable[..., Any]) -> Iterator[Any]:
    exports = [(name, f"{name}<false>") for name in (*MISTAKES, "shift_of_blocks")]
    exports += [(f"{name}_right", f"{name}<true>") for name in (*MISTAKES, "shift_of_blocks")]
    with simulated(check=True):
        yield load_simulated("check_cases", exports, check=True)


def report_of(module: Any, case: str) -> str:
    with pytest.raises(RuntimeError) as caught:
        getattr(module, case)(torch.zeros(MISTAKES[case][1]))
    return str(caught.value)


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_reported_with_its_place(module: Any, case: str) -> None:
    kernel, _, words = MISTAKES[case]
    if case == "misaligned" and find_cxx().family == "clang":  # which does not check copies of a whole class
        words = ["uses a vector at a misaligned address, or", "thread (0, 0, 0)"]
    report = report_of(module, case)
    assert re.search(rf"kernel {kernel}\b", report), report
    for each in words:
        assert each in report
    assert re.search(r"\(block \(\d+, 0, 0\), thread \(\d+, 0, 0\)\)", report), report
    expected = place_of(SOURCE, f"MISTAKE: {case}")
    assert expected is not None
    assert expected in report
    earlier = place_of(SOURCE, f"EARLIER: {case}")
    assert earlier is None or earlier in report


@pytest.mark.parametrize("case", MISTAKES)
def test_the_same_kernel_without_the_mistake_has_no_report(module: Any, case: str) -> None:
    getattr(module, f"{case}_right")(torch.zeros(MISTAKES[case][1]))


@pytest.mark.parametrize("case", RIGHT)
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_a_correct_kernel_has_no_report(module: Any, case: str, seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_SIM_SEED", seed)
    getattr(module, case)(torch.zeros(128))


def test_memory_whose_address_was_in_a_tensor_may_be_used(module: Any) -> None:
    hidden = torch.arange(32.0)
    out = torch.zeros(32)
    module.correct_addresses(torch.tensor([hidden.data_ptr()]), out)
    assert torch.equal(out, hidden)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_race_is_found_in_any_order_of_threads(module: Any, seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_SIM_SEED", seed)
    for case in ("race", "race_in_warp", "race_between_warps", "race_with_read"):
        assert "has a race" in report_of(module, case)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_blocks_that_read_what_others_write_are_a_race(module: Any, seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_SIM_SEED", seed)
    out = torch.zeros(97)
    module.shift_of_blocks_right(out)
    assert torch.equal(out, torch.ones(97) - torch.eye(97)[96])
    with pytest.raises(RuntimeError, match=r"kernel shift_in_place<false> has a race: .* of block \(\d, 0, 0\) reads"):
        module.shift_of_blocks(torch.zeros(97))


def test_a_module_goes_on_after_a_report(module: Any) -> None:
    report_of(module, "past_the_end")
    out = torch.zeros(1000)
    module.past_the_end_right(out)
    assert torch.equal(out, torch.ones(1000))


def test_many_threads_with_barriers_are_checked(module: Any) -> None:
    out = torch.zeros(2**16)
    module.many_barriers(out)
    assert out[0] != 0


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("columns", [37, 4099, 16387])
def test_a_scaffolded_row_may_begin_anywhere(columns: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Vectors of its weight are cut out of aligned ones, of which the first begins ahead of the tensor."""
    folder = tmp_path_factory.getbasetemp() / "rows"
    folder.mkdir(exist_ok=True)
    (kernel,) = [
        file
        for file in scaffold_op(
            "norm", None, pattern="rowwise", devices=parse_devices("cuda"), start=folder
        ).files.files
        if file.path.suffix == ".cuh"
    ]
    (folder / "norm.cuh").write_text(kernel.text)
    norm = kjit.load_jit(
        "norm",
        cuda_files=[folder / "norm.cuh"],
        cuda_wrappers=[("norm", "Norm<fp32_t>::run")],
    )
    for offset in range(4):
        weight, x = torch.rand(columns + 4)[offset : offset + columns], torch.randn(2, columns)
        out = torch.empty_like(x)
        norm.norm(x, weight, 1e-6, out)
        torch.testing.assert_close(out, torch.nn.functional.rms_norm(x, (columns,), weight, 1e-6))
