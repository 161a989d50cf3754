"""kjit.engine.compile.device_compiler: several threads make the same code as one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kjit.engine.compile import device_compiler
from kjit.engine.compile.kernels_object import kernels_of, sections
from kjit.engine.diagnostics.printed import parse_resources
from kjit.engine.toolchain import build_flags
from kjit.engine.toolchain.nvrtc import Nvrtc
from kjit.spec import CudaArch

UNIT = """# 1 "op.cu"
template <int kCount>
__attribute__((global)) void sum(const float* x, float* out, int t) {
  float total = 0;
  for (int i = 0; i < kCount; ++i) total += x[i] * x[t];
  out[t] = total;
}
template __attribute__((global)) void sum<8>(const float*, float*, int);
template __attribute__((global)) void sum<100>(const float*, float*, int);
"""
OPTIONS = build_flags._nvrtc_options(None, CudaArch.parse("9.0"))


def compile_half(nvrtc: Nvrtc, folder: Path, threads: int) -> tuple[str, bytes]:
    """NVRTC's messages, and the cubin."""
    (folder / "op.ii").write_text(UNIT)
    output = folder / f"op{threads}.sm_90.cubin"
    words = (str(nvrtc.library), str(nvrtc.builtins), str(folder / "op.ii"), str(output), OPTIONS)
    done, said = device_compiler.compile_half(*words, threads=threads)
    assert done, said
    return said, output.read_bytes()


def code_of(cubin: bytes) -> list[bytes]:
    """The machine code of each kernel."""
    code = [cubin[each.begin : each.end] for each in sections(cubin) if each.kind == 1 and each.flags & 4]
    assert len(code) == 2
    return sorted(code)


def test_threads_change_neither_kernels_nor_what_they_use(nvrtc: Nvrtc, tmp_path: Path) -> None:
    said, content = compile_half(nvrtc, tmp_path, 1)
    said_by_threads, content_by_threads = compile_half(nvrtc, tmp_path, 4)

    def facts(said: str) -> list[str]:
        """Without how long it took, which was said."""
        return re.findall(r"entry function '\w+'|Used \d+ registers|\d+ bytes spill \w+", said)

    kernels, by_threads = kernels_of(content), kernels_of(content_by_threads)
    assert len(kernels) == 2
    assert set(kernels) == set(by_threads)
    assert code_of(content) == code_of(content_by_threads)
    assert sorted(facts(said)) == sorted(facts(said_by_threads))
    assert len([fact for fact in facts(said) if fact.startswith("Used")]) == 2


@pytest.mark.parametrize("kind", ["", "static "])
@pytest.mark.parametrize("silent", [[], ["--disable-warnings"], ["--ptxas-options=-w"], ["--ptxas-options=-w,-O3"]])
def test_a_kernel_that_reads_a_variable_of_the_host_does_not_compile(
    nvrtc: Nvrtc, tmp_path: Path, kind: str, silent: list[str]
) -> None:
    """NVRTC would give it one of its own, without a value."""
    unit = f'# 1 "op.cu"\n{kind}int count = 3;\n__attribute__((global)) void fill(int* out) {{ *out = count; }}\n'
    (tmp_path / "op.ii").write_text(unit)
    output = tmp_path / "op.sm_90.cubin"
    words = (str(nvrtc.library), str(nvrtc.builtins), str(tmp_path / "op.ii"), str(output), [*OPTIONS, *silent])
    done, said = device_compiler.compile_half(*words)
    assert not done
    assert 'op.cu(2): error: identifier "count" is undefined in device code\n' in said
    assert not output.exists()


@pytest.mark.parametrize("silent", [[], ["--disable-warnings"]])
def test_warnings_can_be_disabled(nvrtc: Nvrtc, tmp_path: Path, silent: list[str]) -> None:
    (tmp_path / "op.ii").write_text(UNIT.replace("float total", "int unused;\n  float total"))
    output = tmp_path / "op.sm_90.cubin"
    words = (str(nvrtc.library), str(nvrtc.builtins), str(tmp_path / "op.ii"), str(output), [*OPTIONS, *silent])
    done, said = device_compiler.compile_half(*words)
    assert done
    assert ("unused" in said) == (silent == [])
    assert len(parse_resources(said)) == 2
