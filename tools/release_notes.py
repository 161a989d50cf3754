"""The changelog's section about one version: the notes of its release.

python tools/release_notes.py VERSION
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """The text under the heading `## VERSION` or `## VERSION (date)`.

    Raises:
        ValueError: there is no such heading, or no text under it.
    """
    found = re.search(rf"^## {re.escape(version)}(?: \(.*\))?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    text = found[1].strip() if found else ""
    if not text:
        raise ValueError(f"{CHANGELOG.name} says nothing about {version}")
    return f"{text}\n"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(notes(CHANGELOG.read_text("utf-8"), sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
