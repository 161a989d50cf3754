"""kjit/highway.h: hand-written Google Highway kernels, and one library on several kinds of CPU."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi

import kjit
from kjit.engine.compile.compile import Built, compile_variant
from kjit.engine.toolchain import cpu
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError
from kjit.spec import Spec, Target, Variant

HERE = Path(__file__).parent
WIDTHS = {"x86-64-v2": 4, "x86-64-v3": 8, "x86-64-v4": 16}
"""The number of floats in a vector, by CPU level."""

# A header with vector code, and the file that calls it; the dispatch is Highway's own.
ADD_HEADER = """
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mine {
namespace HWY_NAMESPACE {

inline void add_one(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, size_t numel) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> tag;
  size_t at = 0;
  for (; at + hn::Lanes(tag) <= numel; at += hn::Lanes(tag)) {
    hn::StoreU(hn::Add(hn::LoadU(tag, from + at), hn::Set(tag, 1.0f)), tag, to + at);
  }
  for (; at < numel; ++at) to[at] = from[at] + 1.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace mine
HWY_AFTER_NAMESPACE();
"""
ADD = """
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "add.hpp"
#include HIGHWAY

#include "add.hpp"

#if HWY_ONCE
namespace mine {
HWY_EXPORT(add_one);
void add(kjit::TensorView to, kjit::TensorView from) {
  HWY_DYNAMIC_DISPATCH(add_one)
  (static_cast<float*>(to.data_ptr()), static_cast<const float*>(from.data_ptr()), static_cast<size_t>(to.numel()));
}
}  // namespace mine
#endif
"""
OWN = "#include <kjit/highway.h>"
HIGHWAYS = "#include <hwy/foreach_target.h>\n#include <hwy/highway.h>"


def lowest() -> Target:
    """The CPU level with the most targets to choose from."""
    level = cpu.lowest_level()
    return Target.cpu(None if level is None else level.name)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The cases, compiled for the lowest CPU level."""
    spec = Spec(
        "highway_cases",
        cpp_files=[HERE / "highway_cases.cpp"],
        extra_include_paths=[HERE, *kjit.highway_include()],
    )
    return compile_variant(
        Variant(spec, lowest()), Toolchain.for_target(lowest()), tmp_path_factory.mktemp("highway_cases")
    )


def at_level(built: Built, level: str, folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """The module on a CPU of `level`: a copy of its own, because the choice is permanent."""
    patch.setenv("KJIT_CPU_LEVEL", level)
    return tvm_ffi.load_module(str(shutil.copy(built.library, folder / f"{level}.so")))


@pytest.mark.highway
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have one target")
def test_one_library_chooses_vectors_by_the_cpu(cases: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = cpu.levels_here()
    found = {level: at_level(cases, level, tmp_path, monkeypatch).lanes() for level in levels}
    assert found == {level: WIDTHS[level] for level in levels}


@pytest.mark.highway
def test_each_of_its_ways_computes_the_same(cases: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in cpu.levels_here():
        module = at_level(cases, level, tmp_path, monkeypatch)
        for numel in (0, 1, 15, 16, 17, 67):
            for dtype, add in ((torch.float32, module.add_floats), (torch.float64, module.add_doubles)):
                x, out = torch.arange(numel).to(dtype), torch.full((numel + 1,), 99, dtype=dtype)
                add(x, 0.5, out[:numel])
                assert torch.equal(out[:numel], x + 0.5)
                assert out[numel] == 99


@pytest.mark.highway
def test_nothing_of_highways_library_is_needed_and_its_headers_are_recorded(cases: Built) -> None:
    assert cases.warnings == ""
    assert any(path.endswith("/hwy/foreach_target.h") for path in cases.headers)
    assert b"libhwy" not in cases.library.read_bytes()


def write_add(folder: Path, includes: str) -> Spec:
    """A kernel as written for Highway alone, exported to Python."""
    (folder / "add.hpp").write_text(ADD_HEADER)
    (folder / "add.cpp").write_text("#include <kjit/ffi.h>\n" + ADD.replace("#include HIGHWAY", includes))
    return Spec(
        "add",
        cpp_files=[folder / "add.cpp"],
        cpp_wrappers=[("add", "mine::add")],
        extra_include_paths=[folder, *kjit.highway_include()],
    )


@pytest.mark.highway
def test_vectors_may_be_in_a_header_and_the_module_for_this_cpu_alone(tmp_path: Path) -> None:
    spec = write_add(tmp_path, OWN)
    module = kjit.load_jit(
        "add", cpp_files=spec.cpp_files, cpp_wrappers=spec.cpp_wrappers, extra_include_paths=spec.extra_include_paths
    )
    x, out = torch.arange(67.0), torch.empty(67)
    module.add(out, x)
    assert torch.equal(out, x + 1)


@pytest.mark.highway
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have one target")
def test_without_what_highway_keeps_in_a_library_it_is_said_which_header_has_it(tmp_path: Path) -> None:
    spec = write_add(tmp_path, HIGHWAYS)
    staging = tmp_path / "staging"
    staging.mkdir()
    with pytest.raises(CompileError, match="undefined symbol") as error:
        compile_variant(Variant(spec, lowest()), Toolchain.for_target(lowest()), staging)
    assert "include <kjit/highway.h>" in (error.value.hint or "")
