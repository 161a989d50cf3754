"""Libraries that the loader rejects: the CUDA runtime is loaded if they lack it, other causes are explained."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING

from kjit.errors import KjitError
from kjit.spec import Variant

if TYPE_CHECKING:
    import tvm_ffi

_MISSING_CUDA_RUNTIME = re.compile(r"libcudart\.so\.\d+(?=: cannot open shared object file)")

_log = logging.getLogger("kjit")


def load_again(error: RuntimeError, path: str, variant: Variant) -> tvm_ffi.Module:
    """Load a library with the CUDA runtime, if that is what it lacked when the loader rejected it.

    Args:
        error: the loader's error.

    Raises:
        FileNotFoundError: the library does not exist.
        KjitError: it cannot be loaded.
    """
    import tvm_ffi

    missing = _MISSING_CUDA_RUNTIME.search(str(error))
    if missing is not None and _load_cuda_runtime(missing[0]):
        try:
            return tvm_ffi.load_module(path)
        except RuntimeError as second:
            error = second
    if not os.path.exists(path):
        raise FileNotFoundError(path) from error
    from kjit.engine.diagnostics.diagnostics import explain_load

    report = explain_load(str(error), path)
    raise KjitError(f"{variant.label} is built and cannot be loaded: {report.text}", hint=report.hint) from error


def _load_cuda_runtime(soname: str) -> bool:
    """Load the CUDA runtime into the process, where a library finds it by its soname; whether it was found.

    Usually torch has loaded it. Otherwise (a torch for the CPU), it is one in wheels, conda, a toolkit or a system's
    folders.
    """
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        found = load_nvidia_dynamic_lib("cudart")
    except DynamicLibNotFoundError as error:
        _log.debug("%s was not found: %s", soname, error)
        return False
    _log.debug("%s: %s", soname, found.abs_path)
    return True
