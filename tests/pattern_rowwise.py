"""Tests of pattern rowwise that apply to the GPU and to the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from guarded import Guarded

EXPORTS = [
    ("rms_norm", "RmsNorm<bf16_t>::run"),
    ("add_rms_norm", "AddRmsNorm<bf16_t>::run"),
    ("layer_norm", "LayerNorm<fp32_t>::run"),
    ("softmax", "Softmax<fp32_t>::run"),
    ("log_softmax", "LogSoftmax<fp16_t>::run"),
    ("argmax", "ArgMaxOfRow<bf16_t>::run"),
    ("row_max", "MaxOfRow<double>::run"),
    ("quantise", "Quantise<bf16_t>::run"),
    ("silu_mul_quantise", "SiluMulQuantise<bf16_t>::run"),
    ("cross_entropy", "CrossEntropy<bf16_t>::run"),
    ("qk_norm", "QkNorm<bf16_t>::run"),
    ("qk_norm_across", "QkNorm<bf16_t>::run_across"),
    ("every_role_0", "EveryRole<fp32_t, bf16_t, uint8_t>::run"),
    ("every_role_1", "EveryRole<bf16_t, fp32_t, fp16_t>::run"),
]
"""The ops of rowwise_cases.h."""

MIXES = [
    (torch.float32, torch.bfloat16, torch.uint8),
    (torch.bfloat16, torch.float32, torch.float16),
]

# Nothing, less than a vector, around the ends of vectors, of what a warp and a block have, and past what a cluster has
# in registers; a few rows and many.
SHAPES = [
    (3, 0),
    (70, 1),
    (5, 7),
    (33, 8),
    (130, 64),
    (40, 96),
    (9, 128),
    (33, 129),
    (3, 512),
    (40, 1000),
    (2, 4096),
    (40, 4097),
    (3, 8200),
    (1, 16384),
    (2, 33_000),
    (1, 66_000),
    (1, 66_001),
]

MANY = (5600, 768)
"""More rows than a GPU works on at a time."""

HUGE = (1, 530_000)
"""A row that no cluster holds."""

OFFSETS = [0, 3]
"""Elements ahead of a tensor in its memory."""


class Placed:
    """A tensor at an offset in memory that nobody may write otherwise."""

    def __init__(self, values: torch.Tensor, offset: int, device: str) -> None:
        guarded = Guarded(values.dtype, *values.shape, offset=offset, device=device)
        guarded.tensor.copy_(values)
        self.tensor = guarded.tensor
        self._guarded = guarded

    def is_intact(self) -> bool:
        return self._guarded.is_intact()


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16, spread: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, dtype=torch.float64) * spread).to(dtype)


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


def _close(result: torch.Tensor, right: torch.Tensor, rounding: float) -> None:
    torch.testing.assert_close(result.double().cpu(), right.double(), rtol=rounding, atol=rounding, equal_nan=True)


def check_rms_norm(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x, weight = _random(rows, columns), _random(columns)
    given, column = Placed(x, offset, device), Placed(weight, offset, device)
    out = Placed(torch.zeros_like(x), offset, device)
    module.rms_norm(given.tensor, column.tensor, 1e-6, out.tensor)
    _close(out.tensor, _normed(x, weight, 1e-6), 1e-2)
    assert torch.equal(given.tensor.cpu(), x)
    assert given.is_intact() and column.is_intact() and out.is_intact()
    module.rms_norm(given.tensor, column.tensor, 1e-6, given.tensor)  # in place
    _close(given.tensor, _normed(x, weight, 1e-6), 1e-2)


def check_add_rms_norm(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x, residual, weight = _random(rows, columns), _random(rows, columns), _random(columns)
    given, sums = Placed(x, offset, device), Placed(residual, 0, device)
    module.add_rms_norm(given.tensor, sums.tensor, weight.to(device), 1e-6)
    _close(sums.tensor, x.double() + residual.double(), 1e-2)
    _close(given.tensor, _normed(x.double() + residual.double(), weight, 1e-6), 1e-2)
    assert given.is_intact() and sums.is_intact()


def check_layer_norm(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x, weight = _random(rows, columns, dtype=torch.float32) + 1000, _random(columns, dtype=torch.float32)
    bias = _random(columns, dtype=torch.float32)
    given, out = Placed(x, offset, device), Placed(torch.zeros_like(x), offset, device)
    for column in (None, bias):
        module.layer_norm(
            given.tensor, weight.to(device), None if column is None else column.to(device), 1e-5, out.tensor
        )
        right = torch.nn.functional.layer_norm(
            x.double(), (columns,), weight.double(), None if column is None else column.double(), 1e-5
        )
        _close(out.tensor, right, 2e-3)  # the mean of numbers near 1000 is rounded to 6e-5
    assert out.is_intact()


def check_softmax(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x = _random(rows, columns, dtype=torch.float32, spread=8)
    given, out = Placed(x, offset, device), Placed(torch.zeros_like(x), offset, device)
    module.softmax(given.tensor, out.tensor)
    _close(out.tensor, torch.softmax(x.double(), -1), 2e-6)
    assert out.is_intact()


def check_log_softmax(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x = _random(rows, columns, dtype=torch.float16, spread=8)
    given, out = Placed(x, offset, device), Placed(torch.zeros_like(x), offset, device)
    module.log_softmax(given.tensor, out.tensor)
    _close(out.tensor, torch.log_softmax(x.double(), -1), 2e-3)
    assert out.is_intact()


def check_argmax(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    if columns == 0:  # as torch.argmax has it
        return
    x = _random(rows, columns)  # of bfloat16, so that the largest value is there more than once
    out = Placed(torch.zeros(rows, dtype=torch.int64), 0, device)
    module.argmax(Placed(x, offset, device).tensor, out.tensor)
    largest = x.max(-1, keepdim=True).values
    first = torch.where(x == largest, torch.arange(columns), columns).min(-1).values
    assert torch.equal(out.tensor.cpu(), first)
    assert out.is_intact()


def check_row_max(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x = _random(rows, columns, dtype=torch.float64)
    out = Placed(torch.zeros(rows, dtype=torch.float64), 0, device)
    module.row_max(Placed(x, offset, device).tensor, out.tensor)
    right = torch.full((rows,), float("-inf"), dtype=torch.float64) if columns == 0 else x.amax(-1)
    assert torch.equal(out.tensor.cpu(), right)
    assert out.is_intact()


def check_quantise(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x = _random(rows, columns)
    x[0] = 0  # a row without a scale
    _check_quantised(module, x, columns, offset, device)
    if columns % 128 == 0 and columns > 0:
        _check_quantised(module, x, 128, offset, device)


def _check_quantised(module: Any, x: torch.Tensor, size: int, offset: int, device: str) -> None:
    rows, columns = x.shape
    groups = columns // size if size > 0 else 1
    out = Placed(torch.zeros(rows, columns, dtype=torch.float8_e4m3fn), offset, device)
    scale = Placed(torch.zeros(rows, groups), 0, device)
    module.quantise(Placed(x, offset, device).tensor, size, out.tensor, scale.tensor)
    _check_scaled(out.tensor, scale.tensor, x.double().view(rows, groups, size))
    assert out.is_intact() and scale.is_intact()


def _check_scaled(out: torch.Tensor, scale: torch.Tensor, right: torch.Tensor) -> None:
    """`right` has the groups of each row along its last dimension. A value of fp8 is rounded to 1/16 of itself."""
    largest = right.abs().amax(-1) if right.shape[-1] > 0 else torch.full(right.shape[:-1], float("-inf")).double()
    _close(scale.view(largest.shape), largest / 448, 1e-2 if right.numel() == 0 else 1e-5)
    values = out.cpu().float().double().view(right.shape) * scale.cpu().double().view(*right.shape[:-1], 1)
    if right.numel() > 0:
        assert ((values - right).abs() <= right.abs() / 16 + largest[..., None] / 448 * 2.0**-9).all()


def check_silu_mul_quantise(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    x = _random(rows, 2 * columns)
    out = Placed(torch.zeros(rows, columns, dtype=torch.float8_e4m3fn), offset, device)
    scale = Placed(torch.zeros(rows), 0, device)
    module.silu_mul_quantise(Placed(x, offset, device).tensor, out.tensor, scale.tensor)
    gate, up = x.double().chunk(2, -1)
    _check_scaled(out.tensor, scale.tensor, torch.nn.functional.silu(gate) * up)
    assert out.is_intact() and scale.is_intact()


def check_cross_entropy(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    if columns == 0:
        return
    x, target = _random(rows, columns, spread=4), torch.randint(0, columns, (rows,))
    target[-1] = -100
    loss = Placed(torch.zeros(rows), 0, device)
    module.cross_entropy(Placed(x, offset, device).tensor, target.to(device), loss.tensor)
    _close(loss.tensor, torch.nn.functional.cross_entropy(x.double(), target, reduction="none"), 1e-4)
    assert loss.is_intact()


def check_qk_norm(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    q, k = _random(rows, 2, columns), _random(rows, 1, columns)
    q_weight, k_weight = _random(columns), _random(columns)
    q_out, k_out = Placed(q, offset, device), Placed(k, offset, device)
    module.qk_norm(q_out.tensor, k_out.tensor, q_weight.to(device), k_weight.to(device), 1e-6)
    _close(q_out.tensor, _normed(q, q_weight, 1e-6), 1e-2)
    _close(k_out.tensor, _normed(k, k_weight, 1e-6), 1e-2)
    assert q_out.is_intact() and k_out.is_intact()


def check_qk_norm_across(module: Any, rows: int, columns: int, offset: int, device: str) -> None:
    of_k = columns // 4 // 8 * 8
    qkv, q_weight, k_weight = _random(rows, columns + 2 * of_k), _random(columns), _random(of_k)
    out = Placed(qkv, offset, device)
    module.qk_norm_across(out.tensor, q_weight.to(device), k_weight.to(device), 1e-6)
    q, k, v = qkv.split([columns, of_k, of_k], -1)
    right = torch.cat([_normed(q, q_weight, 1e-6), _normed(k, k_weight, 1e-6), v.double()], -1)
    _close(out.tensor, right, 1e-2)
    assert out.is_intact()


CHECKS: dict[str, Callable[[Any, int, int, int, str], None]] = {
    "rms_norm": check_rms_norm,
    "add_rms_norm": check_add_rms_norm,
    "layer_norm": check_layer_norm,
    "softmax": check_softmax,
    "log_softmax": check_log_softmax,
    "argmax": check_argmax,
    "row_max": check_row_max,
    "quantise": check_quantise,
    "silu_mul_quantise": check_silu_mul_quantise,
    "cross_entropy": check_cross_entropy,
    "qk_norm": check_qk_norm,
    "qk_norm_across": check_qk_norm_across,
}


def check_every_role(
    module: Any, number: int, rows: int, columns: int, offsets: tuple[int, int], device: str, *, absent: bool
) -> None:
    """Tensors of every role and several dtypes: results are exact, and nothing beside them is touched."""
    of_t, of_u, of_v = MIXES[number]
    of_inputs, of_results = offsets
    x = Guarded(of_t, rows, columns, offset=of_inputs, device=device)
    y = Guarded(of_u, rows, columns, offset=of_inputs, device=device)
    z = Guarded(of_v, rows, columns, offset=of_results, device=device)
    weight = Guarded(of_t, columns, offset=of_inputs, device=device)
    bias = Guarded(of_u, columns, offset=of_results, device=device)
    shift = Guarded(of_u, rows, device=device)
    gate = Guarded(of_v, rows, device=device)
    count = Guarded(of_u, rows, device=device)
    first = Guarded(torch.int64, rows, device=device)
    out = Guarded(of_t, rows, columns, offset=of_results, device=device)
    even = Guarded(torch.bool, rows, columns, offset=of_results, device=device)
    guarded = (x, y, z, weight, bias, shift, gate, count, first, out, even)
    a, b, c, w, d, s, g, n = (each.tensor.float().cpu().clone() for each in (x, y, z, weight, bias, shift, gate, count))
    if absent:
        b, d, g = torch.zeros_like(b), torch.zeros_like(d), torch.zeros_like(g)
    values = a + b + c * w
    largest = values.amax(-1) if columns > 0 else torch.full((rows,), float("-inf"))
    of_row = largest + s + g + columns % 2
    numbers = torch.where(values != 0, torch.arange(columns), 2**31 - 1)
    right_first = numbers.amin(-1) if columns > 0 else torch.full((rows,), 2**31 - 1)
    optional = [None if absent else each.tensor for each in (y, bias, gate)]
    getattr(module, f"every_role_{number}")(
        x.tensor,
        optional[0],
        z.tensor,
        weight.tensor,
        optional[1],
        shift.tensor,
        optional[2],
        count.tensor,
        first.tensor,
        out.tensor,
        even.tensor,
    )
    assert torch.equal(first.tensor.cpu(), right_first)
    assert torch.equal(count.tensor.float().cpu(), n + (values != 0).sum(-1) % 2)
    assert torch.equal(z.tensor.float().cpu(), c + b + g[:, None])
    assert torch.equal(out.tensor.float().cpu(), a + w + d + of_row[:, None] + s[:, None])
    assert torch.equal(even.tensor.cpu(), (torch.arange(columns) % 2 == 0).expand(rows, columns))
    assert all(each.is_intact() for each in guarded)


def check_special_rows(module: Any, columns: int, device: str) -> None:
    """NaN and infinities, as torch has them."""
    nan, inf = float("nan"), float("inf")
    x = torch.randn(8, columns)
    x[0, columns // 2] = nan
    x[1] = -inf
    x[2, columns - 1] = inf
    x[3, :-1] = -inf
    x[4, 0], x[4, columns - 1] = nan, nan
    x[5] = nan
    x[6] = 0
    x[7] = inf
    given, out = x.to(device), torch.empty(8, columns, device=device)
    module.softmax(given, out)
    _close(out, torch.softmax(x.double(), -1), 2e-6)
    half = torch.empty(8, columns, device=device, dtype=torch.float16)
    module.log_softmax(given.half(), half)
    right = torch.log_softmax(x.double(), -1)
    _close(half, torch.where(x.isneginf().all(-1, keepdim=True), nan, right), 2e-2)
    index = torch.empty(8, device=device, dtype=torch.int64)
    module.argmax(given.bfloat16(), index)
    largest = torch.where(x.isnan(), inf, x.bfloat16().double())
    of_nan = x.isnan().any(-1, keepdim=True)
    chosen = torch.where(of_nan, x.isnan(), largest == largest.amax(-1, keepdim=True))
    assert torch.equal(index.cpu(), torch.where(chosen, torch.arange(columns), columns).amin(-1))
    largest_of_row = torch.empty(8, device=device, dtype=torch.float64)
    module.row_max(given.double(), largest_of_row)
    torch.testing.assert_close(largest_of_row.cpu(), x.double().amax(-1), rtol=0, atol=0, equal_nan=True)
