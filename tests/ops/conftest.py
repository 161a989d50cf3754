"""Fixtures of the tests of kjit's own ops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from quick_simulator import compile_quickly, is_for_users_flags
from warm import warm_up


@pytest.fixture(scope="module", autouse=True)
def _quick_simulator(pytestconfig: pytest.Config) -> Iterator[None]:
    """Without a GPU, kernels are compiled quickly, for a simulator that is compiled once."""
    if not torch.cuda.is_available():
        warm_up(simulator=True)
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available() and not is_for_users_flags(pytestconfig):
            compile_quickly(patch)
        yield
