"""The messages about forty mistakes, compiled by the real compilers (mistakes.py writes the expected ones)."""

from __future__ import annotations

import re
from functools import partial

import mistakes
import pytest
from mistakes import COMPILERS, EXPECTED, MISTAKES, Mistake, compiler_of, expected, say, shape

from kjit.engine.cache.failures import Refusal
from kjit.engine.compile.compile import compile_variant


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> list[Refusal]:
    """The failures that another call would not repeat (kjit/engine/cache/failures.py)."""
    refusals: list[Refusal] = []
    monkeypatch.setattr(mistakes, "compile_variant", partial(compile_variant, on_refusal=refusals.append))
    return refusals


TWICE = (
    "sim_missing_header",
    "sim_wrong_number_of_arguments",
    "cuda_missing_header",
    "cuda_missing_semicolon",
    "cuda_undefined_reference",
    "cuda_unknown_flag",
    "cuda_wrong_export_name",
    "math_wrong_type_cuda",
)
"""Mistakes that are also among those for the CPU, of each kind one. The others come every night."""


def marks_of(name: str, mistake: Mistake) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.nvcc] if mistake.is_cuda else []
    of_the_cpu = name.removeprefix("sim_").removeprefix("cuda_").removesuffix("_cuda").removesuffix("_sim")
    is_twice = of_the_cpu != name and of_the_cpu in MISTAKES and name not in TWICE
    return [*marks, pytest.mark.nightly] if is_twice else marks


@pytest.mark.parametrize(
    ("name", "mistake"),
    [pytest.param(name, mistake, id=name, marks=marks_of(name, mistake)) for name, mistake in MISTAKES.items()],
)
def test_a_mistake_is_shown_as_expected(name: str, mistake: Mistake, remembered: list[Refusal]) -> None:
    see(name, mistake, remembered)


OF_CUDA = pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.is_cuda])


@pytest.mark.nvcc
@pytest.mark.nightly
@OF_CUDA
def test_nvcc_shows_it_too(name: str, remembered: list[Refusal], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvcc")
    see(name, MISTAKES[name], remembered)


@pytest.mark.nvcc
@pytest.mark.nightly
@pytest.mark.usefixtures("without_nvcc")
@OF_CUDA
def test_nvrtc_shows_it_where_there_is_no_nvcc(name: str, remembered: list[Refusal]) -> None:
    see(name, MISTAKES[name], remembered)


def see(name: str, mistake: Mistake, remembered: list[Refusal]) -> None:
    """Check what is said of a mistake."""
    compiler = compiler_of(mistake)
    said, texts = say(mistake), [expected(name, compiler)]
    if compiler.startswith("nvrtc"):
        # Where NVRTC lacks something nvcc is asked, if it is here.
        texts.append(expected(name, compiler.replace("nvrtc", "nvcc")))
    if compiler in COMPILERS.read_text().splitlines():
        assert said in texts
    else:
        assert shape(said) in map(shape, texts)
    # Of flags that a compiler does not know it says so at once, and nobody need remember it.
    is_about_flags = re.search("flag|option|_in_quotes|older_language|missing_(?:library|archive|linker)", name)
    if re.search(r" does not (?:compile|link)\.\n", said) and not is_about_flags:
        assert remembered


def test_every_expected_text_belongs_to_a_mistake() -> None:
    written = {path.stem.removesuffix(".clang").removesuffix(".nvrtc") for path in EXPECTED.glob("*.txt")}
    assert written == {*MISTAKES, COMPILERS.stem}


def test_each_text_names_the_users_file_or_declaration_first() -> None:
    about_flags = re.compile(
        r"(?:cuda_|sim_)?(?:unknown_flag|unknown_option.*|missing_library|older_language|two_flags_in_one|device_link"
        r"|other_output|other_arch|list_in_quotes|shell|no_host_compiler|missing_archive|missing_linker_script"
        r"|missing_at_load|undefined_at_load|kernel_as_export)"
    )
    for name, mistake in MISTAKES.items():
        lines = (EXPECTED / f"{name}.txt").read_text().splitlines()
        first = lines[0] if "warning: " in lines[0] or len(lines) == 1 else lines[1]
        is_located = first.startswith((f"{mistake.source}:", "the wrapper of export 'scale'"))
        assert is_located != (about_flags.fullmatch(name) is not None), (name, first)


def test_no_text_is_about_something_else_than_the_mistake() -> None:
    for path in EXPECTED.glob("*.txt"):
        text = path.read_text()
        assert "No space left" not in text and "tmpxft" not in text and "/tmp" not in text, path.name
