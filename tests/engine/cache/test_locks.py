"""Locks: a forked child has none of its parent's; tests/engine/cache/test_store.py has the locks themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kjit.engine.cache import locks
from kjit.engine.cache.staging import temporary_folder

# A thread asks for a lock; then this process forks a worker that outlives it.
_FORK = """
import os, sys, threading
from pathlib import Path
from kjit.engine.cache import locks
from kjit.engine.cache.staging import temporary_folder

kind, path = sys.argv[1:]
asked, real = threading.Event(), locks.try_lock

def try_lock(handle):
    taken = real(handle)
    asked.set()
    return taken

def build():
    with locks.hold(Path(path), "it") if kind == "lock" else temporary_folder(path):
        os.write(1, b"held\\n")
        threading.Event().wait()

locks.try_lock = try_lock
threading.Thread(target=build, daemon=True).start()
if kind == "lock":
    asked.wait()
else:
    os.read(0, 1)
if os.fork() == 0:
    os.write(1, b"forked\\n")
    os.read(0, 1)
    os._exit(0)
threading.Event().wait()
"""


@contextmanager
def forking(kind: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of `_FORK`; its worker lives until the block ends."""
    command = [sys.executable, "-c", _FORK, kind, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[bytes], *words: str) -> None:
    assert process.stdout is not None
    assert sorted(process.stdout.readline().decode().strip() for _ in words) == sorted(words)


def is_free(path: Path) -> bool:
    handle = locks.open_lock(path)
    try:
        return locks.try_lock(handle) is True
    finally:
        locks.release(handle)


@pytest.mark.parametrize("held_at_the_fork", [True, False])
def test_a_child_of_a_killed_holder_keeps_no_lock(tmp_path: Path, held_at_the_fork: bool) -> None:
    path = tmp_path / "it.lock"
    with ExitStack() as stack:
        with ExitStack() as ours:
            if not held_at_the_fork:
                # Then the file is open in the parent at the fork, and the parent gets its lock later.
                handle = locks.open_lock(path)
                ours.callback(locks.release, handle)
                assert locks.try_lock(handle)
            process = stack.enter_context(forking("lock", path))
            wait_for(process, *(["held", "forked"] if held_at_the_fork else ["forked"]))
        if not held_at_the_fork:
            wait_for(process, "held")
        assert not is_free(path)
        process.kill()
        process.wait()
        assert is_free(path)


def test_a_child_of_a_killed_process_does_not_keep_its_temporary_folder(tmp_path: Path) -> None:
    with forking("folder", tmp_path) as process:
        wait_for(process, "held")
        assert process.stdin is not None
        process.stdin.write(b"x")
        wait_for(process, "forked")
        (theirs,) = tmp_path.glob("kjit-*")
        process.kill()
        process.wait()
        with temporary_folder(str(tmp_path)):
            assert not theirs.exists()


def test_a_child_that_comes_out_of_the_block_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "it.lock"
    with ExitStack() as block:
        block.enter_context(locks.hold(path, "it"))
        child = os.fork()
        if child == 0:
            try:
                block.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert not is_free(path)
    assert is_free(path)
