"""kjit/utils.h, kjit/bits.h and kjit/dtype.h: messages, ranges, offsets, and the narrow types of plain C++ units."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

CASES = "utils_cases"


def test_irange_counts_like_python(module: Any) -> None:
    assert module.sum_of_range(3, 7) == sum(range(3, 7))
    assert module.sum_of_range(-2, 2) == sum(range(-2, 2))
    assert module.sum_of_range(5, 2) == 0
    assert [module.length_of_range(n) for n in (-1, 0, 5)] == [0, 0, 5]


def test_powers_of_two_around_a_number(module: Any) -> None:
    for x in (1, 2, 3, 5, 1000, 2**40, 2**62 + 1):
        up, down = 1 << (x - 1).bit_length(), 1 << (x.bit_length() - 1)
        assert module.powers_around(x) == up - down


def test_pointers_move_by_bytes_or_elements(module: Any) -> None:
    assert module.offsets()


def test_a_passing_check_evaluates_no_argument(module: Any) -> None:
    assert module.arguments_of_a_passing_check_are_not_evaluated()


@pytest.mark.parametrize("name", ["failing_check", "failing_runtime_check"])
def test_a_failing_check_names_place_and_values(module: Any, name: str) -> None:
    module[name](1)
    with pytest.raises(RuntimeError, match=r"^Failed at utils_cases\.cpp:\d+: n must be positive, got -4$"):
        module[name](-4)


def test_a_panic_without_words_names_the_function(module: Any) -> None:
    with pytest.raises(RuntimeError, match="in panic_without_words"):
        module.panic_without_words()


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.0, "0"),
        (100.0, "100"),
        (0.1, "0.1"),
        (-12345.678, "-12345.7"),
        (1e-7, "1e-7"),
        (1e300, "1e300"),
        (9.9999996, "10"),
        (123456.7, "123457"),
        (0.000123, "0.000123"),
        (5e-324, "4.94066e-324"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
    ],
)
def test_messages_print_every_kind_of_value(module: Any, value: float, printed: str) -> None:
    expected = f"text view -3 4 true {printed} 2.5 0.5 7 bfloat16 float32x4 cuda:1 cpu (null)"
    with pytest.raises(RuntimeError, match=re.escape(f": {expected}") + "$"):
        module.all_kinds_of_values(value)


@pytest.mark.parametrize("character", ["x", "é", "€", "\U0001f600"])
@pytest.mark.parametrize("offset", range(4))
def test_a_message_that_is_too_long_is_cut_off_between_two_characters(module: Any, character: str, offset: int) -> None:
    with pytest.raises(RuntimeError) as caught:
        module.very_long_message(offset, character)
    text = str(caught.value)
    assert re.fullmatch(rf"x{{{offset}}}{character}+\.\.\.", text) or character == "x"
    assert 4095 - 3 <= len(text.encode()) <= 4095


def test_the_root_cause_leaves_the_place_out(module: Any) -> None:
    module.root_cause_of_a_failure()


NARROW = [
    (torch.float16, torch.int16),
    (torch.bfloat16, torch.int16),
    (torch.float8_e4m3fn, torch.uint8),
    (torch.float8_e5m2, torch.uint8),
]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize(("dtype", "bits"), NARROW)
def test_every_bit_pattern_becomes_the_float_that_torch_gives(
    module: Any, dtype: torch.dtype, bits: torch.dtype
) -> None:
    info = torch.iinfo(bits)
    every = torch.arange(info.min, info.max + 1, dtype=torch.int32).to(bits).view(dtype)
    out = torch.empty(every.numel())
    module[f"{name_of(dtype)}_to_float"](every, out)
    expected = every.to(torch.float32)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.nan_to_num(0).view(torch.int32), expected.nan_to_num(0).view(torch.int32))


def floats_around_every_value(dtype: torch.dtype, bits: torch.dtype) -> torch.Tensor:
    """Each value, the midpoints between neighbours, and the floats adjacent to both: the boundaries of rounding."""
    info = torch.iinfo(bits)
    every = torch.arange(info.min, info.max + 1, dtype=torch.int32).to(bits).view(dtype).to(torch.float64)
    finite = every[every.isfinite()].unique()
    middles = (finite[1:] + finite[:-1]) / 2
    points = torch.cat([finite, middles, finite[-1:] * 1.01]).to(torch.float32)
    inf = torch.tensor(float("inf"))
    beside = [torch.nextafter(points, inf), torch.nextafter(points, -inf)]
    random = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    return torch.cat([points, *beside, random, torch.tensor([0.0, -0.0, 1e-45, -1e-45])])


@pytest.mark.parametrize(("dtype", "bits"), NARROW)
def test_floats_round_as_in_torch(module: Any, dtype: torch.dtype, bits: torch.dtype) -> None:
    x = floats_around_every_value(dtype, bits)
    if dtype in (torch.float8_e4m3fn, torch.float8_e5m2):  # above the largest value the two differ, see below
        x = x[x.abs() <= torch.finfo(dtype).max]
    out = torch.empty(x.numel(), dtype=dtype)
    module[f"{name_of(dtype)}_from_float"](x, out)
    assert torch.equal(out.view(bits), x.to(dtype).view(bits))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_infinity_and_nan_stay_what_they_are(module: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 3.4e38])
    out = torch.empty(4, dtype=dtype)
    module[f"{name_of(dtype)}_from_float"](x, out)
    assert out[:2].tolist() == [float("inf"), float("-inf")]
    assert out[2].isnan()
    assert out[3] == x.to(dtype)[3]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_floats_saturate_as_cuda_does(module: Any, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor([largest * 1.2, -largest * 4, float("inf"), float("-inf"), 3e38, float("nan")])
    out = torch.empty(6, dtype=dtype)
    module[f"{name_of(dtype)}_from_float"](x, out)
    assert out.to(torch.float32)[:5].tolist() == [largest, -largest, largest, -largest, largest]
    assert out.to(torch.float32)[5].isnan()


@pytest.mark.parametrize(("dtype", "bits"), NARROW)
def test_an_operation_in_place_is_rounded_once(module: Any, dtype: torch.dtype, bits: torch.dtype) -> None:
    for start in (1.3, -0.7, 11.0):
        x = torch.tensor([start]).to(dtype)
        for step in (lambda x: x + 2, lambda x: x * 3, lambda x: x - 1, lambda x: x / 2):
            x = step(x.float()).to(dtype)
        width = 8 * x.element_size()
        assert module[f"{name_of(dtype)}_in_place"](start) == int(x.view(bits).item()) % 2**width
