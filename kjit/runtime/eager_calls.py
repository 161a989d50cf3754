"""Where is the C++ that runs eager calls, and when is it compiled?

An op's function asks its tensors some ten questions before it may pass PyTorch by, and looks its module up in two
dictionaries. In Python that is more than what the call of the kernel takes. In C++ (`csrc/torch/eager_calls.cpp`) it is
a third: compiled in a second and a half, once for each version of torch and of Python, like an op's module and kept in
the same cache. What calls do is the same, and so all works without it.

Calls run in Python at first. The first call of each op, until one finds it, looks where its own modules may come from:
in the bundle beside its wrapper, in the cache if this process uses that, and compiles it if this process compiles.
`kjit build` does that ahead of use, and `kjit build --out` puts what fits the torch and the Python of then into the
bundle. So calls stay in Python where nothing else is compiled either (with another torch than the bundle's, with
`KJIT_NO_COMPILE`), and where this cannot be (without `Python.h`, and in a Python without a global lock, on which the
C++ relies).
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import logging
import os
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from kjit.build import bundle, cpu
from kjit.build.artifact import Artifact
from kjit.build.key import Key
from kjit.build.store import Store
from kjit.build.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime import native
from kjit.runtime.load import has_compiled, has_used_cache
from kjit.runtime.native import Native
from kjit.spec import Spec, Target, Variant

_SOURCE = Path(__file__).resolve().parent.parent / "csrc" / "torch" / "eager_calls.cpp"
_MODULE = "kjit_eager_calls"

NAME = "eager_calls"
"""What the module is called, in the cache and in bundles."""

_log = logging.getLogger("kjit")

# Where this process has looked, and need not again: folders of wrappers, "cache", "compiler".
_tried: set[str] = set()


def settle_after_first_call(call: FunctionType, function: Callable[..., object]) -> None:
    """Have an op's function look for the C++ once it has run, unless that is found by then.

    Args:
        call: what is generated; calls its variable `_kjit_function`.
        function: that.
    """
    if native.in_use() is not None:
        return
    cell = native.cell_of(call, "_kjit_function")

    def first_call(*args: object, **named: object) -> object:
        result = function(*args, **named)
        cell.cell_contents = function
        if native.in_use() is None:
            settle(function.__globals__.get("__file__"))
        return result

    cell.cell_contents = first_call


def settle(wrapper: str | None) -> None:
    """Run all calls in C++, if that is where the modules of an op may come from.

    Args:
        wrapper: the path of the file that the op is in; None (a notebook) has no bundle.
    """
    ways: list[tuple[str, Callable[[], Native | None]]] = []
    if wrapper is not None:
        ways.append((os.path.dirname(wrapper), lambda: find_in_bundle(wrapper)))
    if has_used_cache():
        ways.append(("cache", find))
    if has_compiled():
        ways.append(("compiler", _compile_and_load))
    for name, way in ways:
        if name not in _tried:
            _tried.add(name)
            found = way()
            if found is not None:
                native.use(found)
                return


def find_in_bundle(wrapper: str) -> Native | None:
    """The C++ that was shipped beside a wrapper for this torch and this Python."""
    try:
        found = bundle.find(_variant_for(Target.cpu()), wrapper)
    except KjitError as error:
        _log.debug("eager calls run in Python: %s", error)
        return None
    for refusal in found.refusals:
        _log.debug("what runs eager calls is in no bundle:%s", refusal)
    return None if found.library is None else _load(found.library)


def find() -> Native | None:
    """The C++ in the cache; no compiler runs."""
    variant = _variant_for(Target.cpu())
    try:
        artifact = Store.open().fetch(Key.of(variant, Toolchain.for_target(variant.target))).artifact
    except KjitError as error:
        _log.debug("eager calls run in Python: %s", error)
        return None
    return None if artifact is None else _load(artifact.library_path)


def build() -> Native | None:
    """The C++, compiled if it is not in the cache; None where that cannot be done, and the log says why."""
    return find() or _compile_and_load()


def _compile_and_load() -> Native | None:
    artifact = _compile(Target.cpu(), Store.open(), must_last=True)
    return None if artifact is None else _load(artifact.library_path)


def _compile(
    target: Target, store: Store, *, must_last: bool, cancel: threading.Event | None = None
) -> Artifact | None:
    if _has_no_lock():
        _log.info("eager calls run in Python, as this Python has no global lock")
        return None
    header = python_header()
    if not header.is_file():
        _log.info("eager calls run in Python: there is no %s (package python3-dev)", header)
        return None
    from kjit.build import plan  # needed for a compile only

    def say(started: plan.Started) -> None:
        _log.info("kjit compiles what runs eager calls: %s", started.variant.label)

    try:
        # Not worth two seconds of each process: a cache that is lost with it.
        store = store.writable(must_last=must_last)
    except KjitError as error:
        _log.info("eager calls run in Python: %s", error)
        return None
    try:
        return plan.build(_variant_for(target), store, on_start=say, cancel=cancel).artifact
    except KjitError as error:
        _log.warning("eager calls run in Python, which is slower: %s", error)
    except CancelledError:
        pass
    return None


@contextlib.contextmanager
def building(store: Store, *, to_ship: bool) -> Iterator[list[tuple[Variant, Artifact]]]:
    """Compile the C++ side by side with what is done here, and cancel that if this fails.

    Args:
        to_ship: for every CPU of this kind, and a cache that does not last will do.

    Yields:
        a list that has it in the end, if it can be compiled.
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
    """Where `Python.h` belongs."""
    return Path(sysconfig.get_path("include"), "Python.h")


@lru_cache(maxsize=2)
def _variant_for(target: Target) -> Variant:
    """The C++ for the torch and the Python that run now."""
    import torch

    home = Path(torch.__file__).parent
    # torch's are system headers: their warnings are its business. Python's are not: those of a debug build are links to
    # those of a release, which GCC follows for system headers, and then reads the settings of the release beside them.
    # Symbols of Python are in the program itself.
    spec = Spec(
        NAME,
        torch.__version__,
        "-".join(str(sysconfig.get_config_var("SOABI")).split("-")[:2]),  # cpython-312, cpython-313t
        cpp_files=[_SOURCE],
        extra_cflags=["-isystem", str(home / "include"), f"-I{python_header().parent}"],
        extra_ldflags=["-Wl,-z,undefs", f"-L{home / 'lib'}", "-lc10"],
    )
    return Variant(spec, target)


@lru_cache(maxsize=1)
def _load(library: str) -> Native | None:
    import torch
    import tvm_ffi  # noqa: F401 (kjit's libraries need its library)

    loader = importlib.machinery.ExtensionFileLoader(_MODULE, library)
    spec = importlib.util.spec_from_loader(_MODULE, loader)
    assert spec is not None
    try:
        module: Any = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        _log.warning("eager calls run in Python, as %s cannot be loaded: %s", library, error)
        return None
    tensor = torch.empty(0, device="cpu")
    known = (torch.Tensor, torch.nn.Parameter, tensor, tensor._cdata, vars(torch.autograd.forward_ad))
    get_callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    if not module.learn(*known, get_callback, native.use):
        _log.warning("eager calls run in Python, as torch %s keeps its tensors elsewhere", torch.__version__)
        return None
    return cast("Native", module)
