"""tools/release_notes.py: a version's section of the changelog, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

CHANGELOG = """# Changelog

## Unreleased

### Added

- next

## 0.2.0 (2027-01-31)

### Added

- second

## 0.1.0

- first
"""


@pytest.fixture(scope="module")
def tool(import_tool: Callable[[str], Any]) -> Any:
    return import_tool("release_notes")


@pytest.mark.parametrize(("version", "expected"), [("0.2.0", "### Added\n\n- second\n"), ("0.1.0", "- first\n")])
def test_the_notes_are_the_section_of_the_version(tool: Any, version: str, expected: str) -> None:
    assert tool.notes(CHANGELOG, version) == expected


@pytest.mark.parametrize("version", ["0.2", "2.0", "0.3.0"])
def test_a_version_without_a_section_is_an_error(tool: Any, version: str) -> None:
    with pytest.raises(ValueError, match=f"says nothing about {version}"):
        tool.notes(CHANGELOG, version)


def test_the_changelog_has_a_section_for_what_comes_next(tool: Any) -> None:
    assert tool.notes(tool.CHANGELOG.read_text("utf-8"), "Unreleased")
