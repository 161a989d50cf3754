"""kjit.runtime.gpus: the GPUs that this process sees."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kjit.engine.toolchain.compilers import find_cxx
from kjit.runtime import gpus
from kjit.runtime.gpus import Driver, Gpu, select_visible


class TestGpus:
    driver = Driver("1", (13, 0), (Gpu("A", (9, 0), "GPU-aa11"), Gpu("B", (9, 0), "GPU-bb22")))
    mixed = Driver("1", (13, 0), (Gpu("A", (8, 0), "GPU-aa11"), Gpu("B", (9, 0), "GPU-bb22")))

    @pytest.mark.parametrize(
        ("visible", "names"),
        [
            (None, "AB"),
            ("", ""),
            ("1", "B"),
            ("1,0", "BA"),
            ("0,-1,1", "A"),
            ("0,7,1", "A"),
            ("GPU-bb", "B"),
            ("GPU-zz", ""),
            ("MIG-x", "A"),
        ],
    )
    def test_the_visible_ones_are_chosen_as_cuda_does(self, visible: str | None, names: str) -> None:
        assert "".join(gpu.name for gpu in select_visible(self.driver, visible, by_bus=False)) == names

    def test_numbers_choose_among_different_gpus_only_in_bus_order(self) -> None:
        assert [gpu.name for gpu in select_visible(self.mixed, "1", by_bus=True)] == ["B"]
        assert [gpu.name for gpu in select_visible(self.mixed, "1", by_bus=False)] == ["A", "B"]

        assert [gpu.name for gpu in select_visible(self.mixed, "MIG-x", by_bus=True)] == ["A", "B"]

    def test_ids_choose_among_different_gpus_in_any_order(self) -> None:
        assert [gpu.name for gpu in select_visible(self.mixed, "GPU-bb22", by_bus=False)] == ["B"]


NVML = r"""
#include <string.h>
typedef struct { int index; } Device;
static Device devices[2] = {{0}, {1}};
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned n) { strncpy(text, "580.65.06", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 13010; return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device** device) { *device = &devices[i]; return 0; }
int nvmlDeviceGetCudaComputeCapability(Device* d, int* major, int* minor) { *major = 9; *minor = d->index; return 0; }
int nvmlDeviceGetName(Device* d, char* text, unsigned n) { strncpy(text, d->index ? "B" : "A", n); return 0; }
int nvmlDeviceGetUUID(Device* d, char* text, unsigned n) { strncpy(text, d->index ? "GPU-bb" : "GPU-aa", n); return 0; }
"""
"""A driver's library with two GPUs."""


class TestNvml:
    def load(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, init: int = 0) -> None:
        cxx = find_cxx().path
        library = tmp_path / "libnvidia-ml.so.1"
        options = ["-x", "c++", "-fpermissive", "-w", "-shared", "-fPIC", f"-DINIT={init}"]
        command = [str(cxx), *options, "-", "-o", str(library)]
        subprocess.run(command, input=f'extern "C" {{{NVML}}}', text=True, check=True)
        monkeypatch.setattr(gpus, "_NVML", str(library))
        gpus.query_driver.cache_clear()

    @pytest.fixture(autouse=True)
    def forget(self) -> Iterator[None]:
        yield
        gpus.query_driver.cache_clear()

    def test_the_driver_and_its_gpus_are_read(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.load(monkeypatch, tmp_path)
        a, b = Gpu("A", (9, 0), "GPU-aa"), Gpu("B", (9, 1), "GPU-bb")
        assert gpus.query_driver() == Driver("580.65.06", (13, 1), (a, b))

    def test_a_driver_that_does_not_start_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.load(monkeypatch, tmp_path, init=9)
        assert gpus.query_driver() is None

    def test_no_driver_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(gpus, "_NVML", str(tmp_path / "libnothing.so"))
        gpus.query_driver.cache_clear()
        assert gpus.query_driver() is None
