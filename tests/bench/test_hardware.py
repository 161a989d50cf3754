from __future__ import annotations

import pytest

from kjit.bench.hardware import Hardware, Peaks, find_peaks


def test_a_known_gpu_has_its_published_peaks() -> None:
    peaks = find_peaks("NVIDIA H200")
    assert peaks is not None
    assert peaks.gbps == 4800
    assert peaks.tflops["bfloat16"] == pytest.approx(989.4)
    assert "datasheet" in peaks.source


@pytest.mark.parametrize("name", ["NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce GTX 9999", "H200 something"])
def test_nothing_is_made_up_for_a_gpu_that_is_not_known(name: str) -> None:
    assert find_peaks(name) is None


def test_the_share_is_of_the_limit_that_is_nearer() -> None:
    device = Hardware("cuda:0", "x", None, Peaks(1000, {"float16": 100}, "test"))
    near_memory, near_compute = device.share(900, 10, "float16"), device.share(100, 80, "float16")
    assert near_memory is not None
    assert (near_memory.value, near_memory.of) == (0.9, "peak bandwidth")
    assert near_compute is not None
    assert (near_compute.value, near_compute.of) == (0.8, "peak compute")


def test_without_a_peak_the_share_is_of_a_measured_copy() -> None:
    share = Hardware("cpu", "x", None, None, copy_gbps=50.0).share(25, None, "float32")
    assert share is not None
    assert (share.value, share.of) == (0.5, "copy bandwidth")
