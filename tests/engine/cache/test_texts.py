"""kjit.engine.cache.texts: sources given as text, as files in the cache."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from kjit.engine.cache.texts import write_texts
from kjit.errors import CacheError


def test_each_text_is_a_file_of_its_name(cache_dir: Path) -> None:
    folder = write_texts(str(cache_dir), "op-1", {"op.cpp": b"int x;\n", "op.h": b"\n"})
    assert folder.is_relative_to(cache_dir)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"op.cpp": b"int x;\n", "op.h": b"\n"}


def test_on_a_full_disk_nothing_is_left_of_a_text_and_it_is_one_sentence(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_texts(str(cache_dir), "op-1", {"op.cpp": b"int x;\n"})

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(CacheError, match="No space is left on the disk"):
        write_texts(str(cache_dir), "op-1", {"op.cpp": b"int y;\n"})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"op.cpp": b"int x;\n"}


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ESTALE])
def test_a_rename_that_fails_where_the_text_is_there_is_no_error(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = os.replace

    def fail(one: str, other: str) -> None:
        if number == errno.ESTALE:
            real(one, other)  # which a network disk may have done all the same
        raise OSError(number, os.strerror(number))

    texts = {"op.cpp": b"int x;\n"}
    if number == errno.EBUSY:
        write_texts(str(cache_dir), "op-1", texts)
    monkeypatch.setattr(os, "replace", fail)
    folder = write_texts(str(cache_dir), "op-1", texts)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == texts
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)) if number == errno.EBUSY else nullcontext():
        write_texts(str(cache_dir), "op-2", texts)
