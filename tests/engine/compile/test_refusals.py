"""kjit.engine.compile.refusals: flags and exports that are rejected before compiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kjit.engine.compile.refusals import refuse_unfit
from kjit.engine.toolchain.cuda import CudaHeaders, CudaToolkit
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.engine.toolchain.unit_compilers import NvccUnits, SimulatedUnits
from kjit.errors import UsageError
from kjit.spec import Spec, Target, Variant


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """A toolchain that is asked for its variables only, so that these tests need no nvcc."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KJIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return Toolchain.for_target(Target.cpu())


CPU = Target.cpu()
CUDA = Target.cuda("9.0a")
SIM = Target.sim()


def refusal(
    host: Toolchain, target: Target = CPU, *, variables: Mapping[str, str] | None = None, **fields: object
) -> UsageError | None:
    side = "cpp" if target.kind == "cpu" else "cuda"
    sources = {f"{side}_files": ["/op/scale.cuh"]}
    spec = Spec("scale", **{**sources, **fields})  # type: ignore[arg-type]
    home = Path("/cuda")
    nvcc = CudaToolkit(home, replace(host.cxx, family="nvcc"), "PATH", (), home, home, ())
    compilers = {CPU: None, SIM: SimulatedUnits(CudaHeaders(home, (), "PATH", ()))}
    gpu = compilers.get(target, NvccUnits(nvcc))
    toolchain = replace(host, gpu=gpu, variables=tuple((variables or {}).items()))
    try:
        refuse_unfit(Variant(spec, target), toolchain)
    except UsageError as error:
        return error
    return None


class TestOneFlag:
    @pytest.mark.parametrize(
        ("word", "words"),
        [
            ("-O3 -ffast-math", '["-O3", "-ffast-math"]'),
            ("-DA=1 -DB=2", '["-DA=1", "-DB=2"]'),
            ("-I/a -I/b", '["-I/a", "-I/b"]'),
            ("-include config.h", '["-include", "config.h"]'),
            ("-I /a -O2", '["-I", "/a", "-O2"]'),
            (" -O3", '["-O3"]'),
        ],
    )
    def test_several_in_one_string_are_shown_as_strings_of_their_own(
        self, host: Toolchain, word: str, words: str
    ) -> None:
        error = refusal(host, extra_cflags=[word])
        assert error is not None and error.message.startswith(f"'{word}' in extra_cflags is not one flag")
        assert error.hint == f"write a string for each word: {words}"

    @pytest.mark.parametrize(
        "word",
        [
            "-DTEXT=hello world",
            '-DTEXT="a -O3 b"',
            "-DF(x)=(x - 1)",
            "-I/my folder/include",
            "-DX=a - b",
            "@/my options",
        ],
    )
    def test_a_value_may_have_spaces(self, host: Toolchain, word: str) -> None:
        assert refusal(host, extra_cflags=[word]) is None

    def test_a_list_for_nvccs_host_compiler_may_have_spaces(self, host: Toolchain) -> None:
        assert refusal(host, CUDA, extra_cuda_cflags=["-Xcompiler=-Wall -Wextra"]) is None
        assert refusal(host, CUDA, extra_cuda_cflags=["-Xcompiler", "-Wall -Wextra"]) is None

    @pytest.mark.parametrize("word", ["", "  ", "-DA=\n"])
    def test_an_empty_one_and_one_with_a_line_break_are_refused(self, host: Toolchain, word: str) -> None:
        assert refusal(host, extra_ldflags=[word]) is not None


class TestOtherOutputs:
    @pytest.mark.parametrize("flags", [["-M"], ["-E"], ["-S"], ["-fsyntax-only"], ["-o", "x"], ["-ox"], ["-Wp,-MM"]])
    def test_a_cpp_flag_that_makes_something_else_is_refused(self, host: Toolchain, flags: list[str]) -> None:
        assert refusal(host, extra_cflags=flags) is not None

    @pytest.mark.parametrize("flags", [["-MD"], ["-MP"], ["-c"], ["-v"], ["-march=native"], ["-fopenmp"], ["-Og"]])
    def test_others_are_not(self, host: Toolchain, flags: list[str]) -> None:
        assert refusal(host, extra_cflags=flags) is None

    @pytest.mark.parametrize("target", [CUDA, SIM], ids=str)
    @pytest.mark.parametrize(
        "flags",
        [["-ptx"], ["--ptx"], ["-M"], ["-cubin"], ["-o=x"], ["--dryrun"], ["-Xcompiler=-E"], ["-Xcompiler", "-S"]],
    )
    def test_neither_nvcc_nor_the_simulator_gets_one(self, host: Toolchain, target: Target, flags: list[str]) -> None:
        assert refusal(host, target, extra_cuda_cflags=flags) is not None

    @pytest.mark.parametrize(
        "flags",
        [
            ["-o", "x"],
            ["-ox"],
            ["-Wl,-o,x"],
            ["-Wl,-ox"],
            ["-Wl,--output=x"],
            ["-Xlinker", "-o"],
            ["-c"],
            ["-static"],
            ["-r"],
        ],
    )
    def test_a_link_makes_the_module(self, host: Toolchain, flags: list[str]) -> None:
        assert refusal(host, extra_ldflags=flags) is not None

    @pytest.mark.parametrize(
        "flag", ["-lm", "-static-libstdc++", "-Wl,-rpath,/o", "-Wl,-z,now", "-L/o", "/o/lib.a", "-Wl,-Bstatic", "-flto"]
    )
    def test_flags_about_how_it_is_linked_stay(self, host: Toolchain, flag: str) -> None:
        assert refusal(host, extra_ldflags=[flag]) is None

    def test_one_in_a_file_of_options_is_seen(self, host: Toolchain, tmp_path: Path) -> None:
        (tmp_path / "options").write_text("-O2 -E\n")
        assert refusal(host, extra_cflags=[f"@{tmp_path}/options"]) is not None

    def test_flags_for_the_other_side_are_not_looked_at(self, host: Toolchain) -> None:
        assert refusal(host, extra_cuda_cflags=["-E"]) is None
        assert refusal(host, CUDA, extra_cflags=["-E"]) is None


class TestDeviceCode:
    @pytest.mark.parametrize("target", [CUDA, SIM], ids=str)
    @pytest.mark.parametrize(
        "flags",
        [["-rdc=true"], ["-rdc", "true"], ["--relocatable-device-code=true"], ["-dc"], ["--device-c"], ["-dlto"],
         ["-gencode=arch=compute_90a,code=lto_90a"]],
    )  # fmt: skip
    def test_a_link_of_device_code_is_refused_by_name(self, host: Toolchain, target: Target, flags: list[str]) -> None:
        error = refusal(host, target, extra_cuda_cflags=flags)
        assert error is not None and "requests device linking" in error.message
        assert " ".join(flags) in error.message

    @pytest.mark.parametrize("flags", [["-rdc=false"], ["-rdc", "false"], ["-lineinfo"]])
    def test_what_asks_for_none_is_not(self, host: Toolchain, flags: list[str]) -> None:
        assert refusal(host, CUDA, extra_cuda_cflags=flags) is None

    def test_a_variable_is_named(self, host: Toolchain) -> None:
        error = refusal(host, CUDA, variables={"NVCC_APPEND_FLAGS": "-O3 -rdc=true"})
        assert error is not None and error.message.startswith("'-rdc=true' in NVCC_APPEND_FLAGS ")


class TestArchitectures:
    @pytest.mark.parametrize(
        "flags",
        [["-arch=sm_90a"], ["-arch", "sm_90a"], ["-gencode", "arch=compute_90a,code=sm_90a"],
         ["-gencode=arch=compute_90a,code=[sm_90a,compute_90a]"]],
    )  # fmt: skip
    def test_the_targets_own_may_be_named(self, host: Toolchain, flags: list[str]) -> None:
        assert refusal(host, CUDA, extra_cuda_cflags=flags) is None

    @pytest.mark.parametrize(
        "flags", [["-arch=sm_80"], ["--gpu-architecture", "compute_80"], ["-gencode=arch=compute_80,code=sm_80"]]
    )
    def test_another_one_is_refused_with_how_to_build_for_it(self, host: Toolchain, flags: list[str]) -> None:
        error = refusal(host, CUDA, extra_cuda_cflags=flags)
        assert error is not None and error.message.endswith("than the target, cuda:sm_90a.")
        assert "`kjit build --arch 8.0`" in str(error.hint) and "KJIT_CUDA_ARCH_LIST=8.0 " in str(error.hint)

    def test_any_of_a_target_for_several_may_be_named(self, host: Toolchain) -> None:
        target = Target.cuda("8.0", "8.6")
        assert refusal(host, target, extra_cuda_cflags=["-gencode=arch=compute_86,code=sm_86"]) is None

    @pytest.mark.parametrize("target", [CUDA, SIM], ids=str)
    def test_one_that_this_machine_decides_is_refused(self, host: Toolchain, target: Target) -> None:
        assert refusal(host, target, extra_cuda_cflags=["-arch=native"]) is not None

    def test_the_simulator_takes_any(self, host: Toolchain) -> None:
        assert refusal(host, SIM, extra_cuda_cflags=["-arch=sm_80"]) is None


@pytest.mark.parametrize("target", [CUDA, SIM], ids=str)
def test_the_simulator_takes_no_dialect_that_nvcc_does_not(host: Toolchain, target: Target) -> None:
    assert refusal(host, target, extra_cuda_cflags=["-std=gnu++20"]) is not None
    assert refusal(host, target, extra_cuda_cflags=["-std=c++20"]) is None


def test_a_host_compiler_that_is_not_there_is_named(host: Toolchain) -> None:
    error = refusal(host, CUDA, extra_cuda_cflags=["-ccbin", "/nothing/g++"])
    assert error is not None
    assert error.message == "nvcc's host compiler '/nothing/g++' (-ccbin in extra_cuda_cflags) does not exist."
    assert refusal(host, CUDA, extra_cuda_cflags=["-ccbin=sh"]) is None


class TestKernels:
    KERNEL = (
        "// scale(int)\nnamespace a {\ntemplate <typename T>\n"
        "__global__ void __launch_bounds__(256) scale(T* x, float y) { *x = y; }\n}\n"
    )

    def kernel(
        self, host: Toolchain, tmp_path: Path, text: str, symbol: str, target: Target = CUDA
    ) -> UsageError | None:
        path = tmp_path / "scale.cuh"
        path.write_text(text)
        return refusal(host, target, cuda_files=[path], cuda_wrappers=[("run", symbol)])

    @pytest.mark.parametrize("target", [CUDA, SIM], ids=str)
    @pytest.mark.parametrize("symbol", ["a::scale<float>", "::a::scale<float>"])
    def test_one_as_an_export_is_refused_with_the_command_that_writes_a_function(
        self, host: Toolchain, tmp_path: Path, symbol: str, target: Target
    ) -> None:
        error = self.kernel(host, tmp_path, self.KERNEL, symbol, target)
        assert error is not None and error.message.startswith("export 'run' is a kernel ")
        assert str(error.hint).endswith(f"`kjit new NAME --from {tmp_path}/scale.cuh --function scale` writes one")

    @pytest.mark.parametrize(
        ("text", "symbol"),
        [
            ("__global__ void k(float* x) { *x = 1; }\nvoid scale(float* x) { k<<<1, 1>>>(x); }\n", "scale"),
            (KERNEL + "void scale(int x) {}\n", "scale"),  # which of the two it is, the compiler says
            (KERNEL, "Scale<float>::scale"),
            ("// __global__ void scale(int x) { }\nvoid scale(int x) { }\n", "scale"),
        ],
    )
    def test_a_function_is_none(self, host: Toolchain, tmp_path: Path, text: str, symbol: str) -> None:
        assert self.kernel(host, tmp_path, text, symbol) is None
