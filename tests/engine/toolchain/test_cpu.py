"""kjit.engine.toolchain.cpu: the features of this CPU, and the libraries for other CPUs that run on it."""

from __future__ import annotations

import platform
import subprocess

import pytest

from kjit.engine.toolchain import cpu
from kjit.engine.toolchain.compilers import find_cxx
from kjit.errors import UsageError
from kjit.runtime import bundle, cpu_features, cpu_identity

V2 = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = f"{V2} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
NEOVERSE_N1 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs"


@pytest.mark.parametrize(
    ("machine", "features", "levels"),
    [
        ("x86_64", V4, ("x86-64-v2", "x86-64-v3", "x86-64-v4")),
        ("x86_64", V3, ("x86-64-v2", "x86-64-v3")),
        ("x86_64", V3.replace(" fma", ""), ("x86-64-v2",)),
        # Without what is below it a level does not count.
        ("x86_64", V4.replace(" avx2", ""), ("x86-64-v2",)),
        ("x86_64", "", ()),
        ("aarch64", NEOVERSE_N1, ("armv8-a", "armv8.2-a")),
        ("aarch64", "fp asimd evtstrm crc32 cpuid", ("armv8-a",)),
        ("riscv64", V4, ()),
    ],
)
def test_a_cpu_has_a_level_if_it_has_all_instructions_up_to_it(
    machine: str, features: str, levels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(bundle, "cpu_features", lambda: frozenset(features.split()))
    assert cpu.levels_here() == levels


def test_the_compiler_knows_every_level_and_needs_no_instruction_beyond_it() -> None:
    names = {"lzcnt": "abm", "sse3": "pni", "sahf": "lahf_lm"}
    known: frozenset[str] = frozenset()
    for level in cpu.levels():
        known |= level.features
        command = [find_cxx().path, f"-march={level.march}", "-dM", "-E", "-x", "c++", "/dev/null"]
        defined = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if platform.machine() == "x86_64":
            macros = {line.split()[1].strip("_").lower() for line in defined.splitlines() if line.endswith(" 1")}
            macros = {names.get(name, name) for name in macros}
            assert {"avx2", "avx512f", "avx512_vnni", "sse4_2", "fma", "f16c"} & macros <= known


def test_what_is_known_of_this_cpu_is_what_linux_says() -> None:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    assert cpu_features()
    assert all(feature in text for feature in cpu_features())
    assert cpu_identity().startswith(platform.machine())


def test_an_unknown_kind_of_cpu_has_no_levels_to_build_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="for a CPU of the kind 'riscv64' no levels are known"):
        cpu.levels()


def test_an_unknown_level_is_refused_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    with pytest.raises(UsageError, match=r"'x86-64-v9' is not a level(.|\n)*x86-64-v2, x86-64-v3, x86-64-v4"):
        cpu.find_level("x86-64-v9")


def test_a_lower_level_can_be_tried_and_one_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cpu.levels_here()
    monkeypatch.setenv("KJIT_CPU_LEVEL", here[0])
    assert cpu.levels_here() == here[:1]
    monkeypatch.setenv("KJIT_CPU_LEVEL", "pentium")
    with pytest.raises(UsageError, match="'pentium' is not a level"):
        cpu.levels_here()
