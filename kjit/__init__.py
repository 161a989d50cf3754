"""kjit: write, build, test, benchmark and ship small CUDA and C++ kernels for PyTorch.

The names below are loaded on first use, so that `import kjit` costs neither torch nor tvm-ffi.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers know the name; to import typing takes longer than all of this
if TYPE_CHECKING:
    from kjit import benchmark as benchmark
    from kjit import testing as testing
    from kjit.errors import CacheError as CacheError
    from kjit.errors import CompileError as CompileError
    from kjit.errors import KjitError as KjitError
    from kjit.errors import NotPrebuiltError as NotPrebuiltError
    from kjit.errors import ToolchainError as ToolchainError
    from kjit.errors import UsageError as UsageError
    from kjit.runtime.declared import DeclaredModule as DeclaredModule
    from kjit.runtime.declared import module as module
    from kjit.runtime.declared import product as product
    from kjit.runtime.highway import highway_include as highway_include
    from kjit.runtime.inline import load_inline as load_inline
    from kjit.runtime.load import jit as jit
    from kjit.runtime.load import load_jit as load_jit
    from kjit.runtime.load import stats as stats
    from kjit.runtime.once import cache_once as cache_once
    from kjit.runtime.torch_op import torch_op as torch_op
    from kjit.runtime.warm import warm as warm
    from kjit.spec import CudaArch as CudaArch
    from kjit.spec import Spec as Spec
    from kjit.spec import Target as Target
    from kjit.spec import Variant as Variant
    from kjit.spec import make_cpp_args as make_cpp_args

    __version__: str

_NAMES = {
    "kjit.errors": "CacheError CompileError KjitError NotPrebuiltError ToolchainError UsageError",
    "kjit.runtime.declared": "DeclaredModule module product",
    "kjit.runtime.highway": "highway_include",
    "kjit.runtime.inline": "load_inline",
    "kjit.runtime.load": "jit load_jit stats",
    "kjit.runtime.once": "cache_once",
    "kjit.runtime.torch_op": "torch_op",
    "kjit.runtime.warm": "warm",
    "kjit.spec": "CudaArch Spec Target Variant make_cpp_args",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
_SUBMODULES = ("benchmark", "testing")

__all__ = ["__version__", *_HOMES, *_SUBMODULES]  # noqa: PLE0604 (all of them are strings)


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return importlib.import_module(f"kjit.{name}")
    if name == "__version__":
        globals()[name] = _installed_version()
        return globals()[name]
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kjit' has no attribute '{name}'")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _installed_version() -> str:
    # Not called `_version`: the import of the module of that name would replace it.
    try:
        from kjit._version import __version__
    except ModuleNotFoundError:  # a checkout that was never installed
        return "0.1.0.dev0"
    return str(__version__)


def __dir__() -> list[str]:
    return sorted(__all__)
