"""Compilers and CUDA toolkits that only look like them, for tests of the search."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kjit.runtime import gpus
from kjit.runtime.gpus import Driver, Gpu

GCC = "g++ (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc."
NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {version}, V{version}.88"


def write_program(path: Path, body: str) -> Path:
    """A shell script that counts how often it is called, in a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$@" >>"{path}.calls"\n{body}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def calls(path: Path) -> list[str]:
    """The arguments of each call of such a script."""
    record = Path(f"{path}.calls")
    return record.read_text().splitlines() if record.exists() else []


def write_gcc(path: Path, version: str = "12.2.0") -> Path:
    banner = GCC.replace("12.2.0\n", f"{version}\n")
    return write_program(path, f'case "$1" in --version) echo "{banner}";; *) echo /lib/libgomp.spec;; esac')


def write_cuda(home: Path, version: str = "13.0") -> Path:
    """A folder that looks like a CUDA toolkit."""
    write_program(
        home / "bin" / "nvcc",
        f'case "$1" in --version) echo "{NVCC.format(version=version)}";; *) printf "sm_80\\nsm_90\\nsm_100\\n";; esac',
    )
    write_program(home / "bin" / "ptxas", "")
    write_program(home / "nvvm" / "bin" / "cicc", "")
    (home / "include").mkdir(parents=True)
    (home / "include" / "cuda_runtime.h").touch()
    (home / "include" / "cuda_runtime_api.h").touch()
    (home / "lib").mkdir()
    (home / "lib" / "libcudart.so.13").touch()
    return home


def add_gpus(monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int]) -> None:
    driver = Driver("580.1", (13, 0), tuple(Gpu(f"GPU {i}", cc, f"GPU-{i}") for i, cc in enumerate(capabilities)))
    monkeypatch.setattr(gpus, "query_driver", lambda *_: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
