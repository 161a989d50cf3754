"""Kernels have the instructions that nvcc gives them, whichever compiler builds a unit."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from both import VALUES, Refused, build_both
from cubins import Kernel, kernels_of
from device_programs import FUNCTIONS, HEADERS, OF_LANGUAGE, OF_NVCC, Program, kernel_of

pytestmark = pytest.mark.nvcc


def _text(programs: Sequence[Program]) -> str:
    """The programs in one text, each in a namespace of its own, with a function that would launch all kernels."""
    parts = [HEADERS]
    launches = []
    for number, program in enumerate(programs):
        parts.append(f"{program.before}\nnamespace program{number} {{\n{program.text}\n}}")
        launches.append(f"  {{ using namespace program{number}; {program.launch} }}")
    visible = 'extern "C" __attribute__((visibility("default"))) void'
    return "\n".join([*parts, f"{visible} {VALUES}_() {{", *launches, "}", f"{visible} {VALUES}() {{}}"])


def _compared(programs: Sequence[Program], folder: Path, flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """The kernels that differ, and the programs that the halves refuse, found by bisection."""
    try:
        pair = build_both(_text(programs), folder, flags)
    except Refused as error:
        if len(programs) == 1:
            return [], [f"{programs[0].name} is refused: {str(error).strip()[:500]}"]
        half = len(programs) // 2
        parts = [_compared(each, folder, flags) for each in (programs[:half], programs[half:])]
        return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]
    by_nvcc = kernels_of(pair.nvcc)
    by_halves = {name: kernel for library in pair.halves for name, kernel in kernels_of(library).items()}

    def named(symbol: str) -> str:
        match = re.search(r"program(\d+)", symbol)
        return f"{programs[int(match[1])].name if match else '?'} ({symbol})"

    found = [f"{named(each)}: only by nvcc" for each in by_nvcc.keys() - by_halves.keys()]
    found += [f"{named(each)}: only by the halves" for each in by_halves.keys() - by_nvcc.keys()]
    for symbol in sorted(by_nvcc.keys() & by_halves.keys()):
        one, other = by_nvcc[symbol], by_halves[symbol]
        if why := _difference(one, other):
            found.append(f"{named(symbol)}: {why}")
    return found, []


def _difference(one: Kernel, other: Kernel) -> str:
    if one.parameters != other.parameters:
        return f"parameters\n    nvcc:   {one.parameters}\n    halves: {other.parameters}"
    if one.constants != other.constants:
        return f"constants\n    nvcc:   {one.constants}\n    halves: {other.constants}"
    if one.code == other.code:
        return ""
    words = [[code[at : at + 16] for at in range(0, len(code), 16)] for code in (one.code, other.code)]
    at = next((n for n, (a, b) in enumerate(zip(*words, strict=False)) if a != b), min(map(len, words)))
    return f"{len(words[0])} instructions by nvcc, {len(words[1])} by the halves, the first that differs is {at}"


def hold_programs(
    programs: Sequence[Program], folder: Path, flags: Sequence[str] = (), most_refused: float = 0
) -> None:
    """Fail where a kernel of these programs differs, or the halves refuse too many of them."""
    found, refused = _compared(programs, folder, flags)
    assert not found, "\n".join([f"kernels of {len(programs)} programs differ:", *found, *refused])
    assert len(refused) <= most_refused * len(programs), "\n".join(refused)


def test_code_of_every_form_is_nvccs(tmp_path: Path) -> None:
    hold_programs(OF_LANGUAGE, tmp_path)


def test_a_sample_of_functions_is_nvccs(tmp_path: Path) -> None:
    hold_programs([kernel_of(each) for each in random.Random(5).sample(FUNCTIONS, 80)], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("flag", ["-Xptxas=-O1", "-use_fast_math", "-lineinfo", "-std=c++17", "--fmad=false"])
def test_all_functions_are_nvccs(flag: str, tmp_path: Path) -> None:
    hold_programs([kernel_of(each) for each in FUNCTIONS], tmp_path, [flag])


@pytest.mark.nightly
@pytest.mark.parametrize("flag", ["-use_fast_math", "-std=c++17", "--extended-lambda"])
def test_code_of_every_form_is_nvccs_with_a_flag(flag: str, tmp_path: Path) -> None:
    hold_programs([each for each in OF_LANGUAGE if flag != "-std=c++17" or not each.needs_20], tmp_path, [flag])


@pytest.mark.nightly
@pytest.mark.parametrize("program", OF_NVCC, ids=lambda program: program.name)
def test_what_is_left_to_nvcc_is_refused_or_equal(program: Program, tmp_path: Path) -> None:
    hold_programs([program], tmp_path, most_refused=1)
