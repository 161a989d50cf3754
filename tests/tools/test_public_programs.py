"""tools/programs.py: the programs that it finds, builds and runs, and its comparison of outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tool(import_tool: Callable[[str], Any]) -> Any:
    programs = import_tool("programs")
    programs.built, programs.output = import_tool("programs_built"), import_tool("programs_output")
    return programs


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "programs"),
    [
        (
            {"main_cu": "int main(int argc, char *argv[])\n{}", "other_cu": "", "gold_cpp": "", "notes_txt": ""},
            {"a": ["main.cu", "gold.cpp", "other.cu"]},
        ),
        (
            {"x_cu": "int main() {}", "y_cu": "auto main() -> int {}", "z_cu": ""},
            {"a/x": ["x.cu", "z.cu"], "a/y": ["y.cu", "z.cu"]},
        ),
        ({"main_cu": '#include "../a/kernels.cu"\nint main() {}', "kernels_cu": ""}, {"a": ["main.cu"]}),
    ],
    ids=["one main", "several mains", "a source that another includes"],
)
def test_each_main_is_a_program_of_all_sources_of_its_folder(
    tool: Any, tmp_path: Path, files: dict[str, str], programs: dict[str, list[str]]
) -> None:
    write(tmp_path / "a", **files)
    assert {each.name: [path.name for path in each.sources] for each in tool.find_programs(tmp_path)} == programs


class TestComparison:
    @pytest.mark.parametrize(
        ("line", "again"),
        [
            ("Time = 0.123 msec, Size= 131 Ops", "Time = 7.5 msec, Size= 131 Ops"),
            ("  12.5 GB/s", " 1300.25 GB/s"),
            ("Throughput: 3.1, 4 blocks", "Throughput: 30, 4 blocks"),
            ("buffer at 0x7f0011223344", "buffer at 0x7fddeeff0011"),
        ],
    )
    def test_times_rates_and_addresses_do_not_count(self, tool: Any, line: str, again: str) -> None:
        run = tool.output.Run(0, line, "")
        assert tool.compare(tool.output.Run(0, again, ""), run, run) == ("same", [])

    @pytest.mark.parametrize(
        "line", ["result 0.124", "checksum 0xdeadbeef", "5 warps", "10 elements", "3 steps", "iterate 3"]
    )
    def test_results_count(self, tool: Any, line: str) -> None:
        assert tool.output.stable_lines(line) == [line]

    @pytest.mark.parametrize(
        ("found", "one", "other", "status", "verdict"),
        [
            ("a;sum 2", "a;sum 1", "a;sum 1", 0, ("different", ["- sum 1", "+ sum 2"])),
            ("b;a", "a;b", "a;b", 0, ("different", ["the same lines in another order"])),
            ("a", "a", "a", -6, ("different", ["exit status -6, not 0", "Aborted"])),
            ("a;seed 3", "a;seed 1", "a;seed 2", 0, ("varies", [])),
            ("b;seed 3", "a;seed 1", "a;seed 2", 0, ("different", ["- a", "+ b"])),
        ],
    )
    def test_what_two_runs_of_nvccs_program_have_alike_must_be_the_same(
        self, tool: Any, found: str, one: str, other: str, status: int, verdict: tuple[str, list[str]]
    ) -> None:
        found, one, other = (text.replace(";", "\n") for text in (found, one, other))
        run = tool.output.Run
        assert tool.compare(run(status, found, "Aborted"), run(0, one, ""), run(0, other, "")) == verdict
