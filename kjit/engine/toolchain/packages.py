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
_WITH_SUFFIX = ("cudnn", "nccl")  # packages with versions of their own
_MISSING_HEADER = re.compile(
    r"error: '?(?P<header>[\w./-]+\.(?:h|hpp|cuh))'?(?:: No such file or directory| file not found)"
)
_MISSING_LIBRARY = re.compile(
    r"cannot find -l(?P<gnu>[\w+.-]+?):?(?:\s|$)|unable to find library -l(?P<lld>\S+)|library not found: (?P<mold>\S+)"
)


def hint(log: str, toolchain: Toolchain) -> str | None:
    """A hint for the first missing header or library in a log, if it belongs to CUDA or to Google Highway."""
    gpu = toolchain.gpu
    if (match := _MISSING_LIBRARY.search(log)) is not None:
        name = match["gnu"] or match["lld"] or match["mold"]
        found = find_versioned(name, toolchain)
        if found is not None:
            return f"it is installed as '{found}': name that file in extra_ldflags, by its path"
        if name == "cuda":
            return (
                "there is no driver here: get its functions when they are called, from "
                "cudaGetDriverEntryPointByVersion, which needs no -lcuda"
            )
    elif (match := _MISSING_HEADER.search(log)) is not None:
        if match["header"].startswith(HEADERS):
            return highway_hint()
        name = match["header"]
    else:
        return None
    package = next((package for names, package in _PACKAGES.items() if re.match(names, name)), None)
    if package is None or gpu is None:
        return None
    if toolchain.target.is_simulated:
        return f"the simulator does not have {package}: exclude the code that needs it by `#if !KJIT_SIM`"
    if gpu.toolkit is None or gpu.toolkit.origin != "PyPI wheels":
        return f"it belongs to {package}, which is not in the CUDA that kjit found (`kjit doctor`): install it there"
    major = gpu.toolkit.version[0]
    suffix = f"-cu{major}" if package in _WITH_SUFFIX or major < 13 else ""
    return f"CUDA's compiler from PyPI comes without {package}: `pip install nvidia-{package}{suffix}`"
