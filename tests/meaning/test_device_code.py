"""Kernels have the instructions that nvcc gives them, whichever compiler builds a unit."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from both import VALUES, Refused, build_both
from cubins import Kernel, kernels_of
from device_programs import FUNCTIONS, HEADERS, OF_LANGUAGE, Program, kernel_of


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




def _differences(programs: Sequence[Program], folder: Path, flags: Sequence[str]) -> list[str]:
    """The kernels that differ, or a program that the halves refuse and nvcc compiles, by bisection."""
    try:
        pair = build_both(_text(programs), folder, flags)
    except Refused as error:
        if len(programs) == 1:
            (program,) = programs
            return [f"{program.name} is refused: {str(error).strip()[:600]}"]
        half = len(programs) // 2
        return [*_differences(programs[:half], folder, flags), *_differences(programs[half:], folder, flags)]
    by_nvcc, by_halves = kernels_of(pair.nvcc), kernels_of(pair.halves)
    names = {f"program{number}": program.name for number, program in enumerate(programs)}

    def named(symbol: str) -> str:
        match = re.search(r"program\d+", symbol)
        return f"{names[match[0]] if match else '?'} ({symbol})"

    found = [f"{named(each)}: only by nvcc" for each in by_nvcc.keys() - by_halves.keys()]
    found += [f"{named(each)}: only by the halves" for each in by_halves.keys() - by_nvcc.keys()]
    for symbol in sorted(by_nvcc.keys() & by_halves.keys()):
        one, other = by_nvcc[symbol], by_halves[symbol]
        if why := _difference(one, other):
            found.append(f"{named(symbol)}: {why}")
    return found


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


def hold_programs(programs: Sequence[Program], folder: Path, flags: Sequence[str] = ()) -> None:
    """Fail where a kernel of these programs differs, or the halves refuse one."""
    found = _differences(programs, folder, flags)
    assert not found, "\n".join([f"{len(found)} of {len(programs)} programs:", *found])


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
