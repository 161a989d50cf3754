"""Detection of a GPU that slowed down during a measurement.

The driver counts, for each reason, for how long it has held the clocks below what the load asked for. The difference of
two readings misses nothing, where looking at the clocks now and then would. Read through NVML; where NVML or these
counters are missing, nothing is reported: a measurement does not depend on it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_NVML = "libnvidia-ml.so.1"

# nvmlPerfPolicyType_t. The policies left out (an idle GPU, clocks fixed by the application) say nothing about limits.
_POLICIES = {0: "its power limit", 1: "its temperature", 3: "its board's limit", 5: "its reliability voltage"}


class _ViolationTime(ctypes.Structure):
    """nvmlViolationTime_t: when the counter was read, and the time counted; both in nanoseconds."""

    _fields_ = (("reference", ctypes.c_ulonglong), ("violation", ctypes.c_ulonglong))


class ThrottleWatch:
    """What slowed the GPU down, once the `with` is left."""

    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = ()


@contextmanager
def watch_throttling(uuid: str | None) -> Iterator[ThrottleWatch]:
    """Find out which limits held the clocks down within the `with`.

    Args:
        uuid: of the GPU, as NVML spells it (`GPU-...`); None watches nothing (for a CPU).
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
