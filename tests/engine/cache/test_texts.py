"""kjit.engine.cache.texts: sources given as text, as files in the cache."""

from __future__ import annotations

import errno
import os
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
