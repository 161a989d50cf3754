"""Fixtures of the tests of single builds and of parallel ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.cache.store import Store


@pytest.fixture
def store(cache_dir: Path) -> Store:
    """The test's own cache."""
    del cache_dir
    return Store.open()
