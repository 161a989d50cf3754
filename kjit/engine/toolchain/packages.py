"""The packages that provide a missing header or library.

CUDA's libraries are separate packages, not installed with the compiler from PyPI.
"""

from __future__ import annotations

import re

from kjit.engine.compile.libraries import find_versioned
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime.highway import HEADERS, highway_hint

# Prefixes of header names, libraries, and the name of the PyPI package after `nvidia-`.
_PACKAGES = (
    ("cublas|nvblas", "cublas|cublasLt|nvblas", "cublas"),
    ("curand", "curand", "curand"),
    ("cufft|cudalibxt", "cufft|cufftw", "cufft"),
    ("cusparse", "cusparse", "cusparse"),
    ("cusolver", "cusolver|cusolverMg", "cusolver"),
    ("nvrtc", "nvrtc|nvrtc-builtins", "cuda-nvrtc"),
    ("nvJitLink", "nvJitLink", "nvjitlink"),
    ("cupti", "cupti", "cuda-cupti"),
    ("nvtx3/|nvToolsExt", "nvToolsExt", "nvtx"),
    ("npp", "npp\\w+", "npp"),
    ("nvjpeg", "nvjpeg", "nvjpeg"),
    ("nvml", "nvidia-ml", "nvml-dev"),
)
# Versioned separately from CUDA, with CUDA's major version in the name.
_OTHER_PACKAGES = (("cudnn", "cudnn\\w*", "cudnn"), ("nccl", "nccl", "nccl"))
_MISSING_HEADER = re.compile(
    r"error: '?(?P<header>[\w./-]+\.(?:h|hpp|cuh))'?(?:: No such file or directory| file not found)"
)
_MISSING_LIBRARY = re.compile(
    r"cannot find -l(?P<gnu>[\w+.-]+?):?(?:\s|$)|unable to find library -l(?P<lld>\S+)|library not found: (?P<mold>\S+)"
)


def hint(log: str, toolchain: Toolchain) -> str | None:
    """A hint for the first missing header or library in a log, if it belongs to CUDA or to Google Highway."""
    cuda = toolchain.cuda or toolchain.cuda_headers
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
        package = _package(name, 1)
    elif (match := _MISSING_HEADER.search(log)) is not None:
        if match["header"].startswith(HEADERS):
            return highway_hint()
        package = _package(match["header"], 0)
    else:
        return None
    if package is None or cuda is None:
        return None
    name, is_versioned_apart = package
    major = cuda.version[0]
    if toolchain.target.is_simulated:
        return f"the simulator does not have {name}: exclude the code that needs it by `#if !KJIT_SIM`"
    if cuda.origin != "PyPI wheels":
        return f"it belongs to {name}, which is not in the CUDA that kjit found (`kjit doctor`): install it there"
    if is_versioned_apart or major < 13:
        return (
            f"`pip install nvidia-{name}-cu{major}` brings it, if its folder is added as well (extra_include_paths, -L)"
        )
    return f"it belongs to {name}, which CUDA's compiler from PyPI comes without: `pip install nvidia-{name}`"


def _package(name: str, column: int) -> tuple[str, bool] | None:
    """The package, without `nvidia-`, and whether it is versioned separately from CUDA."""
    for table, is_apart in ((_PACKAGES, False), (_OTHER_PACKAGES, True)):
        for row in table:
            if column == 0 and re.match(row[0], name):
                return row[2], is_apart
            if column == 1 and re.fullmatch(row[1], name):
                return row[2], is_apart
    return None
