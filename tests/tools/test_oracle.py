"""tools/oracle.py, for a few steps: after random edits each load is that of a clean build, and another is noticed."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def oracle(import_tool: Callable[[str], ModuleType]) -> ModuleType:
    return import_tool("oracle")


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 12), *(pytest.param(seed, 60, marks=pytest.mark.nightly) for seed in (2, 3, 4))]
)
def test_no_edit_leads_to_a_wrong_load(
    oracle: ModuleType, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", "")  # set by each life, and restored
    life = oracle.live(seed, lambda count: count >= steps)
    assert not oracle.is_wrong(life), "\n".join(life.told)
    assert life.loads >= steps


def test_a_wrong_load_ends_a_life(oracle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", "")
    monkeypatch.setattr(oracle, "loaded", lambda *_: 7)
    life = oracle.live(1, lambda count: count >= 2)
    assert oracle.is_wrong(life)
    assert "the compiler says" in life.told[-1]
