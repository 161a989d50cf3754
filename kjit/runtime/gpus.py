"""The GPUs that this process sees.

They are read from NVML, the driver's management library, through ctypes: it needs neither torch nor `nvidia-smi`, and
does not initialise CUDA in this process, so that a later `fork` (the workers of a DataLoader) still works. If torch has
already initialised CUDA, torch is used instead, as it knows the order of devices in the program.

NVML orders devices by bus, CUDA by default by speed. On a machine with different GPUs and without
`CUDA_DEVICE_ORDER=PCI_BUS_ID`, an index is ambiguous, and all GPUs count as visible.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kjit.runtime.load import torch_with_cuda

Capability = tuple[int, int]

_NVML = "libnvidia-ml.so.1"
_UUID_BYTES = 96
_NAME_BYTES = 96


class Gpu(NamedTuple):
    """A GPU of this machine: its name, compute capability, and id in the driver."""

    name: str
    capability: Capability
    uuid: str


class Driver(NamedTuple):
    """NVML's description of this machine.

    Attributes:
        version: the driver's version.
        cuda: the newest CUDA that it supports, such as `(13, 0)`; zeros if unknown.
        gpus: in bus order.
        mig_parents: the GPU of each MIG instance.
    """

    version: str
    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...]
    mig_parents: tuple[tuple[str, Gpu], ...] = ()


def visible_capabilities() -> list[Capability]:
    """The compute capability of each GPU visible to this process, in order; empty without a GPU or driver."""
    torch = torch_with_cuda()
    if torch is not None:
        return [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]
    return [gpu.capability for gpu in visible_gpus()]


def visible_gpus() -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` allows, according to NVML."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    driver = query_driver(_mig_items(visible))
    if driver is None:
        return []
    return select_visible(driver, visible, by_bus=os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID")


def select_visible(driver: Driver, visible: str | None, *, by_bus: bool) -> list[Gpu]:
    """The GPUs for `CUDA_VISIBLE_DEVICES=visible`: CUDA reads indices and ids up to the first invalid one.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
    """
    if visible is None:
        return list(driver.gpus)
    chosen: list[Gpu] = []
    numbered = False
    for item in (item.strip() for item in visible.split(",")):
        if item.isdecimal() and int(item) < len(driver.gpus):
            chosen.append(driver.gpus[int(item)])
            numbered = True
            continue
        named = [gpu for name, gpu in driver.mig_parents if name == item]
        if item.startswith("GPU-"):
            named = [gpu for gpu in driver.gpus if gpu.uuid.startswith(item)]
        if len(named) != 1:
            break
        chosen.append(named[0])
    if numbered and not by_bus and len({gpu.capability for gpu in driver.gpus}) > 1:
        return list(driver.gpus)
    return chosen


@lru_cache(maxsize=8)
def query_driver(mig_items: tuple[str, ...] = ()) -> Driver | None:
    """NVML's description of this machine; None without an NVIDIA driver."""
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        version = ctypes.create_string_buffer(_NAME_BYTES)
        nvml.nvmlSystemGetDriverVersion(version, _NAME_BYTES)
        cuda = ctypes.c_int()
        nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda))
        gpus = [gpu for index in range(count.value) if (gpu := _by_index(nvml, index)) is not None]
        parents = [(item, gpu) for item in mig_items if (gpu := _parent_of_mig(nvml, item)) is not None]
        newest = (cuda.value // 1000, cuda.value % 1000 // 10)
        return Driver(version.value.decode(errors="replace"), newest, tuple(gpus), tuple(parents))
    finally:
        nvml.nvmlShutdown()


def _by_index(nvml: ctypes.CDLL, index: int) -> Gpu | None:
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return None
    return _describe(nvml, handle)


def _parent_of_mig(nvml: ctypes.CDLL, uuid: str) -> Gpu | None:
    part, parent = ctypes.c_void_p(), ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(part)) != 0:
        return None
    if nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part, ctypes.byref(parent)) != 0:
        return None
    return _describe(nvml, parent)


def _describe(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> Gpu | None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    if nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) != 0:
        return None
    name, uuid = ctypes.create_string_buffer(_NAME_BYTES), ctypes.create_string_buffer(_UUID_BYTES)
    nvml.nvmlDeviceGetName(handle, name, _NAME_BYTES)
    nvml.nvmlDeviceGetUUID(handle, uuid, _UUID_BYTES)
    return Gpu(name.value.decode(errors="replace"), (major.value, minor.value), uuid.value.decode(errors="replace"))


def _mig_items(visible: str | None) -> tuple[str, ...]:
    items: Sequence[str] = () if visible is None else visible.split(",")
    return tuple(item.strip() for item in items if item.strip().startswith("MIG-"))
