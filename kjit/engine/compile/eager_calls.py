"""The build of the C++ code that runs eager calls; `kjit.runtime.native` explains it and loads it.

`kjit build` compiles it ahead of use; `kjit build --out` puts it into the bundle, for the torch and the Python that
run the command.
"""

from __future__ import annotations

import contextlib
import logging
import sysconfig
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.engine.cache import recall_writer
from kjit.engine.cache.artifact import Artifact
from kjit.engine.cache.store import Store
from kjit.engine.key.key import Key
from kjit.engine.toolchain import cpu
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime import native
from kjit.runtime.native import NAME as NAME
from kjit.spec import Spec, Target, Variant

if TYPE_CHECKING:
    from kjit.runtime.native import Native

_log = logging.getLogger("kjit")


def find() -> Native | None:
    """Load the C++ from the cache; no compiler runs."""
    variant = _variant_for(Target.cpu())
    try:
        store = Store.open()
        artifact = store.fetch(Key.of(variant, Toolchain.for_target(variant.target))).artifact
    except KjitError as error:
        _log.debug("eager calls run in Python: %s", error)
        return None
    if artifact is None:
        return None
    _remember(variant, store, artifact)
    return native.load_native(artifact.library_path)


def build() -> Native | None:
    """Load the C++, compiled if it is not in the cache; None if that fails, with the reason in the log."""
    return native.find() or compile_and_load()


def compile_and_load() -> Native | None:
    """Compile and load the C++; None if that fails, with the reason in the log."""
    store = Store.open()
    artifact = _compile(Target.cpu(), store, must_last=True)
    if artifact is None:
        return None
    _remember(_variant_for(Target.cpu()), store, artifact)
    return native.load_native(artifact.library_path)


def _remember(variant: Variant, store: Store, artifact: Artifact) -> None:
    """Record it for the torch and the Python that run now.

    The versions of both are in the name of the record. A torch that was built again, with the same version, has other
    libraries. (They need two calls of `stat`; the headers are more than two hundred files.)
    """
    torch_home, _ = native.installed()
    includes = f"{torch_home}/include", str(python_header().parent)
    libraries = f"{torch_home}/lib/libc10.so", f"{torch_home}/lib/libtorch_python.so"
    recall_writer.remember(
        variant,
        store,
        artifact,
        name=native.request(str(store.root)),
        installed=recall_writer.Installed(includes, libraries),
    )


def _compile(
    target: Target, store: Store, *, must_last: bool, cancel: threading.Event | None = None
) -> Artifact | None:
    if _has_no_lock():
        _log.info("eager calls run in Python: the C++ does not support free-threaded Python")
        return None
    header = python_header()
    if not header.is_file():
        _log.info("eager calls run in Python: %s does not exist (package python3-dev)", header)
        return None

    from kjit.engine import builder, outcomes  # needed for a compile only

    def say(started: outcomes.Started) -> None:
        _log.info("kjit compiles the C++ for eager calls: %s", started.variant.label)

    try:
        # A cache that is lost with the process is not worth two seconds of each process.
        store = store.writable(must_last=must_last)
    except KjitError as error:
        _log.info("eager calls run in Python: %s", error)
        return None
    try:
        return builder.build(_variant_for(target), store, on_start=say, cancel=cancel).artifact
    except KjitError as error:
        _log.warning("eager calls run in Python, which is slower: %s", error)
    except CancelledError:
        pass
    return None


@contextlib.contextmanager
def building(store: Store, *, to_ship: bool) -> Iterator[list[tuple[Variant, Artifact]]]:
    """Compile the C++ in parallel with the body of this context, and cancel that if the body fails.

    Args:
        to_ship: compile for every CPU of this kind; the cache may be temporary.

    Yields:
        A list that contains the C++ at the end, if it can be compiled.
    """
    level = cpu.lowest_level() if to_ship else None
    if to_ship and level is None:  # a bundle serves no CPU of this kind
        yield []
        return
    target = Target.cpu() if level is None else Target.cpu(level.name)
    cancel = threading.Event()
    built: list[tuple[Variant, Artifact]] = []

    def work() -> None:
        artifact = _compile(target, store, must_last=not to_ship, cancel=cancel)
        if artifact is not None:
            built.append((_variant_for(target), artifact))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield built
    except BaseException:
        cancel.set()
        raise
    finally:
        thread.join()


def _has_no_lock() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def python_header() -> Path:
    """The expected location of `Python.h`."""
    return Path(sysconfig.get_path("include"), "Python.h")


@lru_cache(maxsize=2)
def _variant_for(target: Target) -> Variant:
    """The C++ for the running torch and Python."""
    import torch

    parts = native.parts(str(Path(torch.__file__).parent), str(python_header().parent))
    return Variant(Spec(NAME, *native.arguments(), **parts), target)
