"""Sources given as text, as files in the cache.

In a file of the cache that is called by its content, so that it is a source as any other from there on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kjit.engine.cache.folders import make_private
from kjit.engine.cache.store import Store


def write_texts(cache: str, folder: str, texts: Mapping[str, bytes]) -> Path:
    """Write the files of a module; another process that reads one meanwhile finds it whole.

    Args:
        cache: the folder of the cache. Where that cannot be written, a temporary one serves.
        folder: the name of theirs, inside of the cache.
        texts: what each file holds, by its name.

    Returns:
        The folder that they are in.

    Raises:
        CacheError: the disk is full, or the cache belongs to somebody else.
    """
    store = Store.open(Path(cache)).writable()
    path = store.texts / folder
    make_private(path)
    for name, text in texts.items():
        handle, being_written = tempfile.mkstemp(dir=path)
        try:
            with open(handle, "wb") as file:
                file.write(text)
            os.replace(being_written, path / name)
        except OSError:
            os.unlink(being_written)
            raise
        store.note_text(len(text))
    return path
