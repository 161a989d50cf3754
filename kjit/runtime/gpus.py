"""The GPUs that this process sees.

They are read from NVML, the driver's management library, through ctypes: it needs neither torch nor `nvidia-smi`, and
does not initialise CUDA in this process, so that a later `fork` (the workers of a DataLoader) still works. If torch has
already initialised CUDA, torch is used instead, as it knows the order of devices in the program.

NVML orders devices by bus, CUDA by default by speed. On a machine with different GPUs and without
`CUDA_DEVICE_ORDER=PCI_BUS_ID`, an index is ambiguous, and all GPUs count as visible; so is the name of a MIG instance.
"""

from __future__ import annotations

import ctypes
import os
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
    """

    version: str
    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...]


def visible_capabilities() -> list[Capability]:
    """The compute capability of each GPU visible to this process, in order; empty without a GPU or driver."""
    torch = torch_with_cuda()
    if torch is not None:
        return [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]
    return [gpu.capability for gpu in visible_gpus()]


def visible_gpus() -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` allows, according to NVML."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    driver = query_driver()
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
    is_ambiguous = False
    for item in (item.strip() for item in visible.split(",")):
        if item.isdecimal() and int(item) < len(driver.gpus):
            chosen.append(driver.gpus[int(item)])
            is_ambiguous |= not by_bus
        elif item.startswith("MIG-") and driver.gpus:
            chosen.append(driver.gpus[0])  # a part of one of them
            is_ambiguous = True
        else:
            named = [gpu for gpu in driver.gpus if item.startswith("GPU-") and gpu.uuid.startswith(item)]
            if len(named) != 1:
                break
            chosen += named
    if is_ambiguous and len({gpu.capability for gpu in driver.gpus}) > 1:
        return list(driver.gpus)
    return chosen


@lru_cache(maxsize=1)
def query_driver() -> Driver | None:
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
        newest = (cuda.value // 1000, cuda.value % 1000 // 10)
        return Driver(version.value.decode(errors="replace"), newest, tuple(gpus))
    finally:
        nvml.nvmlShutdown()


def _by_index(nvml: ctypes.CDLL, index: int) -> Gpu | None:
    handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return None
    if nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) != 0:
        return None
    name, uuid = ctypes.create_string_buffer(_NAME_BYTES), ctypes.create_string_buffer(_UUID_BYTES)
    nvml.nvmlDeviceGetName(handle, name, _NAME_BYTES)
    nvml.nvmlDeviceGetUUID(handle, uuid, _UUID_BYTES)
    return Gpu(name.value.decode(errors="replace"), (major.value, minor.value), uuid.value.decode(errors="replace"))
