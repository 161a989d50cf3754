"""Fixtures of the tests of single builds and of parallel ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.cache.store import Store
from kjit.engine.compile import run


@pytest.fixture
def store(cache_dir: Path) -> Store:
    """The test's own cache."""
    del cache_dir
    return Store.open()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short grace period for compilers that are to end: one that waits for a pipe ignores the request."""
    monkeypatch.setattr(run, "_GRACE_S", 0.05)
