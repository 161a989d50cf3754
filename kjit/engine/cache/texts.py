"""Sources given as text: files in the cache, named by their content and then used like any other source."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kjit.engine.cache.folders import NO_SPACE, disk_full, make_private
from kjit.engine.cache.store import Store


def write_texts(cache: str, folder: str, texts: Mapping[str, bytes]) -> Path:
    """Write the files of a module, atomically.

    Args:
        cache: the folder of the cache. If that cannot be written, a temporary one is used.
        folder: the name of their folder in the cache.
        texts: the content of each file, by name.

    Returns:
        The path of their folder.

    Raises:
        CacheError: the disk is full, or the cache belongs to somebody else.
    """
    store = Store.open(Path(cache)).writable()
    path = store.texts / folder
    make_private(path)
    try:
        for name, text in texts.items():
            _replace(path / name, text)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(store.root) from None
        raise
    return path


def _replace(path: Path, text: bytes) -> None:
    """Write a file under a temporary name, and rename it."""
    handle, being_written = tempfile.mkstemp(dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(text)
        os.replace(being_written, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(being_written)
        # A network disk may fail to rename to a file that is in use, or after it has renamed.
        if not _holds(path, text):
            raise


def _holds(path: Path, text: bytes) -> bool:
    try:
        return path.read_bytes() == text
    except OSError:
        return False
