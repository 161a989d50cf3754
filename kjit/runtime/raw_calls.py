"""What does a call of a module's function say where an argument cannot be handed over at all?

Before the C++ of a module sees an argument, tvm-ffi and the library that the argument comes from have converted it.
Where they cannot (a sparse tensor, a dtype that DLPack lacks, a read-only array of NumPy), the error is theirs, and
names neither the function nor the argument.

So the functions that a module hands out are of a type that is derived from `tvm_ffi.Function` and differs in one
thing: an error of a call goes through `_explain` here. The type is made by the module itself
(kjit/csrc/support/host.cpp), in C++ and without Python's headers: a call that works is tvm-ffi's own and one more
comparison. Where it cannot be made, functions are tvm-ffi's, and so are the errors.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kjit.errors import KjitError
from kjit.runtime import unusable

if TYPE_CHECKING:
    import tvm_ffi

# In kjit/csrc/support/host.cpp.
_TYPE = "_kjit_function_type"
_TAKE = "_kjit_take"

_GETTER = "ffi.ModuleGetFunction"  # of tvm-ffi

_log = logging.getLogger("kjit")
_type: type[tvm_ffi.Function] | None = None
_take: Callable[[object], object] | None = None
_getter: tvm_ffi.Function | None = None


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
    if isinstance(error, Exception) and not isinstance(error, KjitError) and _take is not None:
        unusable.explain_call(f"{function._kjit_name}()", arguments, _take)
