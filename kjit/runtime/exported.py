"""The functions of loaded modules: checks for conjugate and negative tensors, and errors about unusable arguments.

A module is called through tvm-ffi, which gets tensors from torch by DLPack. Neither represents tensors that are the
conjugate or the negative of their memory, so a kernel would silently use wrong values. The bits for these are in
torch's own object, which the DLPack tensor keeps alive. The C++ of a module checks them (`require_readable` in
kjit/ffi.cpp) at offsets that it is given (`teach`), as they depend on the versions of torch and tvm-ffi. The offsets
are found once per process, with a tensor whose bits torch reports: each step from tvm-ffi's object to torch's bits must
lead to the address that torch reports. Memory is read as a file, so that a wrong guess does no harm. If the offsets
cannot be found, modules do not check.

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
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import kjit

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    import tvm_ffi

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
        # This and the keys of a tensor may be missing in any new torch.
        from torch.utils._python_dispatch import _disable_current_modes

        conjugate_bit, opposite_bit = (
            int(torch._C.DispatchKeySet(key).raw_repr())
            for key in (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)
        )
        # A dispatch mode would see the tensor. To disable modes needs an import, so it is done only if there is one.
        outside = _disable_current_modes() if torch._C._len_torch_dispatch_stack() else contextlib.nullcontext()
        with open("/proc/self/mem", "rb", buffering=0) as file, outside:
            # One tensor without a value: the first operators of a process take a tenth of a millisecond each.
            place = _follow(file.fileno(), torch.empty(1, dtype=torch.float32, device="cpu"))
    except (AttributeError, ImportError, OSError, OverflowError, ValueError) as error:
        _log.debug("modules do not check for conjugate tensors: %s", error)
        return None
    return (*place, conjugate_bit, opposite_bit)


def _keys_of(tensor: torch.Tensor) -> int:
    import torch

    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _follow(memory: int, tensor: torch.Tensor) -> tuple[int, int, int]:
    """The path from tvm-ffi's object to the bits in torch's, as in `_find`.

    Args:
        memory: the handle of this process's memory.

    Raises:
        OSError, OverflowError: an address is not mapped, or invalid.
        ValueError: an address has other contents.
    """
    import tvm_ffi

    def words_at(address: int, count: int) -> list[int]:
        content = os.pread(memory, count * _WORD, address)
        return [int.from_bytes(content[at : at + _WORD], sys.byteorder) for at in range(0, len(content), _WORD)]

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
    """Like `tvm_ffi.Module.get_function`."""
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
