"""The hardware of a measurement, and its limits: published peaks, or a copy measured in the same run.

A GPU that is not in the table, and any CPU, has no peak here: nothing is estimated from clocks and bus widths.

Rates are for dense matrices (vendors like to print twice as much, with sparsity) at the boost clock: fp16, bf16, fp8
and int8 on tensor cores with fp32 or int32 accumulation, fp32 and fp64 on the ordinary cores. Bandwidth is in 10^9
bytes a second, rates are in 10^12 operations a second, and a fused multiply-add is two operations.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

_COPY_BYTES = 256 * 2**20
"""Bytes read and written by the copy that bandwidth is compared with: more than any last-level cache."""


class Share(NamedTuple):
    """A fraction of a limit: `value` of `of` (`peak bandwidth`, `peak compute` or `copy bandwidth`)."""

    value: float
    of: str


@dataclass(frozen=True)
class Peaks:
    """The limits of one GPU.

    Args:
        gbps: memory bandwidth, GB/s.
        tflops: TFLOP/s (TOP/s for int8) by the name of the dtype in PyTorch.
        source: where the numbers are published.
    """

    gbps: float
    tflops: Mapping[str, float]
    source: str


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
        peaks = None if self.peaks is None else asdict(self.peaks)
        return {"device": self.device, "name": self.name, "peaks": peaks, "copy_gbps": self.copy_gbps}


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
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def find_peaks(gpu: str) -> Peaks | None:
    """The peaks of the GPU with the driver's name `gpu` (`NVIDIA H200`); None if it is not in the table."""
    return _PEAKS.get(gpu.removeprefix("NVIDIA ").strip())


def _rates(*, fp64: float, fp32: float, half: float, eight: float | None, int8: float) -> dict[str, float]:
    rates = {"float64": fp64, "float32": fp32, "float16": half, "bfloat16": half, "int8": int8}
    return rates if eight is None else {**rates, "float8_e4m3fn": eight, "float8_e5m2": eight}


_A100_RATES = _rates(fp64=9.7, fp32=19.5, half=312, eight=None, int8=624)
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet"
_H100_SXM_RATES = _rates(fp64=34, fp32=67, half=989.4, eight=1978.9, int8=1978.9)
_H200 = "NVIDIA H200 Tensor Core GPU datasheet"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix"

_PEAKS = {
    "A100-SXM4-40GB": Peaks(1555, _A100_RATES, _A100),
    "A100-PCIE-40GB": Peaks(1555, _A100_RATES, _A100),
    "A100-SXM4-80GB": Peaks(2039, _A100_RATES, _A100),
    "A100 80GB PCIe": Peaks(1935, _A100_RATES, _A100),
    "A30": Peaks(933, _rates(fp64=5.2, fp32=10.3, half=165, eight=None, int8=330), "NVIDIA A30 datasheet"),
    "A10": Peaks(600, _rates(fp64=0.49, fp32=31.2, half=125, eight=None, int8=250), "NVIDIA A10 datasheet"),
    "H100 80GB HBM3": Peaks(3350, _H100_SXM_RATES, _H100),
    "H100 PCIe": Peaks(2000, _rates(fp64=26, fp32=51, half=756.5, eight=1513, int8=1513), _H100),
    "H100 NVL": Peaks(3900, _rates(fp64=30, fp32=60, half=835.5, eight=1670.5, int8=1670.5), _H100),
    "H200": Peaks(4800, _H100_SXM_RATES, _H200),
    "H200 NVL": Peaks(4800, _rates(fp64=30, fp32=60, half=835.5, eight=1670.5, int8=1670.5), _H200),
    "B200": Peaks(
        8000,
        _rates(fp64=40, fp32=80, half=2250, eight=4500, int8=4500),
        "NVIDIA Blackwell Architecture technical brief, HGX B200",
    ),
    "L4": Peaks(300, _rates(fp64=0.49, fp32=30.3, half=121, eight=242.5, int8=242.5), "NVIDIA L4 datasheet"),
    "L40S": Peaks(864, _rates(fp64=1.4, fp32=91.6, half=362, eight=733, int8=733), "NVIDIA L40S datasheet"),
    "GeForce RTX 4090": Peaks(1008, _rates(fp64=1.3, fp32=82.6, half=165.2, eight=330.3, int8=660.6), _ADA),
}
