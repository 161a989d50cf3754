"""kjit.engine.diagnostics.placing: the lines that messages are shown at (test_diagnostics.py has those of messages)."""

from __future__ import annotations

import pytest

from kjit.engine.diagnostics.placing import unclosed_brace


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a {\n}\n", None),
        ("a {\n", (1, 2)),
        ("a {\n  b {\n  }\n", (1, 2)),
        ("a {\n  b {\n}\n", (2, 4)),
        ("a { // }\n  \"}\" '}' /* }\n } */\n", (1, 2)),
    ],
)
def test_the_indentation_shows_which_brace_lacks_its_partner(text: str, place: tuple[int, int] | None) -> None:
    assert unclosed_brace(text.split("\n")) == place
