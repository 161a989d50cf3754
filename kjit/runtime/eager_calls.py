"""Where is the C++ that runs eager calls, and when is it compiled?

An op's function asks its tensors some ten questions before it may pass PyTorch by, and looks its module up in two
dictionaries. In Python that is more than what the call of the kernel takes. In C++ (`csrc/torch/eager_calls.cpp`) it is
a third: compiled in a second and a half, once for each version of torch and of Python, like an op's module and kept in
the same cache. What calls do is the same, and so all works without it.

Calls run in Python at first. The first call of an op looks whether the C++ is in the cache, and compiles it in a
process that had to compile a module; `kjit build` does it ahead of use. So they stay in Python where nothing else is
compiled either (in a process whose modules come from a bundle, with `KJIT_NO_COMPILE`), and where this cannot be
(without `Python.h`, and in a Python without a global lock, on which the C++ relies).
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import logging
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, cast

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

_log = logging.getLogger("kjit")


_is_settled = False


def settle_after_first_call(call: FunctionType, function: Callable[..., object]) -> None:
    """Have an op's function look for the C++ once it has run, if none in this process has.

    Args:
        call: what is generated; calls its variable `_kjit_function`.
        function: that.
    """
    if _is_settled:
        return
    cell = native.cell_of(call, "_kjit_function")

    def first_call(*args: object, **named: object) -> object:
        result = function(*args, **named)
        cell.cell_contents = function
        if not _is_settled:
            settle()
        return result

    cell.cell_contents = first_call


def settle() -> None:
    """Look for what was compiled, compile it in a process that compiles anyway, and run all calls so."""
    global _is_settled
    found = find() if has_used_cache() else None
    if found is None and has_compiled():
        found = _compile()
    _is_settled = True
    native.use(found)


def find() -> Native | None:
    """The C++ if it was compiled before; no compiler runs."""
    if _has_no_lock():
        return None
    try:
        variant = _variant()
        artifact = Store.open().fetch(Key.of(variant, Toolchain.for_target(variant.target))).artifact
    except KjitError as error:
        _log.debug("eager calls run in Python: %s", error)
        return None
    return None if artifact is None else _load(artifact.library_path)


def build(cancel: threading.Event | None = None) -> Native | None:
    """The C++, compiled if it was not; None where that cannot be done, and the log says why.

    Args:
        cancel: set by another thread, ends the compile.
    """
    return find() or _compile(cancel)


def _compile(cancel: threading.Event | None = None) -> Native | None:
    if _has_no_lock():
        _log.info("eager calls run in Python, as this Python has no global lock")
        return None
    header = python_header()
    if not header.is_file():
        _log.info("eager calls run in Python: there is no %s (package python3-dev)", header)
        return None
    from kjit.build import plan  # needed for a compile only

    try:
        # Not worth two seconds of each process: a cache that is lost with it.
        store = Store.open().writable(must_last=True)
    except KjitError as error:
        _log.info("eager calls run in Python: %s", error)
        return None
    _log.info("kjit compiles what runs eager calls: %s", _variant().label)
    try:
        outcome = plan.build(_variant(), store, cancel=cancel)
    except KjitError as error:
        _log.warning("eager calls run in Python, which is slower: %s", error)
        return None
    except CancelledError:
        return None
    assert outcome.artifact is not None  # `build` raises where there is none
    return _load(outcome.artifact.library_path)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Compile the C++ side by side with what is done here, and cancel that if this fails."""
    cancel = threading.Event()
    thread = threading.Thread(target=build, args=(cancel,))
    thread.start()
    try:
        yield
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


@lru_cache(maxsize=1)
def _variant() -> Variant:
    import torch

    home = Path(torch.__file__).parent
    # As system headers: their warnings are torch's business. Symbols of Python are in the program itself.
    spec = Spec(
        "eager_calls",
        torch.__version__,
        "-".join(str(sysconfig.get_config_var("SOABI")).split("-")[:2]),  # cpython-312
        cpp_files=[_SOURCE],
        extra_cflags=["-isystem", str(home / "include"), "-isystem", str(python_header().parent)],
        extra_ldflags=["-Wl,-z,undefs", f"-L{home / 'lib'}", "-lc10"],
    )
    return Variant(spec, Target.cpu())


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
    if not module.learn(*known, get_callback, find):
        _log.warning("eager calls run in Python, as torch %s keeps its tensors elsewhere", torch.__version__)
        return None
    return cast("Native", module)
