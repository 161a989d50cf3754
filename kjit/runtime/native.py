"""The parts of calls written in C++: generated functions, the search for their code, its use of torch's internals, and
errors about unusable arguments.

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

A module is called through tvm-ffi, which gets tensors from torch by DLPack. Neither represents tensors that are the
conjugate or the negative of their memory, so a kernel would silently use wrong values. The bits for these are in
torch's own object, which the DLPack tensor keeps alive. The C++ of a module checks them (`require_readable` in
kjit/ffi.cpp) at offsets that it is given (`teach`), as they depend on the versions of torch and tvm-ffi. The offsets
are found once per process, with tensors whose bits are known: each step from tvm-ffi's object to torch's bits must lead
to the address that torch reports. Memory is read as a file, so that a wrong guess does no harm. If the offsets cannot
be found, modules do not check.

Arguments are converted by tvm-ffi and their own library before the C++ of a module gets them. If that fails (a sparse
tensor, a dtype that DLPack lacks, a read-only NumPy array), the error names neither the function nor the argument. So
the functions of a module have a type derived from `tvm_ffi.Function`, in which an error of a call goes through
`_explain` here (`watch`). The type is created by the module (kjit/csrc/support/host.cpp), in C++ without Python's
headers: a successful call costs one more comparison. If it cannot be created, functions and errors are tvm-ffi's.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import importlib.util
import logging
import os
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import kjit
from kjit.runtime import LAYOUT

if TYPE_CHECKING:
    import torch
    import tvm_ffi

# Kinds of parameters, with the same numbers as in the C++. POSITIONAL is computed here.
POSITIONAL, TENSOR, OPTIONAL, WRITTEN, TYPED, LIST = 1, 2, 4, 8, 16, 32

NAME = "eager_calls"
"""The name of the C++ module in the cache and in bundles."""

_SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "csrc", "torch", "eager_calls.cpp")
_MODULE = "kjit_eager_calls"

ROAD = "_kjit_road"
_TABLE = "_kjit_table"
_ASKS_BY_ITSELF = sys.version_info[:2] == (3, 11)


class Native(Protocol):
    """What is compiled."""

    def take_over(self, call: FunctionType, /) -> bool:
        """Run a generated function in C++ from now on; False if it has too many parameters."""

    def give_back(self, call: FunctionType, /) -> None:
        """Run it in Python again."""

    def direct(self, road: object, /) -> Callable[..., object]:
        """A function that calls an op's function, or returns NotImplemented if PyTorch has to see the call."""


# All generated functions. (A list, as its iteration is atomic for other threads.)
_calls: list[weakref.ref[FunctionType]] = []
_native: Native | None = None

# Places already searched for the C++ in this process: folders of wrappers, "cache", "compiler".
_tried: set[str] = set()

_SETTER = "_kjit_know_lazy_bits"  # in kjit/csrc/support/host.cpp

# From tvm/ffi/c_api.h and dlpack.h: an object is two words and its deleter, followed by a tensor's description, and in
# a tensor from DLPack by the pointer to its owner.
_WORD = 8
_OBJECT_DELETER = 2 * _WORD
_MANAGED = 3 * _WORD + 6 * _WORD
_MOST_WORDS = 32  # of torch's object

# In kjit/csrc/support/host.cpp.
_TYPE = "_kjit_function_type"
_TAKE = "_kjit_take"

_GETTER = "ffi.ModuleGetFunction"  # of tvm-ffi

_log = logging.getLogger("kjit")
_type: type[tvm_ffi.Function] | None = None
_take: Callable[[object], object] | None = None
_getter: tvm_ffi.Function | None = None


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

    home, python = _installed()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}"
    spec = Spec(NAME, *arguments(), **parts(home, os.path.join(python, "include", version)))
    try:
        found = bundle.find(Variant(spec, Target.cpu()), wrapper)
    except kjit.KjitError as error:
        _log.debug("eager calls run in Python: %s", error)
        return None
    for refusal in found.refusals:
        _log.debug("what runs eager calls is in no bundle:%s", refusal)
    return None if found.library is None else load_native(found.library)


def find() -> Native | None:
    """The C++ in the cache; no compiler runs."""
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

    return recall.request([NAME, *arguments(), *_installed(), *importlib.machinery.EXTENSION_SUFFIXES], "cpu", folder)


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
    return {
        "cpp_files": [_SOURCE],
        "extra_cflags": ["-isystem", f"{torch_home}/include", f"-I{python_include}"],
        "extra_ldflags": ["-Wl,-z,undefs,-z,now", f"-L{torch_home}/lib", "-lc10"],
    }


def _installed() -> tuple[str, str]:
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
        _log.warning("eager calls run in Python, as %s cannot be loaded: %s", library, error)
        return None
    tensor = torch.empty(0, device="cpu")
    known = (torch.Tensor, torch.nn.Parameter, tensor, tensor._cdata, vars(torch.autograd.forward_ad))
    get_callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    if not module.learn(*known, get_callback, use):
        _log.warning("eager calls run in Python, as torch %s keeps its tensors elsewhere", torch.__version__)
        return None
    return cast("Native", module)


def teach(module: tvm_ffi.Module) -> None:
    """Give a loaded module the offsets."""
    # A library not built by kjit, or by an older version, has no such function.
    if module.implements_function(_SETTER):
        place = _find() if "torch" in sys.modules else None
        if place is not None:
            module.get_function(_SETTER)(*place)


@functools.lru_cache(maxsize=1)
def _find() -> tuple[int, int, int, int, int] | None:
    """The deleters of tvm-ffi's and of DLPack's object, by which the C++ recognises such tensors; the offset of the
    bits in torch's object; and the bits of conjugate and negative tensors."""
    import torch

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return None
    try:
        # This, `_neg_view` and the keys of a tensor may be missing in any new torch.
        from torch.utils._python_dispatch import _disable_current_modes

        # A dispatch mode would see these tensors. To disable modes needs an import, so it is done only if there is one.
        outside = _disable_current_modes() if torch._C._len_torch_dispatch_stack() else contextlib.nullcontext()
        with open("/proc/self/mem", "rb", buffering=0) as memory, outside:
            plain = torch.zeros(1, dtype=torch.complex64, device="cpu")
            conjugate, opposite = plain.conj(), torch._neg_view(plain)
            places = {_follow(memory, tensor) for tensor in (plain, conjugate, opposite, torch._neg_view(conjugate))}
            (place,) = places
            conjugate_bit, opposite_bit = (_keys_of(each) & ~_keys_of(plain) for each in (conjugate, opposite))
    except (AttributeError, ImportError, OSError, ValueError) as error:
        _log.debug("modules do not see whether a tensor is a conjugate: %s", error)
        return None
    return (*place, conjugate_bit, opposite_bit)


def _keys_of(tensor: torch.Tensor) -> int:
    import torch

    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _follow(memory: BinaryIO, tensor: torch.Tensor) -> tuple[int, int, int]:
    """The path from tvm-ffi's object to the bits in torch's, as in `_find`.

    Raises:
        OSError: an address is not mapped.
        ValueError: an address has other contents.
    """
    import tvm_ffi

    def words_at(address: int, count: int) -> list[int]:
        memory.seek(address)
        return [int.from_bytes(memory.read(_WORD), sys.byteorder) for _ in range(count)]

    converted = tvm_ffi.from_dlpack(tensor)
    handle = converted.__chandle__()
    (object_deleter,) = words_at(handle + _OBJECT_DELETER, 1)
    (managed,) = words_at(handle + _MANAGED, 1)
    _, context, dlpack_deleter = words_at(managed, 3)
    (found,) = words_at(context, 1)
    if found != tensor._cdata:
        raise ValueError("torch keeps its tensor elsewhere")
    offset = words_at(found, _MOST_WORDS).index(_keys_of(tensor)) * _WORD
    return object_deleter, dlpack_deleter, offset


def watch(module: tvm_ffi.Module) -> None:
    """Make the functions of a module name unusable arguments in errors."""
    made = _type or _make_type(module)
    if made is not None:
        vars(module)["get_function"] = functools.partial(_get_function, made, module)


def _make_type(module: tvm_ffi.Module) -> type[tvm_ffi.Function] | None:
    global _type, _take, _getter
    import tvm_ffi

    # A library not built by kjit, or by an older version, cannot create them.
    if not (module.implements_function(_TYPE) and module.implements_function(_TAKE)):
        return None
    getter = tvm_ffi.get_global_func(_GETTER, allow_missing=True)
    if getter is None or not hasattr(tvm_ffi.Function, "__init_handle_by_constructor__"):
        _log.debug("errors of arguments are tvm-ffi's: it has no constructor of functions")
        return None
    address = module.get_function(_TYPE)(id(tvm_ffi.Function), id(_explain))
    if not address:
        _log.debug("errors of arguments are tvm-ffi's: this Python lets no type be derived from its functions")
        return None
    # The type's code is in this library, and functions of others may be called while the interpreter exits.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
    _take, _getter = module.get_function(_TAKE), getter
    _type = ctypes.cast(address, ctypes.py_object).value
    return _type


def _get_function(
    made: type[tvm_ffi.Function], module: tvm_ffi.Module, name: str, query_imports: bool = False
) -> tvm_ffi.Function:
    """As `tvm_ffi.Module.get_function`."""
    import tvm_ffi

    type(module).get_function(module, name, query_imports)  # which raises the error
    function: Any = tvm_ffi.Function.__new__(made)
    function.__init_handle_by_constructor__(_getter, module, name, query_imports)
    function._kjit_name = name
    return function


def _explain(
    function: Any,
    arguments: tuple[object, ...],
    error: BaseException,
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
) -> None:
    """Raise a `KjitError` that names an argument which cannot be passed, if there is one; other errors are unchanged.

    If a call failed for another reason, its arguments were converted, and can be converted again.
    """
    if is_finalizing():
        return  # at exit, when the variables of this module may be gone
    if isinstance(error, Exception) and not isinstance(error, kjit.KjitError) and _take is not None:
        from kjit.runtime import unusable

        unusable.explain_call(f"{function._kjit_name}()", arguments, _take)
