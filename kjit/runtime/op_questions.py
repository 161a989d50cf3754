"""What does an eager call ask of its tensors: in Python, or in C++ where that was compiled?

Asked in Python, the questions are some ten calls into PyTorch, more than half of what kjit adds to an eager call. In
C++ they are one (`csrc/torch/op_questions.cpp`): compiled in a second and a half, once for each version of torch and of
Python, like an op's module and kept in the same cache. The answers are the same, and so all works without it.

An op asks in Python at first. The first call looks whether the C++ is in the cache, and compiles it in a process that
had to compile a module; `kjit build` does it ahead of use. So they stay in Python where nothing else is compiled either
(in a process whose modules come from a bundle, with `KJIT_NO_COMPILE`), and where this cannot be (without `Python.h`).
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import logging
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, cast

from kjit.build.key import Key
from kjit.build.store import Store
from kjit.build.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime.load import has_compiled, has_used_cache
from kjit.spec import Spec, Target, Variant

if TYPE_CHECKING:
    import torch

_SOURCE = Path(__file__).resolve().parent.parent / "csrc" / "torch" / "op_questions.cpp"
_MODULE = "kjit_op_questions"

_log = logging.getLogger("kjit")


class Questions(Protocol):
    """What is compiled."""

    def are_plain(self, required: int, /, *values: object) -> bool:
        """Whether no part of PyTorch but the kernel has to see these: they are tensors and of no subclass, none has the
        negative bit or needs a gradient that is recorded now, and neither a dispatch mode nor `torch.jit.trace` is at
        work in this thread. All but the first `required` may be None instead."""

    def count_changes(self, *values: torch.Tensor | None) -> None:
        """Add one to the version of each tensor, as PyTorch's own ops do that write to it. All were found plain."""


# What the callers of each op of this process were given. (A list: to go through it is one step for other threads.)
_calls: list[weakref.ref[FunctionType]] = []
_is_settled = False
_questions: Questions | None = None


def connect(call: FunctionType, function: Callable[..., object]) -> None:
    """Have a generated function ask in C++ as soon as that is known to be there.

    Args:
        call: its free variables `_kjit_are_plain` and `_kjit_count_changes` are None to ask in Python, and
            `_kjit_function` is what it calls.
        function: that.
    """
    call.__dict__["__wrapped__"] = function
    _calls.append(weakref.ref(call))
    _set(call, function if _is_settled else _and_settle(function), _questions)


def _and_settle(function: Callable[..., object]) -> Callable[..., object]:
    def first_call(*args: object, **named: object) -> object:
        result = function(*args, **named)
        settle()
        return result

    return first_call


def settle() -> None:
    """Look for what was compiled, compile it in a process that compiles anyway, and have all ops ask so."""
    questions = find() if has_used_cache() else None
    if questions is None and has_compiled():
        questions = _compile()
    use(questions)


def use(questions: Questions | None) -> None:
    """Have all ops of this process ask so, now and later; None: in Python."""
    global _is_settled, _questions
    _is_settled, _questions = True, questions
    for call in filter(None, [reference() for reference in list(_calls)]):
        _set(call, call.__wrapped__, questions)  # type: ignore[attr-defined]


def _set(call: FunctionType, function: Callable[..., object], questions: Questions | None) -> None:
    cells = dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=True))
    cells["_kjit_are_plain"].cell_contents = None if questions is None else questions.are_plain
    cells["_kjit_count_changes"].cell_contents = None if questions is None else questions.count_changes
    cells["_kjit_function"].cell_contents = function


def find() -> Questions | None:
    """The questions in C++ if they were compiled before; no compiler runs."""
    try:
        variant = _variant()
        artifact = Store.open().fetch(Key.of(variant, Toolchain.for_target(variant.target))).artifact
    except KjitError as error:
        _log.debug("eager calls ask in Python: %s", error)
        return None
    return None if artifact is None else _load(artifact.library_path)


def build(cancel: threading.Event | None = None) -> Questions | None:
    """The questions in C++, compiled if they were not; None where that cannot be done, and the log says why.

    Args:
        cancel: set by another thread, ends the compile.
    """
    return find() or _compile(cancel)


def _compile(cancel: threading.Event | None = None) -> Questions | None:
    header = python_header()
    if not header.is_file():
        _log.info("eager calls ask in Python: there is no %s (package python3-dev)", header)
        return None
    from kjit.build import plan  # needed for a compile only

    try:
        # Not worth two seconds of each process: a cache that is lost with it.
        store = Store.open().writable(must_last=True)
    except KjitError as error:
        _log.info("eager calls ask in Python: %s", error)
        return None
    _log.info("kjit compiles what eager calls ask: %s", _variant().label)
    try:
        outcome = plan.build(_variant(), store, cancel=cancel)
    except KjitError as error:
        _log.warning("eager calls ask in Python, which is slower: %s", error)
        return None
    except CancelledError:
        return None
    assert outcome.artifact is not None  # `build` raises where there is none
    return _load(outcome.artifact.library_path)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Compile the questions side by side with what is done here, and cancel that if this fails."""
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
        "-".join(str(sysconfig.get_config_var("SOABI")).split("-")[:2]),  # cpython-312, cpython-313t
        cpp_files=[_SOURCE],
        extra_cflags=["-isystem", str(home / "include"), "-isystem", str(python_header().parent)],
        extra_ldflags=["-Wl,-z,undefs", f"-L{home / 'lib'}", "-lc10"],
    )
    return Variant(spec, Target.cpu())


@lru_cache(maxsize=1)
def _load(library: str) -> Questions | None:
    import torch
    import tvm_ffi  # noqa: F401 (kjit's libraries need its library)

    loader = importlib.machinery.ExtensionFileLoader(_MODULE, library)
    spec = importlib.util.spec_from_loader(_MODULE, loader)
    assert spec is not None
    try:
        module: Any = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        _log.warning("eager calls ask in Python, as %s cannot be loaded: %s", library, error)
        return None
    tensor = torch.empty(0, device="cpu")
    if not module.learn(torch.Tensor, torch.nn.Parameter, tensor, tensor._cdata):
        _log.warning("eager calls ask in Python, as torch %s keeps its tensors elsewhere", torch.__version__)
        return None
    return cast("Questions", module)
