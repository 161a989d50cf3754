"""Builds of the C++ cases with the address and undefined-behaviour sanitizers, and a Python that can load them.

Nothing is linked that kjit compiles apart: the headers' own functions are in the case's unit, so they are checked too.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kjit.engine.compile.plan import wrapper_unit
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include, tvm_ffi_library
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Target

VARIABLE = "KJIT_TEST_SANITIZED"
"""Set in processes with `environment`."""

_FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0", "-g1"]
_SANITIZERS = {
    "gcc": ("libasan.so",),
    # Of a clang with one folder for all targets, and of one with a folder for each.
    "clang": (f"libclang_rt.asan-{platform.machine()}.so", "libclang_rt.asan.so"),
}


def build(source: Path, exports: Iterable[tuple[str, str]], folder: Path) -> Path:
    """The library made of `source`, whose exports tvm-ffi can load."""
    library = folder / f"{source.stem}.so"
    unit = folder / f"{source.stem}_unit.cpp"
    unit.write_text(wrapper_unit([str(source)], tuple(exports), with_cuda_types=False))
    tvm_ffi = tvm_ffi_library()
    command = [str(_toolchain().cxx.path), "-std=c++20", "-fPIC", "-shared", *_FLAGS, f"-I{kjit_include()}"]
    if _toolchain().cxx.family == "clang":
        sanitizer = _sanitizer()
        assert sanitizer is not None
        command += ["-shared-libsan", f"-Wl,-rpath,{sanitizer.parent}"]
    command += ["-isystem", str(tvm_ffi_include()), str(unit), "-o", str(library)]
    command += [f"-L{tvm_ffi.parent}", "-ltvm_ffi", f"-Wl,-rpath,{tvm_ffi.parent}"]
    # The compiler itself is not to be watched.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, env=plain, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return library


@cache
def why_not() -> str:
    """Why sanitized code cannot be loaded here; empty if it can."""
    missing = [] if _sanitizer() else ["library of the address sanitizer"]
    missing += [] if _runtime("libstdc++.so.6") else ["libstdc++.so.6"]
    return f"the C++ compiler has no {' and no '.join(missing)}" if missing else ""


def environment() -> dict[str, str]:
    """The environment of a Python that loads sanitized libraries.

    The sanitizer must come before everything else in a process, and libstdc++ with it: it looks for the function that
    throws exceptions as it starts. Python itself keeps much until the end, which is no leak of the cases'.
    """
    preloaded = f"{_sanitizer()} {_runtime('libstdc++.so.6')}"
    return {
        **os.environ,
        VARIABLE: "1",
        "LD_PRELOAD": preloaded,
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _toolchain() -> Toolchain:
    return Toolchain.for_target(Target.cpu())


def _sanitizer() -> Path | None:
    return _runtime(*_SANITIZERS[_toolchain().cxx.family])


@cache
def _runtime(*names: str) -> Path | None:
    """The compiler's own library of one of these names."""
    for name in names:
        command = [str(_toolchain().cxx.path), f"-print-file-name={name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = Path(done.stdout.strip())
        if found.is_absolute():
            return found.resolve()
    return None
