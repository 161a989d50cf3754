"""Libraries that the loader refuses: the CUDA runtime is loaded where it is what they lack, all else is explained."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import re
from typing import NoReturn

from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError, ToolchainError
from kjit.spec import Target, Variant

_MISSING_CUDA_RUNTIME = re.compile(r"libcudart\.so\.\d+(?=: cannot open shared object file)")

_log = logging.getLogger("kjit")


def load_cuda_runtime_for(error: str, linked_for: Target | None) -> bool:
    """Load the CUDA runtime into the process if it is what a library lacked; whether that was done.

    Args:
        error: of the loader.
        linked_for: as for `_load_cuda_runtime`.
    """
    missing = _MISSING_CUDA_RUNTIME.search(error)
    return missing is not None and _load_cuda_runtime(missing[0], linked_for)


def explain_load_of(error: RuntimeError, path: str, variant: Variant) -> NoReturn:
    """Raise what is wrong with a library that cannot be loaded.

    Raises:
        FileNotFoundError: it is gone.
        KjitError: else.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(path) from error
    from kjit.engine.diagnostics.diagnostics import explain_load

    report = explain_load(str(error), path)
    raise KjitError(f"{variant.label} is built and cannot be loaded: {report.text}", hint=report.hint) from error


def _load_cuda_runtime(soname: str, linked_for: Target | None) -> bool:
    """Load the CUDA runtime into the process, which a library then finds by its soname.

    Mostly torch has done that. Where it has not (a torch for the CPU), the one that the module was linked with is
    taken (`linked_for` is its target, None where it was linked elsewhere), else what cuda-pathfinder finds in wheels,
    conda and system folders.
    """
    with contextlib.suppress(OSError, ToolchainError):
        cuda = None if linked_for is None else Toolchain.for_target(linked_for).cuda
        if cuda is not None:
            ctypes.CDLL(os.path.realpath(cuda.cudart), mode=ctypes.RTLD_GLOBAL)
            return True
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        found = load_nvidia_dynamic_lib("cudart")
    except DynamicLibNotFoundError as error:
        _log.debug("%s was not found: %s", soname, error)
        return False
    _log.debug("%s: %s", soname, found.abs_path)
    return True
