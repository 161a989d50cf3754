"""Fixtures of the C++ tests: modules built from the C++ files of this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import sanitized
import tvm_ffi
from exported import functions_of
from forked import Forks
from quick_simulator import is_for_users_flags

import kjit
from kjit import env

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def load_cpp(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A function that builds `<name>.cpp` with its functions and other exports, every warning an error, and loads it.

    Nightly it is optimised as users' modules are. The tests of ops do that daily; g++ makes vectors of `omp simd` loops
    at -O1 too.
    """
    optimisation = [] if is_for_users_flags(pytestconfig) else ["-O1"]

    def load(name: str, exports: Iterable[tuple[str, str]] = ()) -> Any:
        source, wrappers = HERE / f"{name}.cpp", list(exports)
        if source.is_file():
            wrappers = [*functions_of(source), *wrappers]
        else:  # the ops of a pattern, for the GPU too
            source = HERE.parent / "gpu" / f"{name}.h"
        if sanitized.VARIABLE in os.environ:
            return tvm_ffi.load_module(str(sanitized.build(source, wrappers, tmp_path_factory.mktemp(name))))
        return kjit.load_jit(
            name,
            cpp_files=[source],
            cpp_wrappers=wrappers,
            extra_cflags=["-Wall", "-Wextra", "-Wconversion", "-Werror", *optimisation],
        )

    return load


@pytest.fixture(scope="module")
def module(load_cpp: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """The `CASES` of a test's module, with its `EXPORTS`."""
    return load_cpp(request.module.CASES, getattr(request.module, "EXPORTS", ()))


@pytest.fixture
def run_past_the_caches(forked: Forks) -> Callable[[str, str], str]:
    """A function that runs chosen tests of a file (`-k`) where each tensor is larger than the CPU's caches, and returns
    what pytest prints."""

    def run(file: str, chosen: str) -> str:
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", file, "-k", chosen]
        # The variable is read once per process. The settings of this repository are for one of the plugins.
        variables = {env.CPU_CACHE_BYTES: "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
        done = forked.pytest(*options, cwd=HERE, **variables)
        assert done.returncode == 0, done.stdout
        return str(done.stdout)

    return run
