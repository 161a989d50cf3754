"""The parts of calls written in C++: generated functions, and the search for their code.

Generated functions are those of ops (`op_call.py`) and of declared modules (`declared.py`). Each is complete in Python.
A Python function has a pointer to the code that calls it (PEP 590), which is set to C++ (`csrc/torch`): it does the
same for plain tensors, and calls the Python code for everything else. Its data is in the `__dict__` of the function;
the C++ has no state, so that functions have their usual lifetime.

Python 3.11 does not use the pointer in calls from Python (only in calls from C, such as those of `map`). There an op's
function calls the C++ itself, by its variable `_kjit_direct`, and that of a declared module stays in Python.

An op's function makes about ten checks before it can bypass PyTorch, and looks up its module in two dictionaries. In
Python this takes longer than the call of the kernel; in C++ (`csrc/torch/eager_calls.cpp`) a third of that. The C++ is
compiled in one and a half seconds, once for each version of torch and Python, and kept in the cache like an op's
module. Calls have the same results without it.

Calls run in Python at first. The first call of each op searches for the C++ in the places of the op's own modules
(`settle`): the bundle beside its wrapper, and the cache if this process uses it; and compiles it if this process
compiles (`kjit.engine.compile.eager_calls`). So calls stay in Python if nothing else is compiled either (with another
torch than the bundle's, with `KJIT_NO_COMPILE`), or if it cannot be compiled (without `Python.h`, and in a
free-threaded Python, as it relies on the global lock).
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import logging
import os
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol, cast

import kjit
from kjit.runtime import LAYOUT

if TYPE_CHECKING:

    class Native(Protocol):
        """The compiled C++ module."""

        def take_over(self, call: FunctionType, /) -> bool:
            """Run a generated function in C++ from now on; False if it has too many parameters."""

        def give_back(self, call: FunctionType, /) -> None:
            """Run it in Python again."""

        def direct(self, road: object, /) -> Callable[..., object]:
            """A function that calls an op's function, or returns NotImplemented if PyTorch has to see the call."""


# Kinds of parameters, with the same numbers as in the C++. POSITIONAL is computed here.
POSITIONAL, TENSOR, OPTIONAL, WRITTEN, TYPED, LIST = 1, 2, 4, 8, 16, 32

NAME = "eager_calls"
"""The name of the C++ module in the cache and in bundles."""

_MODULE = "kjit_eager_calls"

ROAD = "_kjit_road"
_TABLE = "_kjit_table"
_ASKS_BY_ITSELF = sys.version_info[:2] == (3, 11)

# All generated functions. (A list, as its iteration is atomic for other threads.)
_calls: list[weakref.ref[FunctionType]] = []
_native: Native | None = None

# Places already searched for the C++ in this process: folders of wrappers, "cache", "compiler".
_tried: set[str] = set()

_log = logging.getLogger("kjit")


def add_op(call: FunctionType, function: Callable[..., object], kinds: Mapping[str, int]) -> None:
    """Run an op's function in C++ as soon as that is loaded.

    Args:
        call: the generated function.
        function: the op's function, with the same parameters.
        kinds: for each tensor parameter, TENSOR, or'ed with OPTIONAL (it may be None) and WRITTEN; for each list of
            tensors, LIST, or'ed with WRITTEN.
    """
    _add(call, ROAD, function, kinds)


def add_declared(call: FunctionType, modules: Mapping[int, object], kinds: Mapping[str, int]) -> None:
    """Run a declared module's function in C++ as soon as that is loaded.

    Args:
        call: the generated function; its last parameter is the device.
        modules: by device index, then by the values of the other parameters: by the value itself for a single parameter
            that is not TYPED, otherwise by a tuple.
        kinds: TYPED for each parameter whose type follows its value in the key.
    """
    _add(call, _TABLE, modules, kinds)


def use(native: Native | None) -> None:
    """Run all generated functions, including later ones, by this C++ module; None: in Python."""
    global _native
    before, _native = _native, native
    for call in filter(None, [reference() for reference in list(_calls)]):
        if before is not None:
            before.give_back(call)
        _set(call, native)


def in_use() -> Native | None:
    """The current C++ module, or None."""
    return _native


def cell_of(call: FunctionType, variable: str) -> CellType:
    """The closure cell of a variable of a generated function."""
    return dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=True))[variable]


def _add(call: FunctionType, key: str, what: object, kinds: Mapping[str, int]) -> None:
    code = call.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    positional = names[: code.co_argcount]
    flags = bytes(kinds.get(name, 0) | (POSITIONAL if name in positional else 0) for name in names)
    call.__dict__[key] = what, names, flags
    _calls.append(weakref.ref(call))
    _set(call, _native)


def _set(call: FunctionType, native: Native | None) -> None:
    is_native = native is not None and native.take_over(call)
    if _ASKS_BY_ITSELF and ROAD in call.__dict__:
        direct = native.direct(call.__dict__[ROAD]) if native is not None and is_native else None
        cell_of(call, "_kjit_direct").cell_contents = direct


def is_stood_in() -> bool:
    """Whether torch is the stand-in (stand_in.py)."""
    return getattr(sys.modules.get("torch"), "is_kjit_stand_in", False) is True


COMPOUND = (float, tuple, frozenset)
"""Types with distinct values that are equal and of one type."""


def typed(value: object) -> Hashable:
    """A key that is equal only for identical values, unlike `==`, for which True, 1 and 1.0 are equal."""
    kind = type(value)
    if kind is float:
        # Distinguishes -0.0 from 0.0, and is equal for equal nans.
        return kind, cast(float, value).hex()
    if kind is tuple:
        return kind, tuple(map(typed, cast("tuple[object, ...]", value)))
    if kind is frozenset:
        return kind, frozenset(map(typed, cast("frozenset[object]", value)))
    return kind, value


def settle_after_first_call(call: FunctionType, function: Callable[..., object], wrapper: str | None) -> None:
    """Search for the C++ after the first call of an op's function, unless it is loaded by then.

    Args:
        call: the generated function, which calls its variable `_kjit_function`.
        function: the value of that variable.
        wrapper: as for `settle`.
    """
    if in_use() is not None:
        return
    cell = cell_of(call, "_kjit_function")

    def first_call(*args: object, **named: object) -> object:
        result = function(*args, **named)
        cell.cell_contents = function
        if in_use() is None:
            settle(wrapper)
        return result

    cell.cell_contents = first_call


def settle(wrapper: str | None) -> None:
    """Run all calls in C++, if it is found in the places of an op's modules.

    Args:
        wrapper: the path of the op's file; None for a notebook, which has no bundle.
    """
    from kjit.runtime import load

    ways: list[tuple[str, Callable[[], Native | None]]] = []
    if wrapper is not None:
        ways.append((os.path.dirname(wrapper), lambda: find_in_bundle(wrapper)))
    if load.has_used_cache():
        ways.append(("cache", find))
    if load.has_compiled():
        ways.append(("compiler", _compile))
    for name, way in ways:
        if name not in _tried:
            _tried.add(name)
            found = way()
            if found is not None:
                use(found)
                return


def find_in_bundle(wrapper: str) -> Native | None:
    """The C++ for this torch and Python in the bundle beside a wrapper."""
    from kjit.runtime import load

    if not load.has_bundle(wrapper):
        return None
    from kjit.runtime import bundle
    from kjit.spec import Spec, Target, Variant

    home, python = installed()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}"
    spec = Spec(NAME, *arguments(), **parts(home, os.path.join(python, "include", version)))
    try:
        found = bundle.find(Variant(spec, Target.cpu()), wrapper)
    except kjit.KjitError as error:
        _log.debug("eager calls run in Python: %s", error)
        return None
    for refusal in found.refusals:
        _log.debug("the C++ for eager calls is not in a bundle:%s", refusal)
    return None if found.library is None else load_native(found.library)


def find() -> Native | None:
    """Load the C++ from the cache; no compiler runs."""
    from kjit import env
    from kjit.runtime import load, recall

    try:
        folder = load.cache_folder()
        if not os.path.exists(f"{folder}/{LAYOUT}/cpu/{NAME}") and not env.shared_cache_dirs():
            return None  # it was never built here, so its key need not be derived
        artifact = recall.find(request(folder), folder)
    except kjit.KjitError as error:
        _log.debug("eager calls run in Python: %s", error)
        return None
    if artifact is not None:
        return load_native(recall.library_in(artifact))
    from kjit.engine.compile import eager_calls

    return eager_calls.find()


def _compile() -> Native | None:
    from kjit.engine.compile import eager_calls

    return eager_calls.compile_and_load()


def request(folder: str) -> str | None:
    """The request for the C++ in the cache `folder` (`recall.request`), without its sources, which follow from this."""
    from kjit.runtime import recall

    return recall.request([NAME, *arguments(), *installed(), *importlib.machinery.EXTENSION_SUFFIXES], "cpu", folder)


def arguments() -> tuple[str, str]:
    """The arguments of the C++'s module: the versions of torch and of Python, like `cpython-312` or `cpython-313t`."""
    import torch

    _, soabi, _ = importlib.machinery.EXTENSION_SUFFIXES[0].split(".")
    return torch.__version__, "-".join(soabi.split("-")[:2])


def parts(torch_home: str, python_include: str) -> dict[str, Any]:
    """The sources and flags of the C++, for a `Spec`.

    Args:
        torch_home: the folder of torch.
        python_include: the folder of `Python.h`.
    """
    # torch's headers are system headers, without warnings. Python's are not: those of a debug build are links to those
    # of a release, which GCC resolves for system headers, and then reads the wrong settings beside them.
    # All symbols of Python are in the program itself.
    home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    return {
        "cpp_files": [os.path.join(home, "csrc", "torch", "eager_calls.cpp")],
        "extra_cflags": ["-isystem", f"{torch_home}/include", f"-I{python_include}"],
        "extra_ldflags": ["-Wl,-z,undefs,-z,now", f"-L{torch_home}/lib", "-lc10"],
    }


def installed() -> tuple[str, str]:
    """The folders of torch and Python."""
    import torch

    return os.path.dirname(torch.__file__), sys.base_prefix


@functools.lru_cache(maxsize=1)
def load_native(library: str) -> Native | None:
    import torch
    import tvm_ffi  # noqa: F401 (kjit's libraries need its library)

    loader = importlib.machinery.ExtensionFileLoader(_MODULE, library)
    spec = importlib.util.spec_from_loader(_MODULE, loader)
    assert spec is not None
    try:
        module: Any = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        _log.warning("eager calls run in Python: %s cannot be loaded: %s", library, error)
        return None
    tensor = torch.empty(0, device="cpu")
    known = (torch.Tensor, torch.nn.Parameter, tensor, tensor._cdata, vars(torch.autograd.forward_ad))
    get_callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    if not module.learn(*known, get_callback, use):
        _log.warning("eager calls run in Python: the layout of tensors in torch %s is unknown", torch.__version__)
        return None
    return cast("Native", module)
