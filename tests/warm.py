"""Caches that begin with the state of the compilers and with the code that all modules share, so that tests need not
build them again."""

from __future__ import annotations

import contextlib
import shutil
from functools import cache
from pathlib import Path

from kjit import env
from kjit.engine.cache.locks import hold
from kjit.engine.miss import ensure_built
from kjit.errors import ToolchainError
from kjit.runtime import LAYOUT
from kjit.spec import Spec, Target, Variant

_SOURCES = Path(__file__).parent


@cache
def warm_up(*, simulator: bool = False) -> None:
    """Have the cache of the run hold what `begin` copies from it; of the simulator too, which takes some seconds."""
    ensure_built(Variant(Spec("warm", cpp_files=[_SOURCES / "warm.cpp"]), Target.cpu()))
    if simulator:
        # The workers of a run compile it once, not each.
        with hold(env.cache_dir() / "warm.lock", "warms up"), contextlib.suppress(ToolchainError):  # no CUDA headers
            ensure_built(Variant(Spec("warm", cuda_files=[_SOURCES / "warm.cuh"]), Target.sim()))


def begin(folder: Path, shared: Path) -> None:
    """Make `folder` a cache that knows the compilers and holds the code that all modules share, as `shared` does."""
    known = folder / LAYOUT
    known.mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    for name in ("compilers.json", "support"):
        source = shared / LAYOUT / name
        if source.is_dir():
            # Another process may be at work in a temporary folder.
            shutil.copytree(source, known / name, ignore=shutil.ignore_patterns("tmp*"))
        elif source.is_file():
            shutil.copy2(source, known / name)
