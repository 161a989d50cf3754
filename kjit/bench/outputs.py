"""Comparison of the results of a benchmark's providers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

_CHUNK = 2**24  # elements compared at a time

# The allowed difference of results by dtype, relative to the largest one: from another order of sums, approximations
# and one more rounding. Integers must be equal.
_ALLOWED = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
_ALLOWED_OF_8_BITS = 0.13  # two steps of fp8


class Agreement(NamedTuple):
    """The comparison of two providers' results.

    Attributes:
        matches: whether they differ by no more than rounding.
        difference: the largest one, as a part of the largest value; infinity where shapes differ, or where one has NaN
            and the other has none.
    """

    matches: bool
    difference: float


def compare(result: object, reference: object) -> Agreement | None:
    """Compare what two providers returned: a tensor, or several in a tuple or a list. None where one returned none."""
    ours, theirs = [*_tensors(result)], [*_tensors(reference)]
    if not ours or not theirs:
        return None
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return Agreement(False, math.inf)
    pairs = [*zip(ours, theirs, strict=True)]
    differences = [_difference(*pair) for pair in pairs]
    allowed = [max(map(_allowed, pair)) for pair in pairs]
    return Agreement(all(map(float.__le__, differences, allowed)), max(differences))


def _tensors(result: object) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(result, torch.Tensor):
        yield result.detach()
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _tensors(part)


def _allowed(tensor: torch.Tensor) -> float:
    if not tensor.dtype.is_floating_point:
        return 0.0
    return _ALLOWED.get(str(tensor.dtype).removeprefix("torch."), _ALLOWED_OF_8_BITS)


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    import torch

    largest = apart = 0.0
    wide = torch.float64 if torch.float64 in (one.dtype, other.dtype) else torch.float32
    if not one.dtype.is_floating_point:
        wide = torch.float64
    one, other = one.reshape(-1), other.reshape(-1)
    for begin in range(0, one.numel(), _CHUNK):
        ours, theirs = (each[begin : begin + _CHUNK].to(wide) for each in (one, other))
        is_same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        between = torch.where(is_same, 0.0, (ours - theirs).abs()).nan_to_num(nan=math.inf)
        apart = max(apart, between.max().item())
        largest = max(largest, torch.where(theirs.isfinite(), theirs.abs(), 0.0).max().item())
    return apart / largest if largest > 0 else math.inf if apart > 0 else 0.0
