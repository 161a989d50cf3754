"""kjit.runtime.load: the calls that go to the simulator, and the return from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kjit
from kjit.errors import UsageError
from kjit.runtime.load import target_of
from kjit.spec import Spec, Target

WHO = """#include <kjit/tensor.h>
namespace {
// KERNEL is 1 in the kernel for CUDA, 0 in the one for the CPU.
void who(kjit::TensorView out) { static_cast<float*>(out.data_ptr())[0] = KERNEL; }
}
"""
CUDA = Spec("op", cuda_files=["/x.cuh"])
CPU = Spec("op", cpp_files=["/x.cpp"])
BOTH = Spec("op", cuda_files=["/x.cuh"], cpp_files=["/x.cpp"])


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KJIT_SIM", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of an op, which all tests build in one cache."""
    folder = tmp_path_factory.mktemp("who")
    (folder / "pyproject.toml").touch()
    for side, value in (("cuda", 1), ("cpp", 0)):
        (folder / f"who.{side}").write_text(f"#define KERNEL {value}\n{WHO}")
    return folder


def spec_of(folder: Path, *sides: str) -> Spec:
    parts = {f"{side}_files": [folder / f"who.{side}"] for side in sides}
    return Spec("who", **parts, **{f"{side}_wrappers": [("who", "who")] for side in sides})  # type: ignore[arg-type]


def answer(module: kjit.DeclaredModule, device: str = "cpu") -> float:
    out = torch.full((1,), -1.0)
    module(device=device).who(out)
    return out.item()


class TestTargetOf:
    def test_cpu_tensors_on_a_cuda_op_are_an_error_that_names_the_variable(self) -> None:
        with pytest.raises(UsageError, match="only a CUDA source") as raised:
            target_of(CUDA, "cpu")
        assert "KJIT_SIM=1" in str(raised.value.hint)

    @pytest.mark.parametrize(("value", "target"), [("1", Target.sim()), ("check", Target.sim(check=True))])
    def test_the_variable_sends_them_to_the_simulator(
        self, monkeypatch: pytest.MonkeyPatch, value: str, target: Target
    ) -> None:
        monkeypatch.setenv("KJIT_SIM", value)
        assert target_of(CUDA, torch.device("cpu")) == target
        assert target_of(CUDA, None) == target

    def test_an_op_with_a_cpu_kernel_keeps_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_SIM", "1")
        assert target_of(BOTH, "cpu") == target_of(CPU, "cpu") == Target.cpu()

    def test_inside_simulated_it_does_not(self) -> None:
        with kjit.testing.simulated():
            assert target_of(BOTH, "cpu") == Target.sim()
            assert target_of(CPU, "cpu") == Target.cpu()
            with kjit.testing.simulated(check=True):
                assert target_of(BOTH, "cpu") == Target.sim(check=True)
            assert target_of(BOTH, "cpu") == Target.sim()
        assert target_of(BOTH, "cpu") == Target.cpu()

    @pytest.mark.parametrize("device", ["sim", "sim-check"])
    def test_it_can_be_named_as_a_device(self, device: str) -> None:
        assert str(target_of(BOTH, device)) == device
        with pytest.raises(UsageError, match=r"only a C\+\+ source"):
            target_of(CPU, device)

    def test_a_gpu_stays_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KJIT_SIM", "1")
        monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "9.0a")
        assert target_of(CUDA, "cuda:0") == Target.cuda("9.0a")


def test_calls_come_back_from_the_simulator(folder: Path) -> None:
    spec = spec_of(folder, "cuda", "cpp")
    who = kjit.module()(lambda: spec)

    assert answer(who) == 0
    for _ in range(3):
        with kjit.testing.simulated():
            assert [answer(who), answer(who)] == [1, 1]
        assert answer(who) == 0
    assert answer(who, "sim") == 1


def test_load_jit_and_the_decorator_know_the_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(folder, "cuda")
    monkeypatch.setenv("KJIT_SIM", "1")
    out = torch.zeros(2)
    kjit.load_jit("who", cuda_files=spec.cuda_files, cuda_wrappers=spec.cuda_wrappers).who(out[:1])

    @kjit.jit("who", cuda_files=spec.cuda_files, cuda_wrappers=spec.cuda_wrappers)
    def who(module, out: torch.Tensor) -> None:  # type: ignore[no-untyped-def]
        module.who(out)

    who(out[1:])
    assert out.tolist() == [1, 1]


def test_a_registered_op_runs_in_it_and_so_does_torch_compile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(folder, "cuda")

    @kjit.module()
    def module() -> Spec:
        return spec

    @kjit.torch_op("kjit_test_sim::who", mutates_args=("x",))
    def who(x: torch.Tensor) -> None:
        module(device=x.device).who(x)

    x = torch.zeros(1)
    with pytest.raises(UsageError, match="KJIT_SIM=1"):
        who(x)
    monkeypatch.setenv("KJIT_SIM", "1")
    who(x)
    assert x.item() == 1
    y = torch.zeros(1)
    torch.compile(who, fullgraph=True, backend="eager")(y)
    assert y.item() == 1


def test_a_module_that_is_missing_names_the_target_to_build(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(folder, "cuda")
    monkeypatch.setenv("KJIT_CACHE_DIR", str(folder / "empty"))
    monkeypatch.setenv("KJIT_NO_COMPILE", "1")
    monkeypatch.setenv("KJIT_SIM", "check")
    with pytest.raises(kjit.NotPrebuiltError, match=r"who sim-check is not built") as raised:
        kjit.module()(lambda: spec)(device="cpu")
    assert "--target sim-check" in str(raised.value.hint)
