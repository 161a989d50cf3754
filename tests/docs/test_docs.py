"""The pages are true and complete: commands and snippets run, links lead somewhere, every option has a place."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pages import LANGUAGES, Block, Page, edited, matches, read_page, runner
from warm import begin, warm_up

import kjit
from kjit import env
from kjit.cli import app
from kjit.project import load_toml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import docs_site  # noqa: E402
import header_names  # noqa: E402

PAGES = {
    path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}


_LONG = """adding-a-kernel author-loop cache commands environment faults from-flashinfer from-sglang headers quickstart
row-ops serving shipping simulator troubleshooting tutorial"""
EVERY_NIGHT = {"README.md", *(f"docs/{name}.md" for name in _LONG.split())}
"""Pages that take long, and whose commands other tests run too; `make demo` runs the README's."""


def page(name: str) -> Page:
    return read_page(PAGES[name], name)


@pytest.fixture(scope="module")
def filled_cache(_shared_cache: Path) -> Path:
    warm_up(simulator=True)
    return _shared_cache


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in EVERY_NIGHT else []) for name in PAGES]
)
def test_everything_on_the_page_runs_and_prints_what_it_says(name: str, filled_cache: Path, tmp_path: Path) -> None:
    begin(tmp_path / "cache", filled_cache)
    with runner(tmp_path / "page", tmp_path / "cache") as page_runner:
        for block in page(name).blocks:
            page_runner.run(block)


@pytest.mark.parametrize("name", PAGES)
def test_every_fenced_block_says_what_it_is(name: str) -> None:
    assert [block.place for block in page(name).blocks if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_row_of_a_table_is_one_line_with_a_cell_for_each_column(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", PAGES[name].read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\|.*[^|\n]$", text, re.MULTILINE) == []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [re.sub(r"\\\||`[^`]*`", "", row).count("|") for row in table.splitlines()]
        assert rows == rows[:1] * len(rows), table


@pytest.mark.parametrize("name", PAGES)
def test_every_link_between_pages_leads_to_a_page_and_a_heading(name: str) -> None:
    broken = []
    for line, link in page(name).links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (PAGES[name].parent / target).resolve() if target else PAGES[name]
        known = {each.resolve(): known for known, each in PAGES.items()}
        if not path.exists() or (anchor and (path not in known or anchor not in page(known[path]).anchors)):
            broken.append(f"{name}:{line}: {link}")
    assert broken == []


def test_the_index_leads_to_every_page_and_the_readme_to_the_index() -> None:
    def links(index: str) -> set[Path]:
        return {(PAGES[index].parent / link.partition("#")[0]).resolve() for _, link in page(index).links}

    assert [
        name for name, path in PAGES.items() if name != "docs/README.md" and path not in links("docs/README.md")
    ] == []
    assert PAGES["docs/README.md"] in links("README.md")


def test_every_page_has_a_place_in_the_site() -> None:
    nav = re.findall(r"^ *- .+: ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    generated = {*docs_site.OUTSIDE, docs_site.NAMES, docs_site.CPP_NAMES}
    assert sorted(nav) == sorted([*generated, *(path.name for path in PAGES.values() if path.parent != ROOT)])


def commands(group: Any, words: str = "kjit") -> Iterator[tuple[str, Any]]:
    """Every command of the program: the words that call it, and what click knows of it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{words} {name}")
        else:
            yield f"{words} {name}", command


PROGRAM = typer.main.get_command(app)
COMMANDS = dict(commands(PROGRAM))


@pytest.mark.parametrize("words", COMMANDS)
def test_the_section_about_a_command_runs_it_and_has_every_option(words: str) -> None:
    sections = page("docs/commands.md").sections
    about = next((text for title, text in sections.items() if words in title.split(", ")), None)
    assert about is not None, f"docs/commands.md has no heading '{words}'"
    assert re.search(rf"^\$ (?:.* )?{words}\b", about, re.MULTILINE)
    options = [option for each in COMMANDS[words].params for option in each.opts if option.startswith("-")]
    assert [option for option in options if f"`{option}" not in about] == []


def test_every_option_of_the_program_itself_is_on_the_page_about_commands() -> None:
    text = PAGES["docs/commands.md"].read_text("utf-8")
    options = [option for each in PROGRAM.params for option in each.opts]
    assert [option for option in options if f"`{option}" not in text] == []


def test_no_section_names_an_option_that_no_command_has() -> None:
    known = {option for command in (PROGRAM, *COMMANDS.values()) for each in command.params for option in each.opts}
    known |= {"--help", "-h", "-k", "-m", "--lf"}  # the last three are pytest's
    text = PAGES["docs/commands.md"].read_text("utf-8")
    named = set(re.findall(r"`(--?[a-z][a-z-]*)", text))
    assert named - known == set()


@pytest.mark.parametrize("public", kjit.__all__)
def test_every_public_name_has_a_place_on_the_page_about_python(public: str) -> None:
    headings = [title.partition("(")[0] for title in page("docs/python-api.md").sections]
    assert any(f"kjit.{public}" in title.split(", ") for title in headings)


@pytest.mark.parametrize("module", [kjit.testing, kjit.benchmark])
def test_every_name_of_a_public_module_has_a_place_on_the_page_about_python(module: Any) -> None:
    text = PAGES["docs/python-api.md"].read_text("utf-8")
    assert [name for name in module.__all__ if f"`{name}" not in text and f".{name}" not in text] == []


def test_every_variable_that_kjit_reads_is_in_the_table_with_sentences_about_it() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGES["docs/environment.md"].read_text("utf-8"), re.MULTILINE))
    constants = [value for value in vars(env).values() if isinstance(value, str)]
    ours = {value for value in constants if re.fullmatch(r"(KJIT|TVM_FFI)_[A-Z_]+", value)}
    assert {name for name in table if name.startswith(("KJIT_", "TVM_FFI_"))} == ours
    assert [name for name in ours if not table[name].endswith(".")] == []


def test_every_extra_that_a_page_names_exists() -> None:
    extras = load_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]
    named = {extra for path in PAGES.values() for extra in re.findall(r"kjit\[(\w+)\]", path.read_text("utf-8"))}
    assert named - set(extras) == set()


@pytest.mark.parametrize(
    ("shown", "printed", "equal", "with_figures"),
    [
        ("one\n...\nfour\n", "one\ntwo\nthree\nfour\n", True, True),
        ("one\n...\nfour\n", "one\ntwo\nthree\n", False, False),
        ("scale  cpu  built  0.6  41.3 KiB\n", "scale  cpu  built  12.0  9.1 KiB\n", False, True),
        ("scale  cpu  built  0.6  41.3 KiB\n", "scale  cuda  built  0.6  41.3 KiB\n", False, False),
        ("used 12 s, 980 B\n", "used 2 m, 1.0 KiB\n", False, True),
    ],
)
def test_dots_stand_for_anything_and_figures_vary_where_the_page_says_so(
    shown: str, printed: str, equal: bool, with_figures: bool
) -> None:
    assert matches(shown, printed) == equal
    assert matches(shown, printed, figures_vary=True) == with_figures


def test_a_diff_changes_the_lines_that_it_shows_and_no_others() -> None:
    def change(text: str, diff: str) -> str:
        return edited(text, Block("page.md", 1, "diff", diff, {}))

    assert change("a\nb\n\nc\n", " b\n\n-c\n+d\n") == "a\nb\n\nd\n"
    assert change("a\nb\nc\n", "-a\n...\n-c\n+e\n+f\n") == "b\ne\nf\n"
    with pytest.raises(AssertionError, match=r"page\.md:1: what is to change is in the file 0 times"):
        change("aa\nab\n", "-a\n+b\n")


@pytest.mark.parametrize(
    ("text", "error"),
    [("$ echo one\ntwo\n", r"page\.md:2: \$ echo one\nprints something else"), ("$ false\n", "ends with 1")],
)
def test_another_output_or_exit_status_than_on_the_page_is_noticed(
    tmp_path: Path, cache_dir: Path, text: str, error: str
) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"```console\n{text}```\n")
    with runner(tmp_path / "page", cache_dir) as page_runner, pytest.raises(AssertionError, match=error):
        page_runner.run(read_page(path, "page.md").blocks[0])


def public_names(header: Path) -> set[str]:
    """The names that a header declares in kjit's namespaces, and its macros."""
    entries = header_names.entries(header.read_text("utf-8").split("\n"))
    return {name for entry in entries for name in entry.names if not name.startswith("operator")}


HEADERS = header_names.headers()


@pytest.mark.parametrize("header", HEADERS)
def test_every_public_name_of_a_header_is_in_the_section_about_it(header: str) -> None:
    sections = page("docs/headers.md").sections
    about = next((text for title, text in sections.items() if title.endswith(f" {header}")), None)
    assert about is not None, f"docs/headers.md has no section about {header}"
    assert f"#include <kjit/{header}>" in about
    assert [name for name in sorted(public_names(HEADERS[header])) if not re.search(rf"\b{name}\b", about)] == []


# What others are made of, and tested through them.
PARTS = {
    "dtype.h": {"compute_type"},
    "highway.h": {
        "HWY_COMPILE_ONLY_STATIC",
        "HWY_DISABLED_TARGETS",
        "HWY_DISABLE_PCLMUL_AES",
        "HWY_DYNAMIC_DISPATCH_T",  # every scaffold has these two
        "HWY_EXPORT_T",
    },
    "impl/norm.cuh": {"inverse_root_of_mean"},
    "launch.h": {"Extent"},
    "math.cuh": {"Functions"},
    "patterns/operands.h": {"Operand"},
    "runtime.cuh": {"MaybeDevice", "run_on_device"},
    "type.cuh": {"Conversion", "Fp8Trait", "HalfPairTrait", "HalfPairs", "HalfTrait", "PackedTrait", "ScalarTrait"},
    "utils.cuh": {"CUDA_VERSION"},
    "utils.h": {"Error", "IntegerRange", "KJIT_COLD", "KJIT_IMPL", "KJIT_PANIC", "Message", "Piece", "panic"},
}


@pytest.mark.parametrize("header", HEADERS)
def test_every_public_name_of_a_header_occurs_in_a_test(header: str) -> None:
    folders = (ROOT / "tests" / "cpp", ROOT / "tests" / "gpu")
    cases = "\n".join(path.read_text("utf-8") for folder in folders for path in folder.iterdir() if path.is_file())
    names = sorted(public_names(HEADERS[header]) - PARTS.get(header, set()))
    assert [name for name in names if not re.search(rf"\b{name}\b", cases)] == []
