"""Machines for tests of the search for compilers and CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import write_cuda, write_gcc

from kjit.engine.toolchain import cuda as cuda_module
from kjit.runtime import gpus


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> None:
    """No compiler but those that a test writes: PATH is empty, and what a variable named is forgotten."""
    for name in ("CXX", "CUDA_HOME", "KJIT_CUDA_HOME", "KJIT_CUDA_ARCH_LIST", "TVM_FFI_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(cache_dir / "no-programs"))
    monkeypatch.setattr(cuda_module, "DEFAULT_HOME", cache_dir / "no-cuda")
    monkeypatch.setattr(cuda_module, "wheel_homes", list)
    monkeypatch.setattr(cuda_module, "header_homes", list)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "query_driver", lambda *_: None)


@pytest.fixture
def cxx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    program = write_gcc(tmp_path / "bin" / "c++")
    monkeypatch.setenv("PATH", str(program.parent))
    return program


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    home = write_cuda(tmp_path / "cuda")
    monkeypatch.setenv("KJIT_CUDA_HOME", str(home))
    return home
