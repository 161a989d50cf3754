"""The packages that provide a missing header or library.

CUDA's libraries are separate packages, not installed with the compiler from PyPI.
"""

from __future__ import annotations

import re

from kjit.engine.compile.libraries import find_versioned
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime.highway import HEADERS, highway_hint

# How names of headers and libraries begin, and the name of the PyPI package after `nvidia-`.
_PACKAGES = {
    "cublas|nvblas": "cublas",
    "curand": "curand",
    "cufft|cudalibxt": "cufft",
    "cusparse": "cusparse",
    "cusolver": "cusolver",
    "nvrtc": "cuda-nvrtc",
    "nvJitLink": "nvjitlink",
    "cupti": "cuda-cupti",
    "nvtx3/|nvToolsExt": "nvtx",
    "npp": "npp",
    "nvjpeg": "nvjpeg",
    "nvml|nvidia-ml": "nvml-dev",
    "cudnn": "cudnn",
    "nccl": "nccl",
}
_VERSIONED_APART = ("cudnn", "nccl")
"""Packages with versions of their own, and CUDA's major version in the name."""

_MISSING_HEADER = re.compile(
    r"error: '?(?P<header>[\w./-]+\.(?:h|hpp|cuh))'?(?:: No such file or directory| file not found)"
)
_MISSING_LIBRARY = re.compile(
    r"cannot find -l(?P<gnu>[\w+.-]+?):?(?:\s|$)|unable to find library -l(?P<lld>\S+)|library not found: (?P<mold>\S+)"
)


def hint(log: str, toolchain: Toolchain) -> str | None:
    """A hint for the first missing header or library in a log, if it belongs to CUDA or to Google Highway."""
    gpu = toolchain.gpu
    cuda = None if gpu is None else gpu.toolkit or gpu.headers
    if (match := _MISSING_LIBRARY.search(log)) is not None:
        name = match["gnu"] or match["lld"] or match["mold"]
        found = find_versioned(name, toolchain)
        if found is not None:
            return f"it is installed as '{found}': name that file in extra_ldflags, by its path"
        if name == "cuda":
            release = "" if cuda is None else f"-{cuda.version[0]}-{cuda.version[1]}"
            return (
                "there is no driver here: get its functions when they are called, from "
                "cudaGetDriverEntryPointByVersion, which needs no -lcuda; or install a stub to link with (in NVIDIA's "
                f"repository for Debian and Ubuntu: cuda-driver-dev{release}), and add its folder by -L"
            )
    elif (match := _MISSING_HEADER.search(log)) is not None:
        if match["header"].startswith(HEADERS):
            return highway_hint()
        name = match["header"]
    else:
        return None
    package = next((package for names, package in _PACKAGES.items() if re.match(names, name)), None)
    if package is None or cuda is None:
        return None
    major = cuda.version[0]
    if toolchain.target.is_simulated:
        return f"the simulator does not have {package}: exclude the code that needs it by `#if !KJIT_SIM`"
    if cuda.origin != "PyPI wheels":
        return f"it belongs to {package}, which is not in the CUDA that kjit found (`kjit doctor`): install it there"
    if package in _VERSIONED_APART or major < 13:
        brings = f"`pip install nvidia-{package}-cu{major}` brings it"
        return f"{brings}, if its folder is added as well (extra_include_paths, -L)"
    return f"it belongs to {package}, which CUDA's compiler from PyPI comes without: `pip install nvidia-{package}`"
