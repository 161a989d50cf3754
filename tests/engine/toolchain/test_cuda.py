"""kjit.engine.toolchain.cuda: the CUDA toolkit that is found, and whether its parts fit each other."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from fakes import write_cuda, write_program

from kjit.engine.toolchain import cuda as cuda_module
from kjit.engine.toolchain.cuda import check_wheels, find_cuda, wheel_homes
from kjit.errors import ToolchainError


@pytest.fixture(autouse=True)
def alone(no_programs: None) -> None:
    """No compilers but those that a test writes."""


class TestCuda:
    def test_a_variable_goes_before_wheels_those_before_path_and_the_usual_place_comes_last(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        homes = {name: write_cuda(tmp_path / name) for name in ("own", "home", "wheels", "path", "usual")}
        monkeypatch.setenv("KJIT_CUDA_HOME", str(homes["own"]))
        monkeypatch.setenv("CUDA_HOME", str(homes["home"]))
        monkeypatch.setattr(cuda_module, "wheel_homes", lambda: [homes["wheels"]])
        monkeypatch.setenv("PATH", str(homes["path"] / "bin"))
        monkeypatch.setattr(cuda_module, "DEFAULT_HOME", homes["usual"])
        assert (find_cuda().home, find_cuda().origin) == (homes["own"], "KJIT_CUDA_HOME")
        monkeypatch.delenv("KJIT_CUDA_HOME")
        assert (find_cuda().home, find_cuda().origin) == (homes["home"], "CUDA_HOME")
        monkeypatch.delenv("CUDA_HOME")
        assert (find_cuda().home, find_cuda().origin) == (homes["wheels"], "PyPI wheels")
        monkeypatch.setattr(cuda_module, "wheel_homes", list)
        assert (find_cuda().home, find_cuda().origin) == (homes["path"], "PATH")
        monkeypatch.setenv("PATH", "")
        assert (find_cuda().home, find_cuda().origin) == (homes["usual"], "/usr/local/cuda")
        monkeypatch.setattr(cuda_module, "DEFAULT_HOME", tmp_path / "none")
        with pytest.raises(ToolchainError, match=r"No CUDA compiler.*\n.*pip install 'kjit\[cu13\]'"):
            find_cuda()

    @pytest.mark.parametrize("variable", ["KJIT_CUDA_HOME", "CUDA_HOME"])
    def test_a_variable_without_nvcc_is_named_with_its_path(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
    ) -> None:
        monkeypatch.setenv(variable, str(tmp_path))
        with pytest.raises(ToolchainError, match=f"^{variable} is '{tmp_path}', and there is no bin/nvcc"):
            find_cuda()

    def test_a_link_on_path_leads_to_the_toolkit(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        home = write_cuda(tmp_path / "cuda")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "nvcc").symlink_to(home / "bin" / "nvcc")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        assert find_cuda().home == home

    def test_a_wrapper_on_path_is_refused_with_the_variable_to_set(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        wrapper = write_program(tmp_path / "bin" / "nvcc", f'exec {write_cuda(tmp_path / "cuda")}/bin/nvcc "$@"')
        monkeypatch.setenv("PATH", str(wrapper.parent))
        with pytest.raises(ToolchainError, match=f"The CUDA in '{tmp_path}' has no headers") as caught:
            find_cuda()
        assert (caught.value.hint or "").startswith("set KJIT_CUDA_HOME to the folder of the toolkit")

    def test_an_older_cuda_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "cuda", "12.4")))
        with pytest.raises(ToolchainError, match=r"is nvcc 12\.4; kjit needs nvcc 12\.8 or newer"):
            find_cuda()

    @pytest.mark.parametrize(
        ("part", "sentence"),
        [
            ("bin/ptxas", "has no bin/ptxas"),
            ("nvvm/bin/cicc", "has no nvvm/bin/cicc"),
            ("include/cuda_runtime.h", "has no headers"),
            ("lib/libcudart.so.13", "has no runtime library"),
        ],
    )
    def test_a_missing_part_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, sentence: str
    ) -> None:
        home = write_cuda(tmp_path / "cuda")
        (home / part).unlink()
        monkeypatch.setenv("KJIT_CUDA_HOME", str(home))
        with pytest.raises(ToolchainError, match=sentence):
            find_cuda()

    def test_a_library_with_only_a_versioned_name_is_linked_by_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("KJIT_CUDA_HOME", str(write_cuda(tmp_path / "cuda")))
        assert find_cuda().cudart == tmp_path / "cuda" / "lib" / "libcudart.so.13"

    def test_its_identity_changes_with_a_part_that_nvcc_calls(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = write_cuda(tmp_path / "cuda")
        monkeypatch.setenv("KJIT_CUDA_HOME", str(home))
        before = find_cuda().identity()
        (home / "nvvm" / "bin" / "cicc").write_text("another")
        assert find_cuda().identity() != before


class TestWheels:
    versions = {  # noqa: RUF012 (not changed)
        "nvidia_cuda_nvcc": "13.0.88",
        "nvidia_cuda_crt": "13.0.88",
        "nvidia_nvvm": "13.0.88",
        "nvidia_cuda_runtime": "13.0.96",
        "nvidia_cuda_cccl": "13.0.85",
    }

    def install(self, site: Path, **changes: str | None) -> Path:
        for name, version in {**self.versions, **changes}.items():
            if version is not None:
                (site / f"{name}-{version}.dist-info").mkdir(parents=True)
        return site / "nvidia" / "cu13"

    def test_mixed_minors_are_refused_naming_every_version(self, tmp_path: Path) -> None:
        home = self.install(tmp_path, nvidia_nvvm="13.1.80")
        with pytest.raises(ToolchainError) as caught:
            check_wheels(home)
        assert "nvidia-cuda-nvcc 13.0.88, nvidia-cuda-crt 13.0.88, nvidia-nvvm 13.1.80" in caught.value.message
        assert "'nvidia-nvvm==13.0.*'" in str(caught.value.hint)

    def test_a_missing_package_is_named(self, tmp_path: Path) -> None:
        home = self.install(tmp_path, nvidia_cuda_crt=None)
        with pytest.raises(ToolchainError, match="nvidia-cuda-crt is not installed"):
            check_wheels(home)

    def test_a_toolkit_that_is_not_from_wheels_is_not_judged(self, tmp_path: Path) -> None:
        check_wheels(tmp_path / "usr" / "local" / "cuda")

    def test_they_are_found_in_every_folder_of_the_nvidia_package(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = write_cuda(tmp_path / "nvidia" / "cu13")
        (tmp_path / "nvidia" / "cublas").mkdir()
        spec = importlib.util.spec_from_loader("nvidia", None)
        assert spec is not None
        spec.submodule_search_locations = [str(tmp_path / "gone"), str(home.parent)]
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
        assert wheel_homes() == [home]
