"""kjit/type.cuh on a GPU: every conversion over every bit pattern, and the traits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from formats import FORMATS, check_same, every_pattern
from machine import DEVICE

FLOATS = list(FORMATS)
PAIRS = {"fp32": "fp32x2", "fp16": "fp16x2", "bf16": "bf16x2", "fp8_e4m3": "fp8x2_e4m3", "fp8_e5m2": "fp8x2_e5m2"}
QUADS = {"fp32": "fp32x4", "fp8_e4m3": "fp8x4_e4m3", "fp8_e5m2": "fp8x4_e5m2"}
INTEGERS = {"int8": torch.int8, "uint8": torch.uint8, "int32": torch.int32, "int64": torch.int64}
BINARY = ("Max", "Min", "Sum", "ReduceMax", "ReduceMin")

EXPORTS = [
    *((f"{to}_of_{of}", f"convert<{to}_t, {of}_t>") for to, of in product(FLOATS, FLOATS)),
    *((f"{PAIRS[to]}_of_{of}", f"convert<{PAIRS[to]}_t, {PAIRS[of]}_t>") for to, of in product(PAIRS, PAIRS)),
    *((f"{QUADS[to]}_of_{of}", f"convert<{QUADS[to]}_t, {QUADS[of]}_t>") for to, of in product(QUADS, QUADS)),
    *((f"{to}_of_{of}", f"convert<{to}_t, {of}_t>") for to, of in product(INTEGERS, FLOATS)),
    *((f"{to}_of_{of}", f"convert<{to}_t, {of}_t>") for to, of in product(FLOATS, INTEGERS)),
    *((f"{to}_of_double", f"convert<{to}_t, double>") for to in FLOATS),
    *((f"double_of_{of}", f"convert<double, {of}_t>") for of in FLOATS),
    *((f"{f}_{name}", f"binary<{f}, {name}_t>") for f, name in product(BINARY, FLOATS)),
    *((f"{f}_{PAIRS[name]}", f"binary<{f}, {PAIRS[name]}_t>") for f, name in product(BINARY, PAIRS)),
    *((f"{f}_{name}", f"binary<{f}, {name}_t>") for f, name in product(("Max", "Min", "Sum"), INTEGERS)),
    *((f"Abs_{name}", f"unary<Abs, {name}_t>") for name in (*FLOATS, *PAIRS.values(), *INTEGERS)),
    *((f"Twice_{name}", f"unary<Twice, {name}_t>") for name in FLOATS),
    *((f"widened_{name}", f"widened<{name}_t>") for name in (*FLOATS, "int8", "int64")),
    *((f"Swap_{pair}", f"unary<Swap, {pair}_t>") for pair in PAIRS.values()),
]


@pytest.fixture(scope="module", params=[pytest.param("cuda", marks=pytest.mark.nightly), "light"])
def module(load_cuda: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """With CUDA's types, and with kjit's own under the same names."""
    return load_cuda("type_cases", EXPORTS, *(["-DKJIT_LIGHT_TYPES"] if request.param == "light" else []))


def call(export: Any, dtype: torch.dtype, *inputs: torch.Tensor) -> torch.Tensor:
    inputs = tuple(x.to(DEVICE) for x in inputs)
    out = torch.empty(inputs[0].shape, dtype=dtype, device=DEVICE)
    # torch's 8-bit types know few operations; the export sees them as they are.
    export(out, *inputs)
    return out.cpu()


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_a_conversion_rounds_once_to_nearest_for_every_bit_pattern(module: Any, to: str, of: str) -> None:
    x = every_pattern(of)
    got = call(module[f"{to}_of_{of}"], FORMATS[to].dtype, x)
    check_same(got, x.double() if to == of else FORMATS[to].round(x.double()))


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("to", ["fp8_e4m3", "fp8_e5m2"])
def test_conversions_to_8_bits_agree_with_torch_where_the_value_fits(module: Any, to: str, of: str) -> None:
    x = every_pattern(of)
    x = x[x.double().abs() <= FORMATS[to].largest]
    got = call(module[f"{to}_of_{of}"], FORMATS[to].dtype, x)
    assert torch.equal(got.view(torch.uint8), x.float().to(FORMATS[to].dtype).view(torch.uint8))


@pytest.mark.parametrize("name", FLOATS)
def test_a_type_converts_from_and_to_float_by_itself(module: Any, name: str) -> None:
    x = every_pattern(name)
    x = x[(2 * x.double()).abs() < 2.0**128]
    check_same(call(module[f"Twice_{name}"], x.dtype, x), FORMATS[name].round(2 * x.double()))


@pytest.mark.parametrize("name", FLOATS)
def test_every_bit_pattern_widens_exactly(module: Any, name: str) -> None:
    x = every_pattern(name)
    check_same(call(module[f"widened_{name}"], torch.float32, x), x.double())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64], ids=str)
def test_what_is_computed_with_as_it_is_does_not_change_when_widened(module: Any, dtype: torch.dtype) -> None:
    x = torch.arange(-128, 128, dtype=dtype) * (1 if dtype == torch.int8 else 2**55)
    assert torch.equal(call(module[f"widened_{str(dtype).removeprefix('torch.')}"], dtype, x), x)


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_pairs_convert_as_their_elements_do(module: Any, to: str, of: str) -> None:
    x = every_pattern(of)
    got = call(module[f"{PAIRS[to]}_of_{of}"], FORMATS[to].dtype, x)
    check_same(got, call(module[f"{to}_of_{of}"], FORMATS[to].dtype, x))


@pytest.mark.parametrize("of", QUADS)
@pytest.mark.parametrize("to", QUADS)
def test_fours_convert_as_their_elements_do(module: Any, to: str, of: str) -> None:
    x = every_pattern(of)
    got = call(module[f"{QUADS[to]}_of_{of}"], FORMATS[to].dtype, x)
    check_same(got, call(module[f"{to}_of_{of}"], FORMATS[to].dtype, x))


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("to", INTEGERS)
def test_a_conversion_to_an_integer_drops_the_fraction(module: Any, to: str, of: str) -> None:
    x = every_pattern(of)
    limits = torch.iinfo(INTEGERS[to])
    x = x[(x.double() > float(limits.min) - 1) & (x.double() < float(limits.max))]  # NaN is in neither
    got = call(module[f"{to}_of_{of}"], INTEGERS[to], x)
    assert torch.equal(got, torch.trunc(x.double()).to(INTEGERS[to]))


@pytest.mark.parametrize("of", INTEGERS)
@pytest.mark.parametrize("to", FLOATS)
def test_a_conversion_of_an_integer_rounds_once(module: Any, to: str, of: str) -> None:
    limits = torch.iinfo(INTEGERS[of])
    powers = torch.tensor([2**power for power in range(52)])  # exact in float64, which judges
    near = torch.cat([powers + step for step in (-3, -1, 0, 1, 3)])
    values = torch.cat([near, -near, torch.arange(-70000, 70000)])
    x = values[(values >= limits.min) & (values <= limits.max)].to(INTEGERS[of])
    check_same(call(module[f"{to}_of_{of}"], FORMATS[to].dtype, x), FORMATS[to].round(x.double()))


@pytest.mark.parametrize("name", FLOATS)
def test_doubles_are_rounded_once(module: Any, name: str) -> None:
    # Just above and below the midpoints between neighbours: rounding to float first would land on the midpoint.
    narrow = every_pattern("fp16" if name == "fp32" else name)
    x = narrow[narrow.float().isfinite()].double()
    half = FORMATS[name].ulp(x) / 2
    x = torch.cat([x, *(x + half + half * tiny for tiny in (0.0, 2.0**-40, -(2.0**-40)))])
    x = x[x.abs() <= FORMATS[name].largest]
    check_same(call(module[f"{name}_of_double"], FORMATS[name].dtype, x), FORMATS[name].round(x))
    exact = every_pattern(name)
    check_same(call(module[f"double_of_{name}"], torch.float64, exact), exact.double())


def operands(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every pattern (a sample of them for fp32) against a shuffled copy and against itself."""
    x = every_pattern(name)[: 1 << 17]
    shuffled = x.view(torch.uint8).view(x.numel(), -1)[
        torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))
    ]
    y = shuffled.contiguous().view(x.dtype).flatten()
    return torch.cat([x.view(torch.uint8), x.view(torch.uint8)]).view(x.dtype), torch.cat(
        [y.view(torch.uint8), x.view(torch.uint8)]
    ).view(x.dtype)


def reference(function: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x.double(), y.double()
    return {"Max": torch.fmax, "Min": torch.fmin, "Sum": torch.add}[function.removeprefix("Reduce")](x, y)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("function", BINARY)
def test_max_and_min_ignore_one_nan_and_a_sum_is_rounded(module: Any, function: str, name: str) -> None:
    x, y = operands(name)
    want = reference(function, x, y)
    if function == "Sum":
        want = FORMATS[name].round(want)
    for export in (f"{function}_{name}", f"{function}_{PAIRS[name]}"):
        got = call(module[export], FORMATS[name].dtype, x, y).double()
        # Of +0 and -0 either may be the larger one.
        same = (got == want) | (got.isnan() & want.isnan())
        assert same.all(), (export, x[~same][:4], y[~same][:4], got[~same][:4], want[~same][:4])


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_compared_exactly_and_sums_wrap_around(module: Any, name: str) -> None:
    limits = torch.iinfo(INTEGERS[name])
    edges = torch.tensor([limits.min, limits.min + 1, 0, 1, 2, 7, limits.max - 1, limits.max], dtype=INTEGERS[name])
    x, y = edges.repeat(len(edges)), edges.repeat_interleave(len(edges))
    assert torch.equal(call(module[f"Max_{name}"], x.dtype, x, y), torch.maximum(x, y))
    assert torch.equal(call(module[f"Min_{name}"], x.dtype, x, y), torch.minimum(x, y))
    assert torch.equal(call(module[f"Sum_{name}"], x.dtype, x, y), x + y)
    assert torch.equal(call(module[f"Abs_{name}"], x.dtype, edges), edges.abs())


@pytest.mark.parametrize("name", FLOATS)
def test_abs_clears_the_sign_and_nothing_else(module: Any, name: str) -> None:
    x = every_pattern(name)
    for export in (f"Abs_{name}", f"Abs_{PAIRS[name]}"):
        check_same(call(module[export], x.dtype, x), x.double().abs())


@pytest.mark.parametrize("name", FLOATS)
def test_unpack_refers_to_the_elements(module: Any, name: str) -> None:
    x = every_pattern(name)[:256]
    got = call(module[f"Swap_{PAIRS[name]}"], x.dtype, x)
    size = x.element_size()
    want = x.view(torch.uint8).view(-1, 2, size).flip(1).contiguous()
    assert torch.equal(got.view(torch.uint8).flatten(), want.flatten())
