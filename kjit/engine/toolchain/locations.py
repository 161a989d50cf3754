"""The locations of the headers of kjit and tvm-ffi, and of tvm-ffi's library."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

from kjit.errors import ToolchainError
from kjit.runtime import tvm_ffi_home


@lru_cache(maxsize=1)
def kjit_include() -> Path:
    """The folder of kjit's C++ headers (`<kjit/...>`)."""
    return Path(os.path.realpath(__file__)).parents[2] / "include"


def tvm_ffi_include() -> Path:
    """The folder of tvm-ffi's headers (and DLPack's).

    Raises:
        ToolchainError: tvm-ffi is not installed.
    """
    return _tvm_ffi_home() / "include"


def tvm_ffi_library() -> Path:
    """tvm-ffi's shared library.

    Raises:
        ToolchainError: tvm-ffi is not installed.
    """
    return _tvm_ffi_home() / "lib" / ("libtvm_ffi.dylib" if platform.system() == "Darwin" else "libtvm_ffi.so")


def _tvm_ffi_home() -> Path:
    home = tvm_ffi_home()
    if home is None:
        raise ToolchainError("tvm-ffi is not installed.", hint="install it with `pip install apache-tvm-ffi`")
    return Path(home)
