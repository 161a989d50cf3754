"""kjit.engine.toolchain.build_flags: the flags that compilers and the linker get."""

from __future__ import annotations

import dataclasses
import platform
from dataclasses import replace

import pytest

from kjit.engine.toolchain import cpu, locations
from kjit.engine.toolchain.build_flags import cxx_flags, link_flags, nvcc_flags
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Spec, Target


@pytest.fixture(autouse=True)
def alone(no_programs: None) -> None:
    """No compilers but those that a test writes."""


@pytest.mark.usefixtures("cxx", "cuda")
class TestFlags:
    def test_what_an_op_adds_comes_after_kjits_own_flags(self) -> None:
        spec = Spec("op", cuda_files=["/x.cu"], extra_cflags=["-O0"], extra_cuda_cflags=["-O1"], extra_ldflags=["-lm"])
        made = Toolchain.for_target(Target.cuda("9.0a"))
        assert cxx_flags(made, spec).index("-O3") < cxx_flags(made, spec).index("-O0")
        assert nvcc_flags(made, spec).index("-O3") < nvcc_flags(made, spec).index("-O1")
        assert link_flags(made, spec).index("-shared") < link_flags(made, spec).index("-lm")

    def test_an_ops_headers_are_searched_before_kjits(self) -> None:
        spec = Spec("op", cpp_files=["/x.cpp"], extra_include_paths=["/mine"])
        flags = cxx_flags(Toolchain.for_target(Target.cpu()), spec)
        assert flags.index("-I/mine") < flags.index(str(locations.kjit_include()))

    def test_code_for_this_cpu_is_made_for_the_cpu_only(self) -> None:
        spec = Spec("op", cpp_files=["/x.cpp"])
        assert "-march=native" in cxx_flags(Toolchain.for_target(Target.cpu()), spec)
        assert "-march=native" not in cxx_flags(Toolchain.for_target(Target.cuda("9.0a")), spec)

    @pytest.mark.parametrize(
        ("family", "version", "is_quiet"),
        [("gcc", (19, 1), False), ("clang", (17, 0), False), ("clang", (18, 1), True)],
    )
    def test_clang_is_not_to_warn_of_its_own_reading_of_this_cpu(
        self, family: str, version: tuple[int, int], is_quiet: bool
    ) -> None:
        made = Toolchain.for_target(Target.cpu())
        made = replace(made, cxx=replace(made.cxx, family=family, version=version))
        flags = cxx_flags(made, Spec("op", cpp_files=["/x.cpp"]))
        assert ("-Wno-invalid-feature-combination" in flags) == is_quiet

    def test_no_errno_and_no_trap_keep_loops_of_a_cpu_kernel_from_vectors(self) -> None:
        wanted = {"-fno-math-errno", "-fno-trapping-math"}
        if platform.machine() == "x86_64":
            wanted.add("-mprefer-vector-width=512")
        spec = Spec("op", cpp_files=["/x.cpp"])
        assert wanted <= set(cxx_flags(Toolchain.for_target(Target.cpu()), spec))
        assert not wanted & set(cxx_flags(Toolchain.for_target(Target.cuda("9.0a")), spec))

    def test_without_openmps_library_its_pragmas_still_make_vectors(self) -> None:
        made = Toolchain.for_target(Target.cpu())
        without = dataclasses.replace(made, cxx=dataclasses.replace(made.cxx, features=("native",)))
        spec = Spec("op", cpp_files=["/x.cpp"])
        assert "-fopenmp-simd" in cxx_flags(without, spec)
        assert "-fopenmp" not in cxx_flags(without, spec) + link_flags(without, spec)
        assert "-fopenmp-simd" not in cxx_flags(Toolchain.for_target(Target.cuda("9.0a")), spec)

    def test_code_for_a_level_of_cpus_is_for_that_level_and_does_not_depend_on_this_cpu(self) -> None:
        level = cpu.levels()[0]
        made = Toolchain.for_target(Target.cpu(level.name))
        flags = cxx_flags(made, Spec("op", cpp_files=["/x.cpp"]))
        assert [flag for flag in flags if flag.startswith("-march")] == [f"-march={level.march}"]
        assert made.identity()["cpu"] is None

    def test_several_architectures_are_one_call_and_the_host_part_is_for_the_lowest(self) -> None:
        flags = nvcc_flags(Toolchain.for_target(Target.cuda("9.0a", "9.0")), Spec("op", cuda_files=["/x.cu"]))
        assert [flag for flag in flags if flag.startswith(("-gencode", "-DKJIT_CUDA_ARCH"))] == [
            "-gencode=arch=compute_90,code=sm_90",
            "-gencode=arch=compute_90a,code=sm_90a",
            "-DKJIT_CUDA_ARCH=900",
        ]
