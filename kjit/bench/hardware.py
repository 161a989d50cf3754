"""The hardware of a measurement, and its limits: published peaks, or a copy measured in the same run."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.bench.peaks import Peaks, find_peaks

_COPY_BYTES = 256 * 2**20
"""Bytes read and written by the copy that bandwidth is compared with: more than any last-level cache."""


@dataclass(frozen=True)
class Share:
    """A fraction of a limit: `value` of `of` (`peak bandwidth`, `peak compute` or `copy bandwidth`)."""

    value: float
    of: str


@dataclass
class Hardware:
    """One device.

    Args:
        device: PyTorch's name: `cpu`, `cuda:0`.
        name: its product name.
        uuid: the id of a GPU in NVML.
        peaks: the vendor's published peaks; None if unknown.
        copy_gbps: the bandwidth of a plain copy; measured on first use.
    """

    device: str
    name: str
    uuid: str | None
    peaks: Peaks | None
    copy_gbps: float | None = None

    def share(self, gbps: float | None, tflops: float | None, dtype: str | None) -> Share | None:
        """The share of the device's limit, of bandwidth or compute, whichever is nearer."""
        shares = []
        if gbps is not None and self.peaks is not None:
            shares.append(Share(gbps / self.peaks.gbps, "peak bandwidth"))
        elif gbps is not None:
            if self.copy_gbps is None:
                self.copy_gbps = measure_copy(self.device)
            shares.append(Share(gbps / self.copy_gbps, "copy bandwidth"))
        rate = self.peaks.tflops.get(dtype) if self.peaks is not None and dtype is not None else None
        if tflops is not None and rate is not None:
            shares.append(Share(tflops / rate, "peak compute"))
        return max(shares, key=lambda share: share.value, default=None)

    def to_json(self) -> dict[str, Any]:
        """For `--json`; with the copy's bandwidth only if it was measured."""
        known = None
        if self.peaks is not None:
            known = {"gbps": self.peaks.gbps, "tflops": dict(self.peaks.tflops), "source": self.peaks.source}
        return {"device": self.device, "name": self.name, "peaks": known, "copy_gbps": self.copy_gbps}


def measure_copy(device: str) -> float:
    """GB/s, read and written, of `Tensor.copy_` on tensors larger than any cache."""
    import torch

    from kjit.benchmark import run_benchmark

    source = torch.empty(_COPY_BYTES // 2, dtype=torch.uint8, device=device).zero_()
    target = torch.empty_like(source)
    return _COPY_BYTES / run_benchmark(lambda: target.copy_(source), device=device).median / 1e3


def find_hardware(device: str) -> Hardware:
    """Describe the device that PyTorch names `device` (`cpu`, `cuda`, `cuda:1`)."""
    import torch

    if torch.device(device).type != "cuda":
        return Hardware("cpu", f"{_cpu_name()}, {torch.get_num_threads()} threads", None, None)
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    properties = torch.cuda.get_device_properties(index)
    return Hardware(f"cuda:{index}", properties.name, f"GPU-{properties.uuid}", find_peaks(properties.name))


def _cpu_name() -> str:
    # The model on Linux; the architecture elsewhere.
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
