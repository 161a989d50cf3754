"""Softmax against PyTorch's in float64."""

from __future__ import annotations

from typing import Any

import torch

import kjit.testing
from kjit.ops.softmax import _softmax, softmax


def reference(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.softmax(x * scale, -1)


def make_inputs(shape: tuple[int, ...], device: str) -> dict[str, Any]:
    return {"x": kjit.testing.random_tensor(shape, torch.bfloat16, device), "scale": 0.7}


class TestSoftmax(kjit.testing.OpTest, op=softmax, module=_softmax, reference=reference, inputs=make_inputs):
    shape = (3, 1001)
    shapes = ((0, 64), (3, 0), (1, 1), (65, 128), (3, 1023), (2, 4096), (1, 16_384), (1, 151_936))
    in_place = ("x", "out")
    test_compiles_without_a_gpu = None
