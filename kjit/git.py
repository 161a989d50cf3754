"""Git's answers about a folder."""

from __future__ import annotations

import subprocess
from pathlib import Path


def ask(folder: Path, *arguments: str) -> str | None:
    """What `git -C folder arguments` prints, or None where git is not installed or refuses."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None
