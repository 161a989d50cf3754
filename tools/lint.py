"""Formatters, linters and the type checker in one call; with `--fix` they fix what they can.

python tools/lint.py [--fix]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPP_SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}


def cpp_files() -> list[str]:
    """The C++ and CUDA files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if Path(name).suffix in CPP_SUFFIXES and (ROOT / name).exists()]


def main() -> int:
    fix = sys.argv[1:] == ["--fix"]
    if sys.argv[1:] and not fix:
        print(__doc__)
        return 2
    python = [sys.executable, "-m"]
    bin_folder = Path(sys.executable).parent
    checks = [
        [*python, "ruff", "format", *([] if fix else ["--check"])],
        [*python, "ruff", "check", *(["--fix"] if fix else [])],
        [str(bin_folder / "clang-format"), *(["-i"] if fix else ["--dry-run", "--Werror"]), *cpp_files()],
        [*python, "mypy"],
    ]
    failed = []
    for command in checks:
        name = " ".join(Path(part).name for part in command[:4] if not part.startswith("-") and part != sys.executable)
        print(f"lint: {name}", flush=True)
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            failed.append(name)
    print(f"lint: failed: {', '.join(failed)}" if failed else "lint: all clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
