"""Modules with vectors by Google Highway: where its headers are found, and one library for several kinds of CPU."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
import tvm_ffi

from kjit.build import bundle_writer, cpu, highway
from kjit.build.compile import compile_variant
from kjit.build.highway import find_highway
from kjit.build.key import Key
from kjit.build.toolchain import Toolchain
from kjit.errors import ToolchainError, UsageError
from kjit.spec import Spec, Target, Variant

LANES = """
#include <kjit/ffi.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lanes.cpp"
#include <kjit/highway.h>

HWY_BEFORE_NAMESPACE();
namespace {
namespace HWY_NAMESPACE {

int64_t lanes() { return hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<float>()); }

}  // namespace HWY_NAMESPACE
}  // namespace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace {
HWY_EXPORT(lanes);
int64_t lanes_here() { return HWY_DYNAMIC_DISPATCH(lanes)(); }
}  // namespace
#endif
"""


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Highway, and the folder of its Python environment."""
    monkeypatch.setattr(highway, "SYSTEM_FOLDERS", (str(tmp_path / "usr"),))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    for name in ("CONDA_PREFIX", "CPATH", "CPLUS_INCLUDE_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "venv"


def spec_in(project: Path) -> Spec:
    csrc = project / "csrc"
    csrc.mkdir(parents=True)
    (project / "pyproject.toml").touch()
    (csrc / "lanes.cpp").write_text(LANES)
    return Spec("lanes", cpp_files=[csrc / "lanes.cpp"], cpp_wrappers=[("lanes", "lanes_here")], simd="highway")


def install(prefix: Path) -> Path:
    (prefix / "include" / "hwy").mkdir(parents=True)
    (prefix / "include" / "hwy" / "highway.h").write_text(
        "#define HWY_MAJOR 1\n#define HWY_MINOR 0\n#define HWY_PATCH 7\n"
    )
    return prefix / "include"


@pytest.mark.usefixtures("nowhere")
def test_what_is_missing_is_said_with_the_two_ways_to_install_it() -> None:
    with pytest.raises(ToolchainError, match="Google Highway is missing") as error:
        find_highway()
    assert "sudo apt install libhwy-dev" in (error.value.hint or "")
    assert "conda install -c conda-forge libhwy" in (error.value.hint or "")


@pytest.mark.usefixtures("nowhere")
def test_a_build_says_so_too(tmp_path: Path) -> None:
    toolchain = Toolchain.for_target(Target.cpu())
    with pytest.raises(ToolchainError, match="Google Highway is missing"):
        toolchain.cxx_flags(spec_in(tmp_path / "project"))


def test_the_python_environment_goes_before_condas_and_that_before_the_systems(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "system")
    monkeypatch.setattr(highway, "SYSTEM_FOLDERS", (str(tmp_path / "system" / "include"),))
    assert find_highway().flags == []  # compilers search there
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    install(tmp_path / "conda")
    assert find_highway().flags == ["-isystem", str(tmp_path / "conda" / "include")]
    own = install(nowhere)
    assert find_highway().flags == ["-isystem", str(own)]
    assert find_highway().version == "1.0.7"


def test_a_word_that_is_no_way_to_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="simd is one of compiler, highway, not 'avx2'"):
        Spec("lanes", cpp_files=[tmp_path / "lanes.cpp"], simd="avx2")  # type: ignore[arg-type]


@pytest.mark.highway
def test_a_moved_project_has_the_same_key_and_another_way_to_vectors_has_not(tmp_path: Path) -> None:
    specs = [spec_in(tmp_path / name) for name in ("here", "there")]
    toolchain = Toolchain.for_target(Target.cpu())
    keys = [Key.of(Variant(spec, Target.cpu()), toolchain).key1 for spec in specs]
    plain = Spec("lanes", cpp_files=specs[0].cpp_files, cpp_wrappers=specs[0].cpp_wrappers)
    assert keys[0] == keys[1] != Key.of(Variant(plain, Target.cpu()), toolchain).key1


@pytest.mark.highway
def test_a_bundle_has_one_library_of_it_for_the_lowest_level(tmp_path: Path) -> None:
    targets = bundle_writer.targets_of_bundle([Target.cpu()])
    spec = spec_in(tmp_path)
    assert [target.level for target in targets if cpu.is_built_for(spec, target)] == [cpu.levels()[0].name]
    plain = Spec("lanes", cpp_files=spec.cpp_files, cpp_wrappers=spec.cpp_wrappers)
    assert all(cpu.is_built_for(plain, target) for target in targets)


@pytest.mark.highway
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have one target")
def test_one_library_chooses_by_the_cpu_and_needs_none_of_highways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = Variant(spec_in(tmp_path / "it's a project"), Target.cpu("x86-64-v2"))
    staging = tmp_path / "staging"
    staging.mkdir()
    built = compile_variant(variant, Toolchain.for_target(variant.target), staging)
    assert built.warnings == ""
    assert any(path.endswith("/foreach_target.h") for path in built.headers)
    assert b"libhwy" not in built.library.read_bytes()
    found = {}
    for level in cpu.levels_here():
        # What was chosen stays: each time a library of its own.
        copy = shutil.copy(built.library, tmp_path / f"{level}.so")
        monkeypatch.setenv("KJIT_CPU_LEVEL", level)
        found[level] = tvm_ffi.load_module(str(copy)).lanes()
    widths = {"x86-64-v2": 4, "x86-64-v3": 8, "x86-64-v4": 16}
    assert found == {level: widths[level] for level in found}


def test_a_lower_level_can_be_tried_and_one_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cpu.levels_here()
    monkeypatch.setenv("KJIT_CPU_LEVEL", here[0])
    assert cpu.levels_here() == here[:1]
    monkeypatch.setenv("KJIT_CPU_LEVEL", "pentium")
    with pytest.raises(UsageError, match="'pentium' is no level"):
        cpu.levels_here()
