"""Fixtures of the C++ tests: modules built from the C++ files of this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sanitized
import tvm_ffi
from each_pattern import unit_of
from quick_simulator import is_for_users_flags

import kjit

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def load_cpp(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A function that builds `<name>.cpp`, or another file with its exports, every warning an error, and loads it.

    Nightly it is optimised as users' modules are. The tests of ops do that daily; g++ makes vectors of `omp simd` loops
    at -O1 too.
    """
    optimisation = [] if is_for_users_flags(pytestconfig) else ["-O1"]

    def load(name: str, path: Path | None = None, exports: Sequence[tuple[str, str]] = ()) -> Any:
        source = path or HERE / f"{name}.cpp"
        if sanitized.VARIABLE in os.environ:
            if path is not None:
                source = tmp_path_factory.mktemp(name) / f"{name}.cpp"
                source.write_text(unit_of(path, exports))
            return tvm_ffi.load_module(str(sanitized.build(source, tmp_path_factory.mktemp(name))))
        return kjit.load_jit(
            name,
            cpp_files=[source],
            cpp_wrappers=exports,
            extra_cflags=["-Wall", "-Wextra", "-Wconversion", "-Werror", *optimisation],
        )

    return load
