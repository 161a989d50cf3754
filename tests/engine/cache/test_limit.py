"""KJIT_CACHE_MAX_SIZE: the choice of artifacts to remove, those that must stay, and the cost of counting."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stores import age, key_of, publish

from kjit.engine.cache import limit
from kjit.engine.cache.contents import Entry
from kjit.engine.cache.store import Artifact, Store
from kjit.errors import UsageError
from kjit.spec import Spec

WriteOp = Callable[..., Spec]
KIB = 1024


class Cache:
    """A cache that gets artifacts of 100 KiB, each of an op of its own."""

    def __init__(self, project: Path, write_op: WriteOp) -> None:
        self.store = Store.open()
        self._project = project
        self._write_op = write_op

    def add(self, op: str, hours: float = 0.0) -> Artifact:
        """Publish an artifact, last used that many hours ago."""
        artifact = publish(self.store, key_of(self._write_op(self._project, op)), os.urandom(100 * KIB))
        age(artifact, hours * 3600)
        return artifact

    @property
    def ops(self) -> set[str]:
        return {entry.op for entry in Store.open().entries()}


@pytest.fixture
def cache(tmp_path: Path, answer_op: WriteOp, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache whose artifacts are counted whenever one is added."""
    del cache_dir
    monkeypatch.setattr(limit, "_PAUSE_S", -1.0)
    return Cache(tmp_path / "project", answer_op)


def set_limit(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KJIT_CACHE_MAX_SIZE", text)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each time that all artifacts were listed."""
    counted: list[int] = []
    entries = Store.entries

    def count(self: Store) -> Iterator[Entry]:
        counted.append(1)
        return entries(self)

    monkeypatch.setattr(Store, "entries", count)
    return counted


def test_what_was_not_used_for_longest_goes_and_that_is_said(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for op, hours in (("b", 30), ("a", 50), ("c", 2), ("d", 40)):
        cache.add(op, hours)
    set_limit(monkeypatch, "450K")
    cache.add("e")
    assert cache.ops == {"b", "c", "e"}  # two went: below the limit there shall be some air
    assert "removed the 2 least recently used artifacts (0.2 MiB) from the cache" in caplog.text


def test_what_was_just_added_stays_even_alone_above_the_limit(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "_SPARED_S", -3600.0)
    set_limit(monkeypatch, "1K")
    cache.add("a")
    assert cache.add("b").library.is_file()
    assert cache.ops == {"b"}


def test_what_was_used_within_the_hour_stays_and_that_is_said(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    set_limit(monkeypatch, "150K")
    for op in ("a", "b", "c"):
        cache.add(op, 0.9)
    assert cache.ops == {"a", "b", "c"}
    assert "the rest was used within the last hour" in caplog.text


def test_a_use_counts_and_not_the_age(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = cache.add("old", 100)
    cache.add("new", 10)
    spec = Spec("old", cpp_files=[tmp_path / "project" / "csrc" / "old.cpp"])
    assert cache.store.find(key_of(spec)).artifact is not None
    assert (old.folder / "record.jsonl").stat().st_mtime > time.time() - 3600
    set_limit(monkeypatch, "250K")
    cache.add("c")
    assert cache.ops == {"old", "c"}


def test_what_is_used_while_it_is_chosen_stays(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    used = cache.add("a", 50)
    cache.add("b", 40)
    set_limit(monkeypatch, "250K")
    sort = sorted

    def sort_and_use(*arguments: object, **named: object) -> list[object]:
        os.utime(used.folder / "record.jsonl")
        return sort(*arguments, **named)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(limit, "sorted", sort_and_use, raising=False)
    cache.add("c")
    assert cache.ops == {"a", "c"}


def test_they_are_counted_once_in_a_while(cache: Cache, monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> None:
    monkeypatch.setattr(limit, "_PAUSE_S", 10.0)
    set_limit(monkeypatch, "1M")
    for op in ("a", "b"):
        cache.add(op)
    assert len(counts) == 1
    counted, before = cache.store.layout / limit.COUNTED, time.time() - 11
    os.utime(counted, (before, before))
    cache.add("c")
    assert len(counts) == 2


def test_a_count_that_cannot_be_noted_does_not_stop_a_build(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store.writable()
    (cache.store.layout / limit.COUNTED).symlink_to("/nowhere/at-all")
    set_limit(monkeypatch, "1K")
    assert cache.add("a").library.is_file()


def test_a_mistake_in_the_limit_is_reported_before_anything_is_compiled(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, "plenty")
    with pytest.raises(UsageError, match="KJIT_CACHE_MAX_SIZE is 'plenty'"):
        cache.store.writable()


@pytest.mark.parametrize(
    ("text", "size"),
    [("5G", 5 << 30), ("500M", 500 << 20), ("1.5 GiB", 3 << 29), ("10kb", 10 << 10), ("123", 123), ("2T", 2 << 40)],
)
def test_sizes_are_written_with_units(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    from kjit import env

    set_limit(monkeypatch, text)
    assert env.cache_max_size() == size
