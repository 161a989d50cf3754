"""The floating-point formats that results of GPU tests are judged by."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Format:
    """A binary floating-point format, and rounding to it in float64, to nearest, ties to even.

    Attributes:
        mantissa: explicit bits of the significand.
        min_exponent: of the smallest normal number.
        largest: the largest finite value.
        saturates: what is too large becomes the largest value, and not infinity.
    """

    dtype: torch.dtype
    mantissa: int
    min_exponent: int
    largest: float
    saturates: bool = False

    def ulp(self, x: torch.Tensor) -> torch.Tensor:
        """The distance of neighbours at `x` (float64)."""
        _, exponent = torch.frexp(x.double())  # x = m * 2^exponent with 0.5 <= m < 1
        exponent = torch.clamp(exponent - 1, min=self.min_exponent) - self.mantissa
        return torch.ldexp(torch.ones_like(x, dtype=torch.float64), exponent)

    def round(self, x: torch.Tensor) -> torch.Tensor:
        """`x` (float64) rounded to this format, still as float64."""
        quantum = self.ulp(torch.where(torch.isfinite(x), x, 1.0))
        rounded = torch.where(torch.isfinite(x), torch.round(x / quantum) * quantum, x)
        limit = self.largest if self.saturates else torch.inf
        limits = torch.full_like(rounded, limit)
        return torch.where(rounded.abs() > self.largest, torch.copysign(limits, rounded), rounded)


FORMATS = {
    "fp32": Format(torch.float32, 23, -126, torch.finfo(torch.float32).max),
    "fp16": Format(torch.float16, 10, -14, 65504.0),
    "bf16": Format(torch.bfloat16, 7, -126, torch.finfo(torch.bfloat16).max),
    "fp8_e4m3": Format(torch.float8_e4m3fn, 3, -6, 448.0, saturates=True),
    "fp8_e5m2": Format(torch.float8_e5m2, 2, -14, 57344.0, saturates=True),
}


def every_pattern(name: str) -> torch.Tensor:
    """Every value of a 16-bit or 8-bit format, NaNs included; for fp32, a million: those of bf16 and of fp16, their
    neighbours and the midpoints between them, and random bits."""
    if name != "fp32":
        dtype = FORMATS[name].dtype
        if dtype.itemsize == 1:
            return torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
        return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    coarse = torch.cat([every_pattern(narrow).float() for narrow in ("bf16", "fp16")]).view(torch.int32)
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(-(2**31), 2**31, (500_000,), generator=generator).to(torch.int32)
    near = [coarse + step for step in (-1, 0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)]
    return torch.cat([*near, random]).view(torch.float32)


def check_same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal values; NaN equals NaN, and zeros have the same sign."""
    got, want = got.double().cpu(), want.double().cpu()
    same = (got == want) & (torch.signbit(got) == torch.signbit(want)) | (got.isnan() & want.isnan())
    wrong = torch.nonzero(~same).flatten()[:5]
    assert same.all(), f"{int((~same).sum())} differ, first at {wrong.tolist()}: {got[wrong]} for {want[wrong]}"
