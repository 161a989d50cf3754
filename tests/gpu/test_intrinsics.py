"""CUDA's intrinsics and math functions: the simulator's, or on a GPU CUDA's own, equal their definitions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from machine import DEVICE, QUICKLY

import kjit

Lanes = Callable[..., int]


def clamp(x: int, bits: int, signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(x, low), high)


def wrap(x: int, bits: int, signed: bool) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> bits - 1 else x


def packed(function: Lanes, bits: int, signed: bool, *words: int) -> int:
    """`function` of each of the integers with so many bits, in a word again."""
    mask = (1 << bits) - 1
    return sum(
        (function(*(wrap(word >> shift, bits, signed) for word in words)) & mask) << shift
        for shift in range(0, 32, bits)
    )


def _cases() -> dict[str, tuple[int, Callable[..., int]]]:
    """By name: the number of operands, and the definition on whole words."""
    cases: dict[str, tuple[int, Callable[..., int]]] = {}

    def add(name: str, operands: int, bits: int, signed: bool, function: Lanes) -> None:
        cases[name] = (operands, lambda *words: packed(function, bits, signed, *words))

    for count, bits in ((2, 16), (4, 8)):
        # Signed and unsigned sums have the same bits.
        add(f"__vadd{count}", 2, bits, True, lambda a, b: a + b)
        add(f"__vsub{count}", 2, bits, True, lambda a, b: a - b)
        add(f"__vneg{count}", 1, bits, True, lambda a: -a)
        add(f"__vabs{count}", 1, bits, True, abs)
        add(f"__vnegss{count}", 1, bits, True, lambda a, bits=bits: clamp(-a, bits, True))
        add(f"__vabsss{count}", 1, bits, True, lambda a, bits=bits: clamp(abs(a), bits, True))
        add(f"__vhaddu{count}", 2, bits, False, lambda a, b: (a + b) // 2)
        for of, signed in (("s", True), ("u", False)):
            suffix = f"{of}{count}"
            add(f"__vadd{of}s{count}", 2, bits, signed, lambda a, b, s=signed, n=bits: clamp(a + b, n, s))
            add(f"__vsub{of}s{count}", 2, bits, signed, lambda a, b, s=signed, n=bits: clamp(a - b, n, s))
            add(f"__vabsdiff{suffix}", 2, bits, signed, lambda a, b: abs(a - b))
            add(f"__vmin{suffix}", 2, bits, signed, min)
            add(f"__vmax{suffix}", 2, bits, signed, max)
            add(f"__vavg{suffix}", 2, bits, signed, lambda a, b: (a + b + (a + b >= 0)) >> 1)
            cases[f"__vsad{suffix}"] = (
                2,
                lambda x, y, s=signed, n=bits: sum(
                    abs(wrap(x >> at, n, s) - wrap(y >> at, n, s)) for at in range(0, 32, n)
                ),
            )
            for word, compare in (
                ("ge", int.__ge__), ("gt", int.__gt__), ("le", int.__le__), ("lt", int.__lt__),
            ):  # fmt: skip
                add(f"__vcmp{word}{suffix}", 2, bits, signed, lambda a, b, f=compare: -int(f(a, b)))
                add(f"__vset{word}{suffix}", 2, bits, signed, lambda a, b, f=compare: int(f(a, b)))
        for word, equal in (("eq", True), ("ne", False)):
            add(f"__vcmp{word}{count}", 2, bits, True, lambda a, b, e=equal: -int((a == b) is e))
            add(f"__vset{word}{count}", 2, bits, True, lambda a, b, e=equal: int((a == b) is e))
    for suffix, bits, signed in (("s32", 32, True), ("u32", 32, False), ("s16x2", 16, True), ("u16x2", 16, False)):
        for name, best in (("max", max), ("min", min)):

            def of_sum(a: int, b: int, c: int, f: Lanes = best, n: int = bits, s: bool = signed) -> int:
                return f(wrap(a + b, n, s), c)

            add(f"__vi{name}3_{suffix}", 3, bits, signed, best)
            add(f"__viadd{name}_{suffix}", 3, bits, signed, of_sum)
            if signed:
                add(f"__vi{name}_{suffix}_relu", 2, bits, signed, lambda a, b, f=best: max(f(a, b), 0))
                add(f"__vi{name}3_{suffix}_relu", 3, bits, signed, lambda a, b, c, f=best: max(f(a, b, c), 0))
                add(f"__viadd{name}_{suffix}_relu", 3, bits, signed, lambda a, b, c, f=of_sum: max(f(a, b, c), 0))
    for sign, kind in (("s", "int"), ("u", "unsigned")):
        signed = sign == "s"
        for name, first in (("max", int.__ge__), ("min", int.__le__)):
            # The predicates are shown in a word: the high one is 2.
            cases[f"first<{kind}>(__vib{name}_{sign}32)"] = (
                2, lambda x, y, f=first, s=signed: int(f(wrap(x, 32, s), wrap(y, 32, s))),
            )  # fmt: skip
            cases[f"firsts(__vib{name}_{sign}16x2)"] = (
                2,
                lambda x, y, f=first, s=signed: sum(
                    int(f(wrap(x >> at, 16, s), wrap(y >> at, 16, s))) << (at == 16) for at in (0, 16)
                ),
            )
    return cases


CASES = _cases()
SOURCE = """
#include <kjit/launch.h>
#include <kjit/tensor.h>

template <typename Word>
__device__ unsigned apply_first(Word (*f)(Word, Word, bool*), unsigned x, unsigned y) {
  bool is_first;
  f(static_cast<Word>(x), static_cast<Word>(y), &is_first);
  return is_first;
}
template <typename F>
__device__ unsigned apply_firsts(F f, unsigned x, unsigned y) {
  bool high, low;
  f(x, y, &high, &low);
  return high * 2u + low;
}

__global__ void apply(unsigned* out, const unsigned* x, const unsigned* y, const unsigned* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
CALLS
}

__global__ void evaluate(double* out, const double* in, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
REALS
}

void reals(kjit::TensorView out, kjit::TensorView x) {
  const int n = static_cast<int>(x.size(1));
  kjit::host::LaunchKernel((n + 127) / 128, 128, x.device())(
      evaluate, static_cast<double*>(out.data_ptr()), static_cast<const double*>(x.data_ptr()), n);
}

void run(kjit::TensorView out, kjit::TensorView x, kjit::TensorView y, kjit::TensorView z) {
  const int n = static_cast<int>(x.numel());
  const auto in = [](kjit::TensorView t) { return static_cast<const unsigned*>(t.data_ptr()); };
  kjit::host::LaunchKernel((n + 127) / 128, 128, x.device())(
      apply, static_cast<unsigned*>(out.data_ptr()), in(x), in(y), in(z), n);
}
"""


def call(name: str, operands: int) -> str:
    arguments = ", ".join(f"{operand}[i]" for operand in "xyz"[:operands])
    if name.startswith("first"):
        helper, _, function = name[:-1].partition("(")
        return f"apply_{helper}({function}, {arguments})"
    return f"{name}({arguments})"


special = torch.special
# By expression: the definition in float64, and for which arguments.
REALS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[float, float]]] = {
    "cyl_bessel_i0(x)": (special.i0, (-20, 20)),
    "cyl_bessel_i1(x)": (special.i1, (-20, 20)),
    "j1(x) * y0(x) - j0(x) * y1(x)": (lambda x: 2 / (torch.pi * x), (0.1, 20)),
    "erf(erfinv(x))": (lambda x: x, (-1, 1)),
    "erfc(erfcinv(x))": (lambda x: x, (1e-9, 2)),
    "erfc(erfcinv(exp(-x)))": (lambda x: torch.exp(-x), (0, 500)),
    "erfcx(x)": (special.erfcx, (-5, 30)),
    "normcdf(x)": (special.ndtr, (-10, 10)),
    "normcdfinv(x)": (special.ndtri, (1e-6, 1)),
    "norm(1, &x)": (torch.abs, (-9, 9)),
    "rnorm(1, &x)": (lambda x: 1 / x.abs(), (-9, 9)),
    "rnorm4d(x, 2, 4, x)": (lambda x: (2 * x * x + 20).rsqrt(), (-9, 9)),
    "fdivide(x, 3)": (lambda x: x / 3, (-9, 9)),
    "double(llmax(static_cast<long long>(x), 2))": (lambda x: x.trunc().clamp(min=2), (-9, 9)),
    "double(ullmin(static_cast<unsigned long long>(x), 2))": (lambda x: x.trunc().clamp(max=2), (0, 9)),
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    source = tmp_path_factory.mktemp("intrinsics") / "intrinsics.cuh"
    calls = [f"  out[{at} * n + i] = {call(name, operands)};" for at, (name, (operands, _)) in enumerate(CASES.items())]
    values = [
        f"  {{ const double x = in[{at} * n + i]; out[{at} * n + i] = {name}; }}" for at, name in enumerate(REALS)
    ]
    text = SOURCE.replace("CALLS", "\n".join(calls)).replace("REALS", "\n".join(values))
    source.write_text(text)
    exports = [("run", "run"), ("reals", "reals")]
    return kjit.load_jit("intrinsics", cuda_files=[source], cuda_wrappers=exports, extra_cuda_cflags=[*QUICKLY])


def test_functions_of_reals(module: Any) -> None:
    x = torch.stack([torch.linspace(low, high, 402, dtype=torch.float64)[1:-1] for _, (low, high) in REALS.values()])
    out = torch.zeros_like(x, device=DEVICE)
    module.reals(out, x.to(DEVICE))
    for got, argument, (name, (definition, _)) in zip(out.cpu(), x, REALS.items(), strict=True):
        torch.testing.assert_close(
            got, definition(argument), rtol=1e-10, atol=1e-13, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_packed_integers(module: Any) -> None:
    choose = random.Random(3)
    corners = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFF8000, 0x80007FFF, 0x807F807F, 0x7F80FF01, 0xFFFF0000]
    words = [[choose.choice([*corners, choose.getrandbits(32)]) for _ in range(300)] for _ in range(3)]
    x, y, z = (torch.tensor(each, dtype=torch.uint32, device=DEVICE) for each in words)
    out = torch.zeros(len(CASES), x.numel(), dtype=torch.uint32, device=DEVICE)
    module.run(out, x, y, z)
    got = out.cpu().tolist()
    wrong = [
        f"{name}({', '.join(map(hex, operands))}) = {found:#x}, not {want:#x}"
        for (name, (count, definition)), row in zip(CASES.items(), got, strict=True)
        for found, *operands in zip(row, *words[:count], strict=True)
        if found != (want := definition(*operands) & 0xFFFFFFFF)
    ]
    assert not wrong, "\n".join(wrong[:20])
