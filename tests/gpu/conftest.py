"""What the GPU tests share: building the kernels of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import kjit

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def load_cuda(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Iterable[tuple[str, str]]], Any]:
    """A function that builds `<name>.cuh` of this folder with the given exports, and loads it."""
    build_directory = tmp_path_factory.mktemp("cuda-modules")

    def load(name: str, exports: Iterable[tuple[str, str]]) -> Any:
        return kjit.load_jit(
            name, cuda_files=[HERE / f"{name}.cuh"], cuda_wrappers=list(exports), build_directory=build_directory
        )

    return load
