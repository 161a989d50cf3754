"""kjit/math.cuh on a GPU, against float64 over every bit pattern, with the bounds that the header states."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from formats import FORMATS, every_pattern
from machine import DEVICE

F = torch.nn.functional

# Function: reference in float64, and the bound for float in units in the last place. Beyond CUDA's own bounds: a
# sigmoid adds the roundings of the sum and of the quotient to the error of exp.
UNARY: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "Sqrt": (torch.sqrt, 0.5),
    "Rsqrt": (torch.rsqrt, 2.0),
    "Exp": (torch.exp, 2.0),
    "Log": (torch.log, 1.0),
    "Sin": (torch.sin, 2.0),
    "Cos": (torch.cos, 2.0),
    "Tanh": (torch.tanh, 2.0),
    "Sigmoid": (torch.sigmoid, 3.0),
    "Silu": (F.silu, 3.0),
}
GELU: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Gelu": F.gelu,
    "GeluTanh": lambda x: F.gelu(x, approximate="tanh"),
}
TYPES = ("fp32", "fp16", "bf16")
PAIRS = {"fp32": "fp32x2", "fp16": "fp16x2", "bf16": "bf16x2"}

CASES = "type_cases"
EXPORTS = [
    *((f"{f}_{name}", f"unary<{f}, {name}_t>") for f in (*UNARY, *GELU) for name in (*TYPES, *PAIRS.values())),
    *((f"{f}_double", f"unary<{f}, double>") for f in (*UNARY, *GELU)),
    *((f, f"unary<{f}, float>") for f in ("SigmoidFast", "SiluFast", "SoftplusFast")),
    ("fma_bf16", "fma<bf16_t>"),
    ("fma_float", "fma<float>"),
]


def call(export: Any, x: torch.Tensor) -> torch.Tensor:
    even = torch.cat([x, x[: x.numel() % 2]]).to(DEVICE)  # an export for pairs takes two at a time
    out = torch.empty_like(even)
    export(out, even)
    return out.cpu()[: x.numel()]


def check_within(got: torch.Tensor, want: torch.Tensor, x: torch.Tensor, bound: torch.Tensor) -> None:
    """Within `bound`; what is infinite or NaN must be so on both sides."""
    got = got.double()
    finite = want.isfinite()
    excess = torch.where(finite, (got - want).abs() / bound, 0.0).nan_to_num(torch.inf)
    same = torch.where(finite, excess <= 1, (got == want) | (got.isnan() & want.isnan()))
    wrong = torch.nonzero(~same).flatten()
    worst = wrong[torch.argsort(excess[wrong], descending=True)][:5]
    assert same.all(), (
        f"{len(wrong)} wrong: f({x[worst]}) = {got[worst]} for {want[worst]}; of the bound: {excess[worst]}"
    )


def domain(function: str, x: torch.Tensor) -> torch.Tensor:
    """Without the arguments for which float64 itself is no judge, or for which the header says that float is none."""
    if function in ("Sigmoid", "Silu"):
        return x[(x.double() > -87) | x.isnan()]  # below, exp(-x) leaves the floats, and the result is 0
    return x


@pytest.mark.parametrize("function", UNARY)
def test_a_function_of_float_is_within_its_bound(module: Any, function: str) -> None:
    reference, ulps = UNARY[function]
    x = domain(function, every_pattern("fp32"))
    exact = reference(x.double())
    want = FORMATS["fp32"].round(exact)
    overflow = want.isinf()
    bound = ulps * FORMATS["fp32"].ulp(exact)
    got = call(module[f"{function}_fp32"], x)
    check_within(got, torch.where(overflow, want, exact), x, bound)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@pytest.mark.parametrize("function", UNARY)
def test_a_function_of_a_half_type_is_the_rounded_one_of_float(module: Any, function: str, name: str) -> None:
    reference, ulps = UNARY[function]
    x = domain(function, every_pattern(name))
    exact = reference(x.double())
    want = FORMATS[name].round(exact)
    # Half a unit for the rounding, and what the error of float may add to it.
    bound = 0.5 * FORMATS[name].ulp(exact) + ulps * FORMATS["fp32"].ulp(exact)
    for export in (f"{function}_{name}", f"{function}_{PAIRS[name]}"):
        check_within(call(module[export], x), torch.where(want.isinf(), want, exact), x, bound)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("function", GELU)
def test_gelu_is_within_four_units_of_its_argument(module: Any, function: str, name: str) -> None:
    x = every_pattern(name)
    x = x[x.double().abs() < 1e18]  # x^3 leaves the floats beyond
    exact = GELU[function](x.double())
    bound = 0.5 * FORMATS[name].ulp(exact) + 4 * FORMATS["fp32"].ulp(x.double())
    for export in (f"{function}_{name}", f"{function}_{PAIRS[name]}"):
        check_within(call(module[export], x), exact, x, bound)


@pytest.mark.parametrize("function", [*UNARY, *GELU])
def test_doubles_keep_their_precision(module: Any, function: str) -> None:
    x = torch.linspace(0.01, 20.0, 10_000, dtype=torch.float64)
    want = UNARY[function][0](x) if function in UNARY else GELU[function](x)
    torch.testing.assert_close(call(module[f"{function}_double"], x), want, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", TYPES)
def test_pairs_of_floats_give_what_their_elements_give(module: Any, name: str) -> None:
    x = every_pattern(name)
    for function in UNARY:
        one, two = call(module[f"{function}_{name}"], x), call(module[f"{function}_{PAIRS[name]}"], x)
        assert torch.equal(one.nan_to_num(1.25), two.nan_to_num(1.25))


def test_fast_functions_are_within_their_bounds(module: Any) -> None:
    x = torch.linspace(-64, 64, 100_001)
    sigmoid = torch.sigmoid(x.double())
    check_within(call(module["SigmoidFast"], x), sigmoid, x, 2.0**-16 * sigmoid)
    silu = F.silu(x.double())
    check_within(call(module["SiluFast"], x), silu, x, 2.0**-16 * silu.abs())
    softplus = F.softplus(x.double())
    check_within(call(module["SoftplusFast"], x), softplus, x, 2.0**-16 * softplus)
    assert call(module["SoftplusFast"], torch.tensor([1e30, math.inf])).tolist() == [
        torch.tensor(1e30).item(),
        math.inf,
    ]


def test_a_fused_multiply_add_of_bf16_rounds_once(module: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(4096, generator=generator).bfloat16() for _ in range(2))
    c = torch.randn(4096, generator=generator)
    out = torch.empty_like(c, device=DEVICE)
    for export, second in (("fma_bf16", b), ("fma_float", b.float())):
        module[export](out, a.to(DEVICE), second.to(DEVICE), c.to(DEVICE))
        # Two products of eight bits are exact in float64, and so is their sum with c to 53 bits.
        assert torch.equal(out.cpu(), (a.double() * b.double() + c.double()).float())


@pytest.mark.parametrize(
    "divisor", [1, 2, 3, 5, 7, 10, 255, 256, 641, 65535, 65537, 2**30, 2**30 + 1, 2**31 - 1, 2**31]
)
def test_division_by_a_prepared_number_is_exact(module: Any, divisor: int) -> None:
    top = 2**31 - 1
    multiples = torch.arange(0, top + 1, max(divisor, 1 << 16))
    random = torch.randint(0, top + 1, (100_000,), generator=torch.Generator().manual_seed(3))
    values = torch.cat([multiples, multiples - 1, multiples + 1, random, torch.tensor([0, 1, top - 1, top])])
    values = values[(values >= 0) & (values <= top)]
    out = torch.empty(values.numel(), 4, dtype=torch.uint32, device=DEVICE)
    module["divide"](out, values.to(torch.uint32).to(DEVICE), divisor)
    want = torch.stack([values // divisor, values % divisor] * 2, dim=1)
    assert torch.equal(out.cpu().to(torch.int64), want)
