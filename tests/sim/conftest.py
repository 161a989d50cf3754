"""Fixtures of the simulator's tests: builds of the kernels of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from exported import functions_of

import kjit
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import Target
from kjit.testing import simulated

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def load_simulated() -> Callable[..., Any]:
    """A function that builds `<name>.cuh` of this folder with its functions and other exports, and loads it."""

    def load(name: str, exports: Iterable[tuple[str, str]] = (), *, check: bool = False) -> Any:
        try:
            Toolchain.for_target(Target.sim(check=check))
        except ToolchainError as error:
            pytest.skip(f"needs CUDA's headers for the simulator: {error.message}")
        source = HERE / f"{name}.cuh"
        with simulated(check=check):
            return kjit.load_jit(name, cuda_files=[source], cuda_wrappers=[*functions_of(source), *exports])

    return load
