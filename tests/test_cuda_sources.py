"""Every CUDA source of the repository compiles, for several architectures, with no GPU."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
from pathlib import Path

import each_pattern
import pytest
from exported import functions_of

import kjit
from kjit.engine.compile.plan import wrapper_unit
from kjit.engine.miss import ensure_built
from kjit.engine.toolchain.build_flags import nvcc_flags
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.project import find_project
from kjit.runtime.declared import declared_in

ROOT = Path(__file__).resolve().parent.parent
ARCHS = ["8.0", "9.0a", "10.0a"]
OPS = [
    declared
    for op in find_project(ROOT).ops()
    for declared in declared_in(vars(importlib.import_module(f"kjit.ops.{op}")))
    if "cuda" in declared.specs()[0].kinds
]


def cases_of(gpu_test: Path) -> set[str]:
    """The names, less `.cuh`, of the kernels that a test of tests/gpu has written for it."""
    return set(re.findall(r"\b\w+_cases\b", gpu_test.read_text("utf-8")))


GPU_TESTS = [path for path in sorted((ROOT / "tests" / "gpu").glob("test_*.py")) if cases_of(path)]
GPU_TESTS.remove(ROOT / "tests" / "gpu" / "test_rowwise.py")  # with the other patterns, below
assert set.union(*map(cases_of, GPU_TESTS)) == {path.stem for path in (ROOT / "tests" / "gpu").glob("*.cuh")}

pytestmark = pytest.mark.nvcc


@pytest.fixture(autouse=True)
def gpu_tests_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))  # for formats.py


EVERY_DAY = "embedding"
VARIANTS = [
    pytest.param(
        spec,
        arch,
        id=f"{spec.label}-{arch}",
        marks=() if (spec.name, number, arch) == (EVERY_DAY, 0, "9.0a") else pytest.mark.nightly,
    )
    for op in OPS
    for number, spec in enumerate(op.specs())
    for arch in (ARCHS if number == 0 else ["9.0a"])
]
"""As modules, of which one is enough every day: the device code of the others compiles, below."""


@pytest.mark.parametrize(("spec", "arch"), VARIANTS)
def test_a_reference_op_compiles(spec: kjit.Spec, arch: str) -> None:
    check_module(spec.only("cuda"), arch)


KERNELS = [
    ("add_constant.cuh", "add_constant<8>"),
    ("copy.cuh", "Copy<bf16_t>::run"),
    ("row_reduce.cuh", "RowReduce<ReductionOp::MAX, fp32_t>::run"),
    ("threads.cuh", "barriers"),
]
assert {path.name for path in (ROOT / "benchmarks" / "kernels").glob("*.cuh")} == {
    *(name for name, _ in KERNELS),
    "split.cuh",
}


def check_device_code(spec: kjit.Spec, arch: str, folder: Path) -> None:
    """Every function for the GPU is compiled and nothing optimised, and no warning is given; the rest every night."""
    unit = folder / "unit.cu"
    unit.write_text(wrapper_unit(list(spec.cuda_files), spec.cuda_wrappers, with_cuda_types=True))
    toolchain = Toolchain.for_target(kjit.Target.cuda(arch))
    assert toolchain.cuda is not None
    flags = [flag for flag in nvcc_flags(toolchain, spec) if not flag.startswith("-gencode")]
    flags += [f"-arch=compute_{kjit.CudaArch.parse(arch).digits}", "-Werror=all-warnings", "-Xcicc", "-O0"]
    command = [toolchain.cuda.nvcc.path, *flags, "-ptx", "-o", folder / "unit.ptx", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ".entry" in (folder / "unit.ptx").read_text()


def check_module(spec: kjit.Spec, arch: str) -> None:
    assert ensure_built(kjit.Variant(spec, kjit.Target.cuda(arch))).build["warnings"] == ""


def benchmarks_kernel(source: str, symbol: str) -> kjit.Spec:
    files = [ROOT / "benchmarks" / "kernels" / source]
    return kjit.Spec("kernel", cuda_files=files, cuda_wrappers=[("run", symbol)])


def gpu_tests_kernels(module: Path) -> kjit.Spec:
    (cases,) = cases_of(module)
    source = module.parent / f"{cases}.cuh"
    exports = [*functions_of(source), *runpy.run_path(str(module)).get("EXPORTS", ())]
    return kjit.Spec(cases, cuda_files=[source], cuda_wrappers=exports)


SOURCES = {Path(path).name: path for op in OPS for path in op.specs()[0].cuda_files}


@pytest.mark.parametrize("source", SOURCES)
def test_the_device_code_of_the_reference_ops_of_a_source_compiles(source: str, tmp_path: Path) -> None:
    """Of one variant of each."""
    symbols = [
        symbol for op in OPS if SOURCES[source] in op.specs()[0].cuda_files for _, symbol in op.specs()[0].cuda_wrappers
    ]
    exports = [(f"run_{number}", symbol) for number, symbol in enumerate(symbols)]
    check_device_code(kjit.Spec("ops", cuda_files=[SOURCES[source]], cuda_wrappers=exports), "9.0a", tmp_path)


@pytest.mark.parametrize(("source", "symbol"), KERNELS, ids=[name for name, _ in KERNELS])
def test_the_device_code_of_a_kernel_of_the_benchmarks_compiles(source: str, symbol: str, tmp_path: Path) -> None:
    check_device_code(benchmarks_kernel(source, symbol), "9.0a", tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("source", "symbol"), KERNELS, ids=[name for name, _ in KERNELS])
def test_a_kernel_of_the_benchmarks_compiles(source: str, symbol: str, arch: str) -> None:
    check_module(benchmarks_kernel(source, symbol), arch)


LONGEST = ("test_type", "test_warp")
EVERY_NIGHT = (*LONGEST, "test_cub", "test_math", "test_row_memory")
"""These take long, or the sources of others have most of what is in them."""


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.nightly if path.stem in EVERY_NIGHT else ())
        for path in GPU_TESTS
    ],
)
def test_the_device_code_of_a_gpu_test_compiles(module: Path, tmp_path: Path) -> None:
    check_device_code(gpu_tests_kernels(module), ARCHS[-1], tmp_path)


def patterns_kernels(pattern: str) -> kjit.Spec:
    path, exports = each_pattern.cases_of(pattern)
    return kjit.Spec(path.stem, cuda_files=[path], cuda_wrappers=exports)


@pytest.mark.parametrize("pattern", each_pattern.NAMES)
def test_the_device_code_of_a_pattern_compiles(pattern: str, tmp_path: Path) -> None:
    check_device_code(patterns_kernels(pattern), ARCHS[-1], tmp_path)


# For the oldest and the newest, as these are long compiles; the two longest for the newest alone.


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("module", "arch"),
    [
        pytest.param(path, arch, id=f"{path.stem}-{arch}")
        for path in GPU_TESTS
        for arch in (ARCHS[0], ARCHS[-1])
        if arch == ARCHS[-1] or path.stem not in LONGEST
    ],
)
def test_the_kernels_of_a_gpu_test_compile(module: Path, arch: str) -> None:
    check_module(gpu_tests_kernels(module), arch)


@pytest.mark.nightly
@pytest.mark.parametrize("arch", [ARCHS[0], ARCHS[-1]])
@pytest.mark.parametrize("pattern", each_pattern.NAMES)
def test_the_kernels_of_a_pattern_compile(pattern: str, arch: str) -> None:
    check_module(patterns_kernels(pattern), arch)


def test_a_vector_of_pairs_is_one_load_and_one_store(tmp_path: Path) -> None:
    # CUDA's pair types have copy functions of their own, which once made a load of each pair.
    (tmp_path / "copy.cu").write_text(
        "#include <kjit/tile.cuh>\n#include <kjit/utils.cuh>\n"
        "using Vector = kjit::device::AlignedVector<kjit::bf16x2_t, 4>;\n"
        "__global__ void copy(void* dst, const void* src) {\n"
        "  Vector v;\n  v.load(src, threadIdx.x);\n  v.store(dst, threadIdx.x);\n"
        "  const auto memory = kjit::device::tile::Memory<Vector>::cta();\n"
        "  memory.store(dst, memory.load(src, 1), 1);\n"
        "  kjit::device::store_as<Vector>(dst, kjit::device::load_as<Vector>(src, threadIdx.x), 2);\n}\n"
    )
    toolchain = Toolchain.for_target(kjit.Target.cuda("9.0a"))
    assert toolchain.cuda is not None
    flags = nvcc_flags(toolchain, kjit.Spec("copy", cuda_files=[tmp_path / "copy.cu"]))
    command = [
        str(toolchain.cuda.nvcc.path),
        *flags,
        "-ptx",
        str(tmp_path / "copy.cu"),
        "-o",
        str(tmp_path / "copy.ptx"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    accesses = re.findall(r"\b(?:ld|st)\.global\S*", (tmp_path / "copy.ptx").read_text())
    assert sorted(accesses) == ["ld.global.v4.u32"] * 3 + ["st.global.v4.u32"] * 3
