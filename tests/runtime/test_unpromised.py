"""A torch that lacks an undocumented part which ops rely on is an error where the first op is defined."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import kjit
from kjit.errors import KjitError
from kjit.runtime import torch_op


@pytest.fixture(autouse=True)
def _asked_again() -> Iterator[None]:
    torch_op.require_torch.cache_clear()
    yield
    torch_op.require_torch.cache_clear()


def test_this_torch_has_all_of_it() -> None:
    torch_op.require_torch()


def test_a_torch_without_some_of_it_is_named_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    monkeypatch.delattr(torch._C, "_is_tracing")
    monkeypatch.delattr(torch.library.Library, "_destroy")

    def double(x: torch.Tensor) -> None:
        x.mul_(2)

    with pytest.raises(KjitError) as caught:
        kjit.torch_op(name="unpromised::double", mutates_args=["x"])(double)
    assert caught.value.message == (
        "torch 2.99.0 has no torch._C._is_tracing, torch.library.Library._destroy, which ops of kjit"
        f" {kjit.__version__} need."
    )
    assert caught.value.hint is not None
    assert f"pip install 'torch=={torch_op.NEWEST_TORCH}.*'" in caught.value.hint
    assert not hasattr(torch.ops.unpromised, "double")
