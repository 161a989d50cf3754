"""Fixtures of the tests of CUDA code: builds of the kernels of this folder, for the GPU or the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exported import functions_of
from machine import QUICKLY, SIMULATOR
from warm import warm_up

import kjit
from kjit import env
from kjit.engine.toolchain.cuda import NoCudaError, find_cuda
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import Target
from kjit.testing import simulated

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def _simulator() -> Iterator[None]:
    """Without a GPU, build kernels for the simulator."""
    if SIMULATOR is None:
        try:
            find_cuda()
        except NoCudaError as error:
            pytest.skip(f"needs nvcc: {error.message}")
        yield
        return
    if env.forbids_simulation():
        pytest.skip("needs an NVIDIA GPU, and torch sees none here")
    try:
        Toolchain.for_target(Target(SIMULATOR))
    except ToolchainError as error:
        pytest.skip(f"needs an NVIDIA GPU, or CUDA's headers for the simulator: {error.message}")
    if SIMULATOR == "sim":
        warm_up(simulator=True)
    with simulated(check=SIMULATOR == "sim-check"):
        yield


@pytest.fixture(scope="session")
def load_cuda() -> Callable[..., Any]:
    """A function that builds `<name>.cuh` of this folder with its functions, other exports and flags, and loads it."""

    def load(name: str, exports: Iterable[tuple[str, str]] = (), *flags: str) -> Any:
        source, wrappers = HERE / f"{name}.cuh", list(exports)
        if source.is_file():
            wrappers = [*functions_of(source), *wrappers]
        else:  # the ops of a pattern, for the CPU too
            source = HERE / f"{name}.h"
        return kjit.load_jit(
            name,
            cuda_files=[source],
            cuda_wrappers=wrappers,
            extra_cuda_cflags=[*QUICKLY, *flags],
        )

    return load


@pytest.fixture(scope="module")
def module(load_cuda: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """The `CASES` of a test's module, with its `EXPORTS`."""
    return load_cuda(request.module.CASES, getattr(request.module, "EXPORTS", ()))
