"""kjit.engine.diagnostics.limits: errors that are mistakes, and errors that are limits of NVRTC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kjit.engine.compile.steps import Step
from kjit.engine.diagnostics.files import Files
from kjit.engine.diagnostics.limits import Halves, shown
from kjit.engine.toolchain.locations import kjit_include

SOURCE = "/op/scale.cuh"
UNIT = f"""# 1 "{SOURCE}"
__device__ float factor() {{
  return by;
}}
float twice(float x) {{
  return 2 * x;
}}
# 1 "/lib/include/math.h" 1 3
float by_library(float value);
# 7 "{SOURCE}" 2
__device__ float last() {{ return 1; }}
"""
HOST = "__attribute__((device)) float factor() { return 1; }\n__attribute__((global)) void fill(float* x);\n"
FILES = {"cuda0.sm_80.ii": UNIT, "cuda0.ii": UNIT + HOST}
STEPS = [
    Step("cuda0.sm_80.ii", ("g++",)),
    Step("cuda0.sm_80.cubin", ("python",), ("cuda0.sm_80.ii",)),
    Step("cuda0.ii", ("g++",)),
    Step("cuda0.host.o", ("python",), ("cuda0.ii",)),
    Step("cuda0.kernels.s", ("python",), ("cuda0.host.o", "cuda0.sm_80.cubin")),
    Step("cpp0.o", ("g++",)),
    Step("scale.so", ("g++",), ("cuda0.host.o",)),
]


def limit(**said: str) -> str | None:
    """The limit found in the output of failed commands, given by the names of their outputs, with `_` for dots."""
    logs = {name.replace("scale_so", "scale.so").replace("__", "."): log for name, log in said.items()}
    broken = [(step, logs[step.output]) for step in STEPS if step.output in logs]
    assert len(broken) == len(logs)
    found = halves(broken, FILES).limit()
    return None if found is None else found.reason


def halves(broken: list[tuple[Step, str]], files: Mapping[str, str]) -> Halves:
    libraries = [Path("/lib/include")]
    return Halves(
        broken, STEPS, Files([SOURCE], frozenset(), Path("/build"), libraries), lambda name: files.get(name, "")
    )


class TestMistakes:
    def test_a_variable_of_the_host_whatever_it_is_called(self) -> None:
        said = f'{SOURCE}(5): error: identifier "by_library" is undefined in device code\n'
        assert limit(cuda0__sm_80__cubin=said) is None

    @pytest.mark.parametrize(
        "log",
        [
            f'{SOURCE}(2): error: identifier "by" is undefined\n',
            f'{SOURCE}(2): error: expected a ";"\n',
            f'{SOURCE}(7): error: no suitable conversion function from "int4" to "float" exists\n',
            f'{SOURCE}(5): error: static assertion failed with "a row has 16 bytes"\n',
            f'{SOURCE}(2): error: calling a __host__ function("twice(float)") from a __device__ function("factor")\n',
            "ptxas error   : Entry function '_Z4fillPf' uses too much shared data (0x40000 bytes, 0x38c00 max)\n",
        ],
    )
    def test_what_nvrtc_refuses_in_code_for_the_device(self, log: str) -> None:
        assert limit(cuda0__sm_80__cubin=log) is None

    def test_what_both_compilers_refuse(self) -> None:
        of_gcc = f"{SOURCE}:6:3: error: 'y' was not declared in this scope\n"
        assert (
            limit(cuda0__sm_80__cubin=f'{SOURCE}(5): error: identifier "y" is undefined\n', cuda0__host__o=of_gcc)
            is None
        )

    def test_what_a_unit_without_kernels_lacks(self) -> None:
        of_nvrtc = f'{SOURCE}(5): error: namespace "std" has no member "span"\n'
        assert limit(cuda0__sm_80__cubin=of_nvrtc, cpp0__o="/op/a.cpp:1:2: error: 'f' was not declared\n") is None

    def test_a_missing_header(self) -> None:
        missing = f"{SOURCE}:1:10: fatal error: vectorise.h: No such file or directory\n"
        assert limit(cuda0__sm_80__ii=missing, cuda0__ii=missing) is None

    @pytest.mark.parametrize(
        "log",
        [
            "/usr/bin/ld: cannot find -lfastscale: No such file or directory\n",
            "/usr/bin/ld: cuda0.host.o: in function `run':\na.cu:(.text+0x1): undefined reference to `other(int)'\n",
        ],
    )
    def test_what_the_linker_misses(self, log: str) -> None:
        assert limit(scale_so=log) is None


class TestLimits:
    @pytest.mark.parametrize(
        "log",
        [
            '/lib/include/math.h(1): error: identifier "__builtin_new" is undefined\n',
            f'{SOURCE}(5): error: expected a ";"\n',
            f'{SOURCE}(2): error: no operator "*" matches these operands\n',
            f'{SOURCE}(2): error: identifier "by_library" is undefined\n',
            f'{SOURCE}(2): error: identifier "__nanosleep_for" is undefined\n',
            f'{SOURCE}(2): error: no instance of overloaded function "std::min" matches the argument list\n',
            f'{SOURCE}(2): error: calling a __host__ function("by_library") from a __device__ function("factor")\n',
            f'{SOURCE}(2): error: calling a __host__ function("__builtin_new") from a __device__ function("factor")\n',
            "ptxas fatal   : Unresolved extern function '_Z5twicef'\n",
            f'{SOURCE}(2): error: expected a ";"\n\n{SOURCE}(5): error: expected a ";"\n',
        ],
    )
    def test_what_nvrtc_alone_refuses(self, log: str) -> None:
        said = limit(cuda0__sm_80__cubin=log)
        assert said is not None
        assert said.startswith("without nvcc there is an error: ")

    def test_what_only_the_host_half_is_refused_for(self) -> None:
        said = limit(cuda0__host__o=f"{SOURCE}:2:3: error: no match for 'operator->*'\n")
        assert said == "without nvcc there is an error: no match for 'operator->*' (scale.cuh:2)"

    def test_a_header_that_the_device_half_misses(self) -> None:
        missing = f"{SOURCE}:1:10: fatal error: x.h: No such file or directory\n"
        assert limit(cuda0__sm_80__ii=missing) is not None

    @pytest.mark.parametrize("name", ["fill(float*)", "factor()", "blockIdx"])
    def test_kernels_and_code_for_the_device_that_the_linker_misses(self, name: str) -> None:
        assert limit(scale_so=f"a.cu:(.text+0x1): undefined reference to `{name}'\n") is not None

    def test_what_kjit_knows_to_be_for_nvcc(self) -> None:
        said = limit(cuda0__kernels__s="error: only nvcc registers the symbols that cudaMemcpyToSymbol takes\n")
        assert said == "only nvcc registers the symbols that cudaMemcpyToSymbol takes"

    def test_a_limit_with_a_name_explains_what_nvrtc_does_not(self) -> None:
        broken = "error: Broken module found, compilation aborted!\n"
        assert limit(cuda0__sm_80__cubin=broken) == "Broken module found, compilation aborted!"
        named = "error: only nvcc compiles __device__ lambdas\n"
        assert limit(cuda0__sm_80__cubin=broken, cuda0__host__o=named) == "only nvcc compiles __device__ lambdas"

    def test_an_option_that_nvrtc_does_not_know(self) -> None:
        said = limit(cuda0__sm_80__cubin="nvrtc: error: unrecognized option --new found\n")
        assert said == "unrecognized option --new found"

    def test_where_it_comes_from(self) -> None:
        device, host, table = (
            next(step for step in STEPS if step.output == f"cuda0.{name}")
            for name in ("sm_80.cubin", "host.o", "kernels.s")
        )

        def word(step: Step, log: str) -> str | None:
            found = halves([(step, log)], FILES).limit()
            assert found is not None
            return found.word

        assert word(device, '/lib/include/math.h(1): error: identifier "f" is undefined\n') == "#include"
        assert word(device, f'{SOURCE}(5): error: expected a ";"\n') is None
        assert word(host, f"{kjit_include()}/kjit_rtc/host.h:9:1: error: static assertion failed\n") is None
        named = "error: only nvcc registers the symbols that cudaMemcpyToSymbol takes\n"
        assert word(table, named) == "cudaMemcpyToSymbol"


class TestNeither:
    """Failures that say nothing about the sources are no reason to compile them by nvcc."""

    @pytest.mark.parametrize(
        "log",
        [
            "",
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'kjit.halves'\n",
            "g++: fatal error: Killed signal terminated program cc1plus\n",
            "nvrtc: error: NVRTC_ERROR_OUT_OF_MEMORY\n",
        ],
    )
    @pytest.mark.parametrize("name", ["cuda0__sm_80__cubin", "cuda0__host__o", "cuda0__kernels__s"])
    def test_a_tool_broke(self, name: str, log: str) -> None:
        assert limit(**{name: log}) is None


def test_where_nvrtc_refuses_a_unit_its_words_are_shown() -> None:
    device, host = (step for step in STEPS if step.output in ("cuda0.sm_80.cubin", "cuda0.host.o"))
    other = Step("cuda1.host.o", ())
    assert shown([(device, "a"), (host, "b"), (other, "c")]) == [(device, "a"), (other, "c")]
