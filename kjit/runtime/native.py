"""The parts of calls written in C++: the generated functions that run there, where that code is found, what it knows of
torch's internals, and errors about arguments that cannot be passed.

There are two kinds: an op's (`op_call.py`) and a declared module's (`declared.py`). Each is whole in Python. Every
function of Python says how it is called (PEP 590), and what was compiled (`csrc/torch`) does for plain tensors what
the function would do, and calls it for all else. What it has to know of a function is in the `__dict__` of that: the
C++ keeps nothing, so that functions come and go as any others do.

Python 3.11 does not ask its functions. There an op's asks the C++ by itself, by its variable `_kjit_direct`, and a
declared module's stays in Python. (Where C calls them, as `map` does, 3.11 asks, too.)

An op's function asks its tensors some ten questions before it may pass PyTorch by, and looks its module up in two
dictionaries. In Python that is more than what the call of the kernel takes. In C++ (`csrc/torch/eager_calls.cpp`) it is
a third: compiled in a second and a half, once for each version of torch and of Python, like an op's module and kept in
the same cache. What calls do is the same, and so all works without it.

Calls run in Python at first. The first call of each op, until one finds it, looks where its own modules may come from
(`settle`): in the bundle beside its wrapper, in the cache if this process uses that, and compiles it if this process
compiles (`kjit.engine.compile.eager_calls`). So calls stay in Python where nothing else is compiled (with another torch
than the bundle's, with `KJIT_NO_COMPILE`), and where this cannot be (without `Python.h`, and in a Python without a
global lock, on which the C++ relies).

A module is called through tvm-ffi, which gets a tensor from torch by DLPack, and neither has a word for a tensor that
is the conjugate or the opposite of what lies in memory: the kernel would read and write something else than the tensor
holds, and nobody would know. The bits are in torch's own object, which the tensor of DLPack holds on to. So the C++ of
a module looks there (`require_readable` in kjit/ffi.cpp), and has to be told where (`teach`): it depends on the
versions of torch and tvm-ffi. That is found out once in a process, with tensors of which all is known: each step from
tvm-ffi's object to torch's bits must end where torch says that it does. Memory is read as a file, so that a wrong guess
accesses nothing. Where it cannot be found out, modules do not look.

Before the C++ of a module sees an argument, tvm-ffi and the library that the argument comes from have converted it.
Where they cannot (a sparse tensor, a dtype that DLPack lacks, a read-only array of NumPy), the error is theirs, and
names neither the function nor the argument. So the functions that a module hands out are of a type that is derived from
`tvm_ffi.Function` and differs in one thing: an error of a call goes through `_explain` here (`watch`). The type is made
by the module itself (kjit/csrc/support/host.cpp), in C++ and without Python's headers: a call that works is tvm-ffi's
own and one more comparison. Where it cannot be made, functions are tvm-ffi's, and so are the errors.
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

# What a parameter is; the C++ has the same numbers. POSITIONAL is found here.
POSITIONAL, TENSOR, OPTIONAL, WRITTEN, TYPED, LIST = 1, 2, 4, 8, 16, 32

NAME = "eager_calls"
"""What the C++ is called, in the cache and in bundles."""

_SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "csrc", "torch", "eager_calls.cpp")
_MODULE = "kjit_eager_calls"

ROAD = "_kjit_road"
_TABLE = "_kjit_table"
_ASKS_BY_ITSELF = sys.version_info[:2] == (3, 11)


class Native(Protocol):
    """What is compiled."""

    def take_over(self, call: FunctionType, /) -> bool:
        """Run a generated function in C++ from now on; False where that cannot be, as it has too many parameters."""

    def give_back(self, call: FunctionType, /) -> None:
        """Run it in Python again."""

    def direct(self, road: object, /) -> Callable[..., object]:
        """What calls the kernel's function of an op, and returns NotImplemented where PyTorch has to see the call."""


# All that were generated. (A list: to go through it is one step for other threads.)
_calls: list[weakref.ref[FunctionType]] = []
_native: Native | None = None

# Where this process has looked for the C++, and need not again: folders of wrappers, "cache", "compiler".
_tried: set[str] = set()

_SETTER = "_kjit_know_lazy_bits"  # in kjit/csrc/support/host.cpp

# tvm/ffi/c_api.h and dlpack.h: an object is two words and its deleter, a tensor's description follows it, and in a
# tensor from DLPack the pointer to what it came with.
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
    """Have an op's function run in C++ as soon as there is that.

    Args:
        call: what is generated.
        function: what calls the kernel, with the same parameters.
        kinds: of each parameter that is a tensor: TENSOR, or'ed with OPTIONAL (it may be None), WRITTEN; of a list of
            tensors LIST, or'ed with WRITTEN.
    """
    _add(call, ROAD, function, kinds)


def add_declared(call: FunctionType, modules: Mapping[int, object], kinds: Mapping[str, int]) -> None:
    """Have a declared module's function run in C++ as soon as there is that.

    Args:
        call: what is generated; its last parameter is the device.
        modules: by the index of a tensor's device, then by the values of the other parameters: by the value itself
            where there is one parameter that is not TYPED, otherwise by a tuple.
        kinds: TYPED, for each parameter whose type is part of the key too, after its value.
    """
    _add(call, _TABLE, modules, kinds)


def use(native: Native | None) -> None:
    """Have all generated functions run so, now and later; None: in Python."""
    global _native
    before, _native = _native, native
    for call in filter(None, [reference() for reference in list(_calls)]):
        if before is not None:
            before.give_back(call)
        _set(call, native)


def in_use() -> Native | None:
    """What all of them run by."""
    return _native


def cell_of(call: FunctionType, variable: str) -> CellType:
    """Where a generated function keeps one of its variables."""
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
    """Whether something stands in for torch (stand_in.py)."""
    return getattr(sys.modules.get("torch"), "is_kjit_stand_in", False) is True


COMPOUND = (float, tuple, frozenset)
"""Types of which two values may be equal, and of one type, and yet not the same."""


def typed(value: object) -> Hashable:
    """A key that is equal for two values only when they are the same: unlike `==`, which takes True for 1 for 1.0."""
    kind = type(value)
    if kind is float:
        # Tells -0.0 from 0.0, and finds a nan again.
        return kind, cast(float, value).hex()
    if kind is tuple:
        return kind, tuple(map(typed, cast("tuple[object, ...]", value)))
    if kind is frozenset:
        return kind, frozenset(map(typed, cast("frozenset[object]", value)))
    return kind, value


def settle_after_first_call(call: FunctionType, function: Callable[..., object], wrapper: str | None) -> None:
    """Have an op's function look for the C++ once it has run, unless that is found by then.

    Args:
        call: what is generated; calls its variable `_kjit_function`.
        function: that.
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
    """Run all calls in C++, if that is where the modules of an op may come from.

    Args:
        wrapper: the path of the file that the op is in; None (a notebook) has no bundle.
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
    """The C++ that was shipped beside a wrapper for this torch and this Python."""
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
            return None  # it was never built here, and nobody has to derive its key for that
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
    """The request for the C++ in the cache `folder` (`recall.request`): what it is made from follows from these."""
    from kjit.runtime import recall

    return recall.request([NAME, *arguments(), *_installed(), *importlib.machinery.EXTENSION_SUFFIXES], "cpu", folder)


def arguments() -> tuple[str, str]:
    """The arguments of the C++'s module: the versions of torch and of Python, like `cpython-312` or `cpython-313t`."""
    import torch

    _, soabi, _ = importlib.machinery.EXTENSION_SUFFIXES[0].split(".")
    return torch.__version__, "-".join(soabi.split("-")[:2])


def parts(torch_home: str, python_include: str) -> dict[str, Any]:
    """What the C++ is made from, for a `Spec`.

    Args:
        torch_home: the folder of torch.
        python_include: the folder of `Python.h`.
    """
    # torch's are system headers: their warnings are its business. Python's are not: those of a debug build are links to
    # those of a release, which GCC follows for system headers, and then reads the settings of the release beside them.
    # Symbols of Python are in the program itself, all of them.
    return {
        "cpp_files": [_SOURCE],
        "extra_cflags": ["-isystem", f"{torch_home}/include", f"-I{python_include}"],
        "extra_ldflags": ["-Wl,-z,undefs,-z,now", f"-L{torch_home}/lib", "-lc10"],
    }


def _installed() -> tuple[str, str]:
    """Where torch and Python are."""
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
    """Tell a module that was loaded where to look."""
    # A library that kjit did not build, or built before modules looked, has nothing to tell.
    if module.implements_function(_SETTER):
        place = _find() if "torch" in sys.modules else None
        if place is not None:
            module.get_function(_SETTER)(*place)


@functools.lru_cache(maxsize=1)
def _find() -> tuple[int, int, int, int, int] | None:
    """The deleters of tvm-ffi's object and of DLPack's, by which C++ knows tensors that came this way; where in torch's
    object the bits are; and which they are: of a conjugate, of an opposite."""
    import torch

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return None
    try:
        # This, `_neg_view` and the keys of a tensor may be gone from any new torch.
        from torch.utils._python_dispatch import _disable_current_modes

        # A mode would be told of these tensors. To leave them imports something, so it is done only where there is one.
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
    """From tvm-ffi's object to where torch's has the bits, as in `_find`.

    Raises:
        OSError: something is not where it was expected, and no memory is there.
        ValueError: the same, and there is memory.
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
    """Have the functions that a module hands out from now on say which argument cannot be used."""
    made = _type or _make_type(module)
    if made is not None:
        vars(module)["get_function"] = functools.partial(_get_function, made, module)


def _make_type(module: tvm_ffi.Module) -> type[tvm_ffi.Function] | None:
    global _type, _take, _getter
    import tvm_ffi

    # A library that kjit did not build, or built before this was in it, makes none.
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
    # The type's code is in this module, and functions of others may be called while the interpreter ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
    _take, _getter = module.get_function(_TAKE), getter
    _type = ctypes.cast(address, ctypes.py_object).value
    return _type


def _get_function(
    made: type[tvm_ffi.Function], module: tvm_ffi.Module, name: str, query_imports: bool = False
) -> tvm_ffi.Function:
    """As `tvm_ffi.Module.get_function`."""
    import tvm_ffi

    type(module).get_function(module, name, query_imports)  # which says what is wrong
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
    """Raise a `KjitError` that names an argument which cannot be handed over, if there is one; any other error stays.

    A call that fails for another reason has had its arguments converted, and they can be converted again.
    """
    if is_finalizing():
        return  # the variables of this module may be gone
    if isinstance(error, Exception) and not isinstance(error, kjit.KjitError) and _take is not None:
        from kjit.runtime import unusable

        unusable.explain_call(f"{function._kjit_name}()", arguments, _take)
