"""kjit.runtime.highway: the search for Google Highway's headers, and the error if it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

import kjit
from kjit.engine.compile.compile import compile_variant
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError, ToolchainError
from kjit.runtime import highway
from kjit.runtime.highway import find_highway, highway_version
from kjit.spec import Spec, Target, Variant


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Highway, and the folder of its Python environment."""
    monkeypatch.setattr(highway, "SYSTEM_FOLDERS", (str(tmp_path / "usr"),))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    for name in ("CONDA_PREFIX", "CPATH", "CPLUS_INCLUDE_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "venv"


def install(prefix: Path) -> Path:
    (prefix / "include" / "hwy").mkdir(parents=True)
    (prefix / "include" / "hwy" / "highway.h").write_text(
        "#define HWY_MAJOR 1\n#define HWY_MINOR 0\n#define HWY_PATCH 7\n"
    )
    return prefix / "include"


def test_the_python_environment_goes_before_condas_and_that_before_the_systems(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "system")
    monkeypatch.setattr(highway, "SYSTEM_FOLDERS", (str(tmp_path / "system" / "include"),))
    assert kjit.highway_include() == []  # compilers search there
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    install(tmp_path / "conda")
    assert kjit.highway_include() == [str(tmp_path / "conda" / "include")]
    own = install(nowhere)
    assert kjit.highway_include() == [str(own)]
    assert highway_version(find_highway()) == "1.0.7"


@pytest.mark.usefixtures("nowhere")
def test_a_wrapper_can_ask_where_there_is_none() -> None:
    assert kjit.highway_include() == []
    with pytest.raises(ToolchainError, match="Google Highway is missing"):
        find_highway()


def test_a_build_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "lanes.cpp").write_text("#include <hwy/no_such.h>\n")
    variant = Variant(Spec("lanes", cpp_files=[tmp_path / "lanes.cpp"]), Target.cpu())
    with pytest.raises(CompileError, match="no_such") as error:
        compile_variant(variant, Toolchain.for_target(variant.target), tmp_path)
    assert "*kjit.highway_include()" in str(error.value.hint)
    assert "`sudo apt install libhwy-dev`" in str(error.value.hint)
