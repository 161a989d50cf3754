"""Queries to git."""

from __future__ import annotations

import subprocess
from pathlib import Path


def ask(folder: Path, *arguments: str) -> str | None:
    """The output of `git -C folder arguments`; None if git is not installed or fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None
