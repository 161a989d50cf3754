"""The machine of the tests of this folder: a GPU, or the simulator without one and with `KJIT_SIM=1`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kjit import env

SIMULATOR: env.Simulation | None = env.simulation() or (None if torch.cuda.is_available() else "sim")
"""The simulator that replaces the GPU, or None."""

QUICKLY = () if SIMULATOR is None else ("-O1", "-Xcompiler=-g1")
"""Flags that halve the time of the simulator's compiler: describing variables to debuggers takes a third of it."""

DEVICE = "cuda" if SIMULATOR is None else "cpu"
"""torch's name of the device."""


def many(count: int) -> int:
    """A number of rows or elements that keeps a GPU busy; a twentieth in the simulator, which needs fewer."""
    return count if SIMULATOR is None else count // 20


gpu_only = pytest.mark.skipif(SIMULATOR is not None, reason="is about what only a GPU has")


CAPABILITY = torch.cuda.get_device_capability() if SIMULATOR is None else (9, 0)
DEVICE_COUNT = torch.cuda.device_count() if SIMULATOR is None else 1


def properties(index: int = 0) -> Any:
    """The properties of a GPU that the tests need, as in torch; the simulated one is an H200."""
    if SIMULATOR is None:
        return torch.cuda.get_device_properties(index)
    return SimpleNamespace(
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        multi_processor_count=132,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=227 * 1024,
    )


def synchronize() -> None:
    """Wait for the GPU, which then reports errors of kernels; the simulator has reported them before."""
    if SIMULATOR is None:
        torch.cuda.synchronize()
