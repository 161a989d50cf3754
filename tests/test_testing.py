from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from forked import Forks

import kjit


def test_tolerances_go_into_assert_close() -> None:
    expected = torch.tensor([1.0, -3.0], dtype=torch.bfloat16)
    torch.testing.assert_close(expected * (1 + 2**-7), expected, **kjit.testing.tolerances(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tolerances_are_those_of_pytorch_where_it_has_some(dtype: torch.dtype) -> None:
    from torch.testing._comparison import default_tolerances

    limits = kjit.testing.tolerances(dtype)
    assert (limits["rtol"], limits["atol"]) == default_tolerances(dtype)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_neighbouring_fp8_values_agree(dtype: torch.dtype) -> None:
    bits = torch.arange(0x01, 0x70, dtype=torch.uint8)
    values, neighbours = bits.view(dtype).float(), (bits + 1).view(dtype).float()
    torch.testing.assert_close(neighbours, values, **kjit.testing.tolerances(dtype))


def test_a_complex_dtype_has_no_tolerances() -> None:
    with pytest.raises(TypeError, match=r"no tolerances for torch\.complex64"):
        kjit.testing.tolerances(torch.complex64)


def test_a_device_that_is_missing_is_a_skip_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cuda, cpu = kjit.testing.devices("cuda", "cpu")
    assert (cuda.values, cpu.values) == (("cuda",), ("cpu",))
    assert [mark.name for mark in cuda.marks] == ["skip"]
    assert "needs an NVIDIA GPU" in cuda.marks[0].kwargs["reason"]
    assert not cpu.marks


class TestDeviceFixture:
    """Through a test run of its own, as the fixture is used."""

    TEST = """
import torch, kjit, kjit.testing
from kjit.runtime.load import mode
device = kjit.testing.device_fixture("cuda", "cpu")
def test_it(device):
    print("SAW", torch.empty(1, device=device).device.type, mode())
"""

    def run(self, forked: Forks, folder: Path, **environment: str) -> str:
        (folder / "test_it.py").write_text(self.TEST)
        options = ["-v", "-s", "-rs", "-p", "no:cacheprovider"]
        return forked.pytest(*options, "test_it.py", cwd=folder, **environment).stdout

    @pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
    def test_without_a_gpu_cuda_is_the_simulator_and_the_cpu_is_itself(self, tmp_path: Path, forked: Forks) -> None:
        said = self.run(forked, tmp_path, KJIT_SIM="")
        assert re.search(r"test_it\[sim\] SAW cpu sim$", said, re.MULTILINE)
        assert re.search(r"test_it\[cpu\] SAW cpu None$", said, re.MULTILINE)

    def test_the_variable_chooses_the_simulator_with_checks(self, tmp_path: Path, forked: Forks) -> None:
        assert "test_it[sim-check] SAW cpu sim-check" in self.run(forked, tmp_path, KJIT_SIM="check")

    def test_if_it_cannot_be_built_the_reason_is_reported(self, tmp_path: Path, forked: Forks) -> None:
        said = self.run(forked, tmp_path, KJIT_SIM="1", KJIT_CUDA_HOME=str(tmp_path))
        assert "1 passed, 1 skipped" in said
        assert "does not have CUDA's headers" in said

    @pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
    def test_it_can_be_forbidden(self, tmp_path: Path, forked: Forks) -> None:
        said = self.run(forked, tmp_path, KJIT_SIM="0")
        assert "1 passed, 1 skipped" in said
        assert "needs an NVIDIA GPU, and PyTorch sees none here" in said


class TestGpuMemoryFixture:
    """With the numbers of a GPU that may not be there."""

    TEST = """
import os, time
from pathlib import Path
import pytest, torch, kjit.testing
log = Path("log")
torch.cuda.mem_get_info = lambda: (10 * 10**9, 80 * 10**9)
torch.cuda.empty_cache = lambda: print("EMPTIED")
gpu_memory = kjit.testing.gpu_memory_fixture()
@pytest.mark.parametrize("number", range(4))
def test_it(gpu_memory, number):
    gpu_memory(10 * 10**9)
    with log.open("a") as file:
        print("begin", number, file=file, flush=True)
        time.sleep(0.05)
        print("end", number, file=file)
def test_too_large(gpu_memory):
    gpu_memory(11 * 10**9)
"""

    def run(self, forked: Forks, folder: Path, *arguments: str) -> str:
        (folder / "test_it.py").write_text(self.TEST)
        options = ["-p", "no:cacheprovider", *arguments]
        return forked.pytest(*options, "test_it.py", cwd=folder, TMPDIR=str(folder)).stdout

    def test_one_test_at_a_time_has_it_in_all_processes(self, tmp_path: Path, forked: Forks) -> None:
        assert "4 passed, 1 skipped" in self.run(forked, tmp_path, "-p", "xdist", "-n", "2")
        lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
        assert [what for what, _ in lines] == ["begin", "end"] * 4
        assert all(begun == ended for (_, begun), (_, ended) in zip(lines[::2], lines[1::2], strict=True))

    def test_a_test_that_needs_more_than_is_free_is_skipped_with_both_numbers(
        self, tmp_path: Path, forked: Forks
    ) -> None:
        said = self.run(forked, tmp_path, "-rs", "-k", "too_large")
        assert "1 skipped" in said
        assert "needs 11 GB of GPU memory, and 10 GB are free" in said

    def test_what_pytorch_holds_unused_is_given_back_before_and_afterwards(self, tmp_path: Path, forked: Forks) -> None:
        assert self.run(forked, tmp_path, "-s", "-k", "test_it and 0").count("EMPTIED") == 2
