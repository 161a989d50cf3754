"""CUDA's tools other than its compiler, and their output.

They are searched for in `KJIT_CUDA_HOME`, `CUDA_HOME`, the wheels from PyPI, `PATH`, the toolkit that compiles,
`/usr/local/cuda`. The disassembler is also in triton's wheel, which is always installed; the profiler has folders of
its own. The first one found is used: a tool need not match the compiler, and a newer one reads the output of an older
compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from kjit.engine.toolchain import probes
from kjit.engine.toolchain.cuda import DEFAULT_HOME, homes, named_home
from kjit.errors import KjitError, ToolchainError

Tool = Literal["cuobjdump", "nvdisasm", "compute-sanitizer", "ncu"]

_HINTS = {
    "cuobjdump": "install it with `pip install nvidia-cuda-cuobjdump`",
    "nvdisasm": "install it with `pip install nvidia-cuda-nvdisasm`",
    "compute-sanitizer": "install it with `pip install nvidia-cuda-sanitizer-api`, or with the CUDA toolkit",
    "ncu": "it comes with the CUDA toolkit, and as a package of its own, Nsight Compute, from NVIDIA",
}


def find_tool(name: Tool) -> Path:
    """The program `name`.

    Raises:
        ToolchainError: it is not installed.
    """
    for path in _places(name):
        # Files from wheels lack the executable bit.
        if path.is_file() and (os.access(path, os.X_OK) or name == "compute-sanitizer"):
            return path
    raise ToolchainError(f"{name} was not found.", hint=_HINTS[name])


def _places(name: str) -> Iterator[Path]:
    if (named := named_home()) is not None:
        yield from _in_home(named[0], name)
    for folder in probes.package_folders("nvidia"):
        for home in sorted(Path(folder).glob("cu[0-9]*"), key=_number, reverse=True):
            yield from _in_home(home, name)
    found = shutil.which(name)
    if found is not None:
        yield Path(found)
    for home, _ in homes():
        yield from _in_home(home, name)
    for folder in probes.package_folders("triton"):
        yield Path(folder, "backends", "nvidia", "bin", name)
    yield from _in_home(DEFAULT_HOME, name)
    if name == "ncu":
        yield from sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), key=_number, reverse=True)


def _in_home(home: Path, name: str) -> Iterator[Path]:
    if name == "compute-sanitizer":
        # The script in bin/ refers to a folder that only a toolkit has.
        yield home / "compute-sanitizer" / name
    yield home / "bin" / name
    if name == "ncu":
        yield from sorted(home.glob("nsight-compute-*/ncu"), key=_number, reverse=True)


def _number(path: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", str(path))]


def run_tool(name: Tool, *arguments: str | Path, folder: Path | None = None) -> str:
    """The output of `name`.

    Raises:
        ToolchainError: it is not installed.
        KjitError: it failed; the message has its last line.
    """
    command = [str(find_tool(name)), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise KjitError(f"{name} failed (status {done.returncode}): {lines[-1] if lines else 'without a message'}")
    return done.stdout
