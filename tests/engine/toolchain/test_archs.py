"""kjit.engine.toolchain.archs and kjit.runtime.load: the architectures and the target of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import add_gpus, write_cuda

from kjit.engine.toolchain.archs import gpu_archs, resolve_archs
from kjit.errors import ToolchainError, UsageError
from kjit.runtime.load import runtime_target
from kjit.spec import CudaArch, Target


@pytest.fixture(autouse=True)
def alone(no_programs: None) -> None:
    """No compilers but those that a test writes."""


class TestGpus:
    @pytest.mark.parametrize(
        ("capability", "arch"), [((8, 6), "8.6"), ((9, 0), "9.0a"), ((10, 3), "10.3a"), ((12, 0), "12.0a")]
    )
    def test_each_has_its_own_architecture(
        self, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], arch: str
    ) -> None:
        add_gpus(monkeypatch, capability, capability)
        assert gpu_archs() == [CudaArch.parse(arch)]

    @pytest.mark.usefixtures("no_gpu")
    def test_no_driver_means_no_gpu(self) -> None:
        assert gpu_archs() == []


class TestArchitectures:
    @pytest.fixture(autouse=True)
    def cuda(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "cuda")))

    def test_the_requested_ones_go_before_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "8.0")
        assert resolve_archs(["9.0a,10.0a", "9.0a"]) == [CudaArch(9, 0, "a"), CudaArch(10, 0, "a")]

    def test_the_environment_goes_before_the_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        monkeypatch.setenv("TVM_FFI_CUDA_ARCH_LIST", "8.0")
        assert resolve_archs(None) == [CudaArch(8, 0)]

    def test_the_gpus_present_are_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        assert resolve_archs(None) == [CudaArch(9, 0, "a")]

    @pytest.mark.usefixtures("no_gpu")
    def test_no_gpu_and_none_named_says_both_ways_out(self) -> None:
        with pytest.raises(
            ToolchainError, match=r"(?s)no architecture to build for was named.*--arch.*KJIT_CUDA_ARCH_LIST"
        ):
            resolve_archs(None)

    @pytest.mark.parametrize("arch", ["7.0", "8.0a", "9.0f", "42.0"])
    def test_one_that_nvcc_does_not_know_is_refused_with_what_it_knows(self, arch: str) -> None:
        with pytest.raises(UsageError, match=r"(?s)does not build for architecture .*it knows 8\.0, 9\.0, 10\.0"):
            resolve_archs([arch])

    def test_a_word_that_is_no_architecture_is_refused(self) -> None:
        with pytest.raises(UsageError, match="'hopper' is not a CUDA architecture"):
            resolve_archs(["hopper"])

    def test_code_for_a_family_needs_cuda_12_9(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert resolve_archs(["10.0f"]) == [CudaArch(10, 0, "f")]
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "older", "12.8")))
        with pytest.raises(UsageError):
            resolve_archs(["10.0f"])


class TestRuntimeTarget:
    @pytest.mark.usefixtures("no_gpu")
    def test_the_cpu_needs_nothing(self) -> None:
        assert runtime_target("cpu", None) == Target.cpu()

    def test_a_gpu_gets_its_own_architecture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        assert runtime_target("cuda", 0) == Target.cuda("9.0a")

    @pytest.mark.parametrize(
        ("listed", "chosen"), [("8.0 9.0 9.0a", "9.0a"), ("8.0 9.0", "9.0"), ("10.0a, 9.0", "9.0")]
    )
    def test_the_closest_of_the_listed_ones_is_taken(
        self, monkeypatch: pytest.MonkeyPatch, listed: str, chosen: str
    ) -> None:
        add_gpus(monkeypatch, (9, 0))
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", listed)
        assert runtime_target("cuda", 0) == Target.cuda(chosen)

    def test_a_list_without_one_that_runs_here_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "8.0,10.0a")
        with pytest.raises(
            UsageError, match=r"KJIT_CUDA_ARCH_LIST lists 8\.0, 10\.0a, and none of them runs on this GPU"
        ):
            runtime_target("cuda", 0)

    @pytest.mark.usefixtures("no_gpu")
    def test_without_a_gpu_the_first_listed_one_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "9.0a 8.0")
        assert runtime_target("cuda", None) == Target.cuda("9.0a")

    @pytest.mark.usefixtures("no_gpu")
    def test_without_a_gpu_and_a_list_it_is_an_error(self) -> None:
        with pytest.raises(ToolchainError, match="There is no GPU here"):
            runtime_target("cuda", None)

    def test_a_device_that_is_not_there_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add_gpus(monkeypatch, (9, 0))
        with pytest.raises(ToolchainError, match="no CUDA device 3 here"):
            runtime_target("cuda", 3)
