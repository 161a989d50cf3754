"""Detection of a GPU that slowed down during a measurement.

The driver counts, for each reason, the time for which it has held the clocks down under load. The difference of two
readings is complete, unlike samples of the clocks. Read through NVML; without NVML or these counters nothing is
reported, as measurements do not depend on it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_NVML = "libnvidia-ml.so.1"

# nvmlPerfPolicyType_t, without policies that are not limits (an idle GPU, clocks fixed by the application).
_POLICIES = {0: "its power limit", 1: "its temperature", 3: "its board's limit", 5: "its reliability voltage"}


class _ViolationTime(ctypes.Structure):
    """nvmlViolationTime_t: the time of the reading, and the counted time, in nanoseconds."""

    _fields_ = (("reference", ctypes.c_ulonglong), ("violation", ctypes.c_ulonglong))


class ThrottleWatch:
    """The limits that slowed the GPU down, available after the `with`."""

    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = ()


@contextmanager
def watch_throttling(uuid: str | None) -> Iterator[ThrottleWatch]:
    """Detect limits that hold the clocks down within the `with`.

    Args:
        uuid: the GPU's id in NVML (`GPU-...`); None for a CPU, which is not watched.
    """
    watch = ThrottleWatch()
    before = _read(uuid) if uuid is not None else {}
    yield watch
    after = _read(uuid) if uuid is not None else {}
    watch.reasons = tuple(_POLICIES[key] for key in _POLICIES if after.get(key, 0) > before.get(key, after.get(key, 0)))


def _read(uuid: str) -> dict[int, int]:
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return {}
    if nvml.nvmlInit_v2() != 0:
        return {}
    try:
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) != 0:
            return {}
        counters = {}
        for policy in _POLICIES:
            status = _ViolationTime()
            if nvml.nvmlDeviceGetViolationStatus(handle, ctypes.c_int(policy), ctypes.byref(status)) == 0:
                counters[policy] = int(status.violation)
        return counters
    finally:
        nvml.nvmlShutdown()
