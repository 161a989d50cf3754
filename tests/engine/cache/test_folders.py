"""kjit/engine/cache/folders.py: files that are written under a temporary name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kjit.engine.cache.folders import write_file


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ESTALE])
def test_a_rename_that_fails_where_the_content_is_there_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = os.replace

    def fail(one: str, other: str) -> None:
        if number == errno.ESTALE:
            real(one, other)  # which a network disk may have done all the same
        raise OSError(number, os.strerror(number))

    if number == errno.EBUSY:
        write_file(tmp_path / "op.cpp", b"int x;\n")
    monkeypatch.setattr(os, "replace", fail)
    write_file(tmp_path / "op.cpp", b"int x;\n")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"op.cpp": b"int x;\n"}


def test_a_file_that_cannot_be_renamed_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: str) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    (tmp_path / "op.cpp").write_bytes(b"before")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        write_file(tmp_path / "op.cpp", b"after")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"op.cpp": b"before"}
