"""Shared parts of the wrappers of floating-point ops."""

from __future__ import annotations

from pathlib import Path

import torch

CSRC = Path(__file__).parents[1] / "csrc"
FP8 = torch.float8_e4m3fn
FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def check_dtype(op: str, dtype: torch.dtype) -> None:
    """Raise a `TypeError` where an op has no kernel for `dtype`."""
    if dtype not in FLOATS:
        raise TypeError(f"{op}: {dtype} is not one of {FLOATS}")
