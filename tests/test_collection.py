"""The test run itself: pytest collects every file of tests."""

from __future__ import annotations

from pathlib import Path

from slow import SLOW

ROOT = Path(__file__).parents[1]


def test_a_run_of_all_tests_collects_every_file_of_tests(collected_files: set[Path]) -> None:
    assert collected_files == set(ROOT.glob("tests/**/test_*.py"))


def test_what_is_left_out_of_the_fast_tests_exists() -> None:
    assert [name for name in SLOW if not (ROOT / name.partition("::")[0]).exists()] == []
    assert list(SLOW) == sorted(set(SLOW))
