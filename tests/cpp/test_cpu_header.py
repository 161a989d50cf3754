"""kjit/cpu.h and kjit/streaming.h: ranges of work, half types staged as floats, and streaming stores."""

from __future__ import annotations

import ast
import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import Forks

import kjit
from kjit import env

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def module() -> Any:
    """Optimised as users' modules are."""
    return kjit.load_jit("cpu_cases", cpp_files=[HERE / "cpu_cases.cpp"])


def every_half() -> torch.Tensor:
    """Every half value except NaN: infinities, zeros and subnormals included."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    return halves[~halves.isnan()]


def floats_to_round(dtype: torch.dtype) -> list[torch.Tensor]:
    """Floats of all sizes, those halfway between two numbers of the type, infinities; with NaN, without, and both."""
    x = torch.randint(-(2**31), 2**31 - 1, (40_000,), dtype=torch.int32)
    x[::5] &= ~0xFFF if dtype == torch.float16 else ~0x7FFF
    x = x.view(torch.float32)
    x[::1000], x[1::1000] = torch.inf, 0.0
    x[2:6] = torch.tensor([-1, 0x7FFF8000, 0x7F800001, 0x7FC00000], dtype=torch.int32).view(torch.float32)  # NaN
    clean = x[~x.isnan()]
    return [x, clean, torch.cat([clean[:512], x, clean])]


def assert_rounded(values: torch.Tensor, out: torch.Tensor) -> None:
    """`out` is PyTorch's conversion of the floats; all NaNs are equal."""
    is_nan = values.isnan()
    assert torch.equal(out.isnan(), is_nan)
    assert torch.equal(out[~is_nan], values.to(out.dtype)[~is_nan])


@pytest.mark.parametrize("grain", [1, 7, 1000])
@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 1001])
def test_each_element_is_in_one_range(size: int, grain: int, module: Any) -> None:
    for is_parallel in (False, True):
        out = torch.zeros(size, dtype=torch.int32)
        module.count(out, grain, is_parallel)
        assert (out == 1).all()


@pytest.mark.parametrize("streams", [False, True])
def test_halves_that_are_staged_stay_what_they_are(streams: bool, module: Any) -> None:
    halves = every_half()
    out = torch.empty_like(halves)
    module.through_floats(halves, out, streams)
    assert torch.equal(out.view(torch.int16), halves.view(torch.int16))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_floats_are_rounded_as_pytorch_does_it(dtype: torch.dtype, streams: bool, module: Any) -> None:
    from_floats = module.from_floats_fp16 if dtype == torch.float16 else module.from_floats_bf16
    for values in floats_to_round(dtype):
        out = torch.empty(len(values), dtype=dtype)
        from_floats(values, out, streams)
        assert_rounded(values, out)


@pytest.mark.parametrize("size", [0, 1, 15, 128, 129, 300])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_a_tensor_that_is_absent_has_no_part(dtype: torch.dtype, size: int, module: Any) -> None:
    add = module.add_optional_fp16 if dtype == torch.float16 else module.add_optional_fp32
    x, y, out = (torch.randint(-9, 9, (size,)).to(dtype) for _ in range(3))
    for optional in (y, None):
        add(x, optional, out)
        assert torch.equal(out, x if optional is None else x + y)


@pytest.mark.parametrize("streams", [False, True])
def test_only_what_is_converted_or_streams_is_done_in_parts(streams: bool, module: Any) -> None:
    converts = platform.machine() == "x86_64" and "f16c" in Path("/proc/cpuinfo").read_text().split()
    converted = [128, 128, 44] if converts else [300]
    two_lines = {"fp16": [64] * 4 + [44], "fp32": [32] * 9 + [12], "fp64_int8": [64] * 4 + [44]}
    for types, expected in (two_lines if streams else {"fp16": converted, "fp32": [300]}).items():
        sizes = torch.zeros(300, dtype=torch.int32)
        count = getattr(module, f"staged_parts_{types}")(sizes, 300, streams)
        assert sizes[:count].tolist() == expected


@pytest.mark.parametrize("size", [0, 1, 31, 32, 95, 127, 128, 129, 300])
def test_parts_are_all_elements_in_order_and_the_last_alone_has_any_size(size: int, module: Any) -> None:
    for smaller in (0, 32):
        parts = torch.zeros(400, dtype=torch.int32)
        count = module.parts(parts, size, smaller > 0)
        known = [128] * (size // 128) + [32] * (size % 128 // 32 if smaller else 0)
        left = size - sum(known)
        assert parts[:count].tolist() == [*known, *([-left] if left else [])]


@pytest.mark.parametrize("size", [0, 63, 64, 127, 128, 129, 128 + 64 + 1])
@pytest.mark.parametrize("offset", [0, 1, 64])
def test_whole_aligned_parts_are_streamed_and_the_others_are_written_as_usual(
    size: int, offset: int, module: Any
) -> None:
    x = torch.randint(0, 255, (size,), dtype=torch.uint8)
    memory = torch.full((1024,), 255, dtype=torch.uint8)
    begin = -memory.data_ptr() % 64 + 64 + offset
    for streams in (False, True):
        memory.fill_(255)
        count = module.stream(x, memory[begin : begin + size], streams)
        assert count == (size // 128 + size % 128 // 64 if streams and offset % 64 == 0 else 0)
        assert torch.equal(memory[begin : begin + size], x)
        assert (memory[:begin] == 255).all()
        assert (memory[begin + size :] == 255).all()


def test_lines_of_the_caches_begin_at_each_64_bytes(module: Any) -> None:
    memory = torch.zeros(300, dtype=torch.uint8)
    begin = -memory.data_ptr() % 64
    assert module.lines(memory[begin:], 128)
    assert not module.lines(memory[begin:], 32)
    assert not module.lines(memory[begin + 32 :], 0)


@pytest.mark.parametrize(
    ("cache", "exceeded"), [("1200", [False, False, True, True]), ("0", [False] * 4), ("", [False, None, None, True])]
)
def test_the_size_of_the_caches_is_what_the_cpu_says_or_the_environment(
    cache: str, exceeded: list[bool | None], forked: Forks
) -> None:
    says = platform.machine() == "x86_64" and Path("/sys/devices/system/cpu/cpu0/cache/index2/size").exists()
    if not cache and not says:
        pytest.skip("the CPU says nothing of its caches")
    source = str(HERE / "cpu_cases.cpp")
    program = f"""
import kjit
module = kjit.load_jit("cpu_cases", cpp_files=[{source!r}])
print([module.exceeds(numel) for numel in (1, 100, 101, 2**50)])
"""
    done = forked.run(program, **{env.CPU_CACHE_BYTES: cache})
    found = ast.literal_eval(done.stdout)
    known = [value if value is not None else found[at] for at, value in enumerate(exceeded)]
    assert found == known


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("row_size", [0, 1, 7, 8, 16, 33, 256, 1001])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rows_that_are_staged_are_changed_and_written(
    dtype: torch.dtype, row_size: int, streams: bool, module: Any
) -> None:
    # With an element before and after the rows, which must not change.
    x, out = (torch.arange(3 * row_size + 2).to(dtype) for _ in range(2))
    expected = x * 2
    expected[0], expected[-1] = x[0], x[-1]
    double_rows = module.double_rows_fp16 if dtype == torch.float16 else module.double_rows_bf16
    assert double_rows(*(tensor[1:-1].view(3, row_size) for tensor in (x, out)), streams)
    assert torch.equal(x, expected)
    assert torch.equal(out, expected)
