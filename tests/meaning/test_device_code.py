"""Kernels have the instructions that nvcc gives them, whichever compiler builds a unit."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from both import VALUES, Refused, build, places_of
from cubins import Kernel, kernels_of
from device_programs import FUNCTIONS, HEADERS, OF_LANGUAGE, OF_NVCC, Program, kernel_of

pytestmark = pytest.mark.nvcc


def _text(programs: Mapping[int, Program]) -> str:
    """The programs in one text, each in a namespace of its own, with a function that would launch all kernels."""
    parts = [HEADERS]
    launches = []
    for number, program in programs.items():
        parts.append(f"{_BEGIN}{number}\n{program.before}\nnamespace program{number:03} {{\n{program.text}\n}}")
        launches.append(f"{_BEGIN}{number}\n  {{ using namespace program{number:03}; {program.launch} }}")
    visible = 'extern "C" __attribute__((visibility("default"))) void'
    return "\n".join([*parts, f"{visible} {VALUES}_() {{", *launches, "}", f"{visible} {VALUES}() {{}}"])


_BEGIN = "// program "


def _named_by(error: Refused, text: str) -> dict[int, str]:
    """The programs that an error is about, and what it says."""
    lines = text.splitlines()
    named: dict[int, str] = {}
    for at, why in places_of(str(error)):
        begin = next((line for line in reversed(lines[: at + 1]) if line.startswith(_BEGIN)), None)
        if begin is not None:
            named.setdefault(int(begin.removeprefix(_BEGIN)), why)
    return named


def _kernels_of_halves(
    programs: Mapping[int, Program], folder: Path, flags: Sequence[str], part: str = "-"
) -> tuple[dict[str, Kernel], dict[int, str]]:
    """The kernels by the halves, and why they refuse programs; found by bisection where an error names none."""
    refused: dict[int, str] = {}
    while True:
        left = {number: program for number, program in programs.items() if number not in refused}
        text = _text(left)
        try:
            return kernels_of(build(text, "nvrtc", folder, flags, part).library) if left else {}, refused
        except Refused as error:
            named = _named_by(error, text)
            if not named and len(left) == 1:
                return {}, refused | dict.fromkeys(left, str(error).strip()[:300])
            if not named:
                break
            refused |= named
    kernels: dict[str, Kernel] = {}
    numbers = list(left)
    for name, some in (("a", numbers[: len(numbers) // 2]), ("b", numbers[len(numbers) // 2 :])):
        found, also = _kernels_of_halves({number: left[number] for number in some}, folder, flags, part + name)
        kernels, refused = kernels | found, refused | also
    return kernels, refused


def _compared(programs: Sequence[Program], folder: Path, flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """The kernels that differ, and the programs that the halves refuse."""
    numbered = dict(enumerate(programs))
    try:
        by_nvcc = kernels_of(build(_text(numbered), "nvcc", folder, flags).library)
    except Refused as error:
        pytest.fail(f"this test is wrong, for nvcc refuses its text:\n{str(error)[:2000]}")
    by_halves, refused = _kernels_of_halves(numbered, folder, flags)

    def number_of(symbol: str) -> int:
        match = re.search(r"program(\d{3})", symbol)
        return int(match[1]) if match else -1

    def named(symbol: str) -> str:
        number = number_of(symbol)
        return f"{programs[number].name if number >= 0 else '?'} ({symbol})"

    expected = {symbol: kernel for symbol, kernel in by_nvcc.items() if number_of(symbol) not in refused}
    found = [f"{named(each)}: only by nvcc" for each in expected.keys() - by_halves.keys() if number_of(each) >= 0]
    found += [f"{named(each)}: only by the halves" for each in by_halves.keys() - by_nvcc.keys()]
    for symbol in sorted(expected.keys() & by_halves.keys()):
        if why := _difference(expected[symbol], by_halves[symbol]):
            found.append(f"{named(symbol)}: {why}")
    return found, [f"{programs[number].name} is refused: {why}" for number, why in refused.items()]


def _difference(one: Kernel, other: Kernel) -> str:
    if one.parameters != other.parameters:
        return f"parameters\n    nvcc:   {one.parameters}\n    halves: {other.parameters}"
    if one.constants != other.constants:
        return f"constants\n    nvcc:   {one.constants}\n    halves: {other.constants}"
    if one.code == other.code:
        return ""
    texts = [one.instructions(), other.instructions()]
    if texts[0] == texts[1]:
        return ""
    counts = [Counter(each.split()[each.startswith("@")] for each in text) for text in texts]
    more = [f"{count} more {opcode}" for opcode, count in (counts[0] - counts[1]).items()]
    fewer = [f"{count} fewer {opcode}" for opcode, count in (counts[1] - counts[0]).items()]
    at = next((n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    lines = "".join(f"\n    {who} {text[at : at + 1]}" for who, text in zip(("nvcc:  ", "halves:"), texts, strict=True))
    lengths = f"{len(texts[0])} instructions by nvcc, {len(texts[1])} by the halves"
    return f"{lengths}; nvcc has {', '.join([*more, *fewer]) or 'the same opcodes'}; the first that differs:{lines}"


def hold_programs(
    programs: Sequence[Program], folder: Path, flags: Sequence[str] = (), most_refused: float = 0
) -> None:
    """Fail where a kernel of these programs differs, or the halves refuse too many of them."""
    found, refused = _compared(programs, folder, flags)
    assert not found, "\n".join([f"kernels of {len(programs)} programs differ:", *found, *refused])
    assert len(refused) <= most_refused * len(programs), "\n".join([f"of {len(programs)} programs:", *refused])


def test_code_of_every_form_and_of_a_sample_of_functions_is_nvccs(tmp_path: Path) -> None:
    functions = [kernel_of(each) for each in random.Random(5).sample(FUNCTIONS, 80)]
    hold_programs([*OF_LANGUAGE, *functions], tmp_path, most_refused=0.1)


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
