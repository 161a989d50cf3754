"""What the tests of kjit's own ops share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from quick_simulator import compile_quickly, is_for_users_flags


@pytest.fixture(scope="module", autouse=True)
def _quick_simulator(pytestconfig: pytest.Config) -> Iterator[None]:
    """Without a GPU, kernels are compiled quickly."""
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available() and not is_for_users_flags(pytestconfig):
            compile_quickly(patch)
        yield
