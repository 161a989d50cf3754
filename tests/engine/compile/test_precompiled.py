"""kjit.engine.compile.precompiled: the same machine code and messages, and use for equal text and flags only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kjit.engine.compile import host_compiler, precompiled
from kjit.engine.compile.precompiled import find
from kjit.engine.toolchain.compilers import find_cxx
from kjit.errors import ToolchainError

# As long as headers of a small op.
HEADER = "namespace lib { template <typename T> struct Name { T value; }; }\n" + "".join(
    f"namespace lib {{ inline int function_{i}(Name<int> x) {{ return x.value + {i}; }} }}\n" for i in range(2000)
)
UNIT = f"""# 0 "op.cu"
# 0 "<built-in>"
# 1 "op.cu"

# 1 "/lib/header.h" 1 3
{HEADER}
# 2 "op.cu" 2
# 1 "/op/op.cuh" 1

# 1 "/lib/other.h" 1 3
inline int other() {{ return 5; }}
# 2 "/op/op.cuh" 2

int answer(int x) {{ return lib::function_7({{x}}) + other(); }}
# 3 "op.cu" 2
"""


def compiler() -> tuple[str, ...]:
    try:
        cxx = find_cxx()
    except ToolchainError as error:
        pytest.skip(str(error))
    if cxx.family != "gcc":
        pytest.skip(f"{cxx.label} precompiles nothing")
    return (str(cxx.path), "-std=c++20", "-O3", "-fPIC")


@pytest.fixture(autouse=True)
def _in_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as a fork of a helper."""
    (tmp_path / "headers").mkdir()
    monkeypatch.setattr(precompiled, "folder", str(tmp_path / "headers"))
    monkeypatch.setattr(precompiled, "wanted", None)


def precompile(flags: tuple[str, ...], unit: str = UNIT) -> None:
    assert find(flags, unit) is None
    if precompiled.wanted is not None:
        precompiled.make(host_compiler.precompile)


def compile_unit(folder: Path, flags: tuple[str, ...], unit: str) -> tuple[int, str]:
    """The status, and what the compiler says; the object is `unit.o`."""
    (folder / "unit.ii").write_text(unit)
    tail = ("-x", "c++-cpp-output", "-c", str(folder / "cut.ii"), "-o", str(folder / "unit.o"))
    words = [str(folder / "unit.ii"), str(folder / "cut.ii"), str(folder / "unit.o"), "", *flags, *tail]
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        status = host_compiler.main(words, log)
    finally:
        os.close(log)
    return status, (folder / "log").read_text()


def machine_code(path: Path) -> bytes:
    return subprocess.run(["objdump", "-dr", "--no-show-raw-insn", path], capture_output=True, check=True).stdout


def test_machine_code_is_the_same_with_precompiled_headers(tmp_path: Path) -> None:
    flags = compiler()
    assert compile_unit(tmp_path, flags, UNIT) == (0, "")
    plain = machine_code(tmp_path / "unit.o")
    precompile(flags)
    edited = UNIT.replace("+ other()", "+ 2 * other()")
    for unit in (UNIT, edited):
        assert compile_unit(tmp_path, flags, unit) == (0, "")
        assert "pch_preprocess" in (tmp_path / "cut.ii").read_text()
        assert (machine_code(tmp_path / "unit.o") == plain) == (unit is UNIT)


def test_mistakes_and_warnings_are_reported_and_the_headers_stay(tmp_path: Path) -> None:
    flags = (*compiler(), "-Wall")
    precompile(flags)
    status, said = compile_unit(tmp_path, flags, UNIT.replace("+ other()", "+ others()"))
    assert status != 0 and "op.cuh:3" in said
    _, said = compile_unit(tmp_path, flags, UNIT.replace("return lib", "int unused; return lib"))
    assert "pch_preprocess" in (tmp_path / "cut.ii").read_text()
    assert "unused variable" in said


@pytest.mark.parametrize("what", ["another header", "another flag", "less than it takes", "what warns"])
def test_there_are_none_for(what: str) -> None:
    flags = compiler()
    short, warns = UNIT.replace(HEADER, "\n"), UNIT.replace(HEADER, f"{HEADER}#warning old\n")
    unit = short if what.startswith("less") else warns if what == "what warns" else UNIT
    precompile(flags, unit)
    if what == "another header":
        unit = UNIT.replace("{ return 5; }", "{ return 6; }")
    assert find((*flags, "-g") if what == "another flag" else flags, unit) is None


def test_what_the_compiler_does_not_take_is_compiled_without(tmp_path: Path) -> None:
    flags = compiler()
    precompile(flags)
    (file,) = (tmp_path / "headers").glob("*/headers.pch")
    file.write_bytes(b"no header")
    assert compile_unit(tmp_path, flags, UNIT) == (0, "")
    assert "pch_preprocess" not in (tmp_path / "cut.ii").read_text()


def test_a_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "_MOST", 2)
    flags = compiler()
    for number in range(3):
        precompile((*flags, f"-DNUMBER={number}"))
    assert len(list((tmp_path / "headers").iterdir())) == 2
    assert find((*flags, "-DNUMBER=2"), UNIT) is not None
    assert find((*flags, "-DNUMBER=0"), UNIT) is None
