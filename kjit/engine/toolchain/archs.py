"""The CUDA architectures to build for: those of the GPUs here, or requested ones that this CUDA knows."""

from __future__ import annotations

from collections.abc import Sequence

from kjit import env
from kjit.engine.toolchain.cuda import CudaToolkit, find_cuda
from kjit.errors import ToolchainError, UsageError
from kjit.runtime import gpus
from kjit.runtime.load import native_arch
from kjit.spec import CudaArch


def gpu_archs() -> list[CudaArch]:
    """The architectures of the GPUs that this process sees, in order and without duplicates; empty without a GPU."""
    return list(dict.fromkeys(native_arch(capability) for capability in gpus.visible_capabilities()))


def resolve_archs(requested: Sequence[str] | None) -> list[CudaArch]:
    """The architectures to build for: the requested ones, else those that the environment lists, else the GPUs present.

    Args:
        requested: items as `CudaArch.parse` reads them; one item may hold several, separated by commas or spaces.

    Raises:
        UsageError: one is not an architecture, or this CUDA does not build for it.
        ToolchainError: none is given and there is no GPU, or there is no CUDA.
    """
    items = [item for text in requested or () for item in env.split_list(text)]
    if not items and (listed := env.cuda_arch_list()) is not None:
        items = listed[1]
    archs = list(dict.fromkeys(CudaArch.parse(item) for item in items)) or gpu_archs()
    if not archs:
        raise ToolchainError(
            "There is no GPU here, and no architecture to build for was named.",
            hint=f"give --arch 8.0,9.0a or set {env.CUDA_ARCH_LIST}, or work on a machine with a GPU",
        )
    cuda = find_cuda()
    for arch in archs:
        check_arch(arch, cuda)
    return archs


def check_arch(arch: CudaArch, cuda: CudaToolkit) -> None:
    """Raise a `UsageError` if this CUDA does not build for `arch`."""
    if cuda.knows(arch.digits):
        return
    plain = sorted(int(feature) for feature in cuda.nvcc.features if feature.isdecimal())
    raise UsageError(
        f"{cuda.label} in '{cuda.home}' does not build for architecture {arch}.",
        hint=f"it knows {', '.join(f'{number // 10}.{number % 10}' for number in plain)} (from 9.0 on also as 9.0a)",
    )
