"""Install the headers of Google Highway into this virtual environment if the machine has none; without root.

python tools/get_highway.py

On Debian and its derivatives the system's package is downloaded and unpacked beside the environment's own headers,
which kjit searches first. Nothing outside the environment changes. A failure is printed in a line, and the tests that
need Highway are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kjit.errors import ToolchainError
from kjit.runtime.highway import HEADER, find_highway, highway_version

PACKAGE = "libhwy-dev"


def main() -> int:
    try:
        find_highway()
    except ToolchainError:
        print(f"highway: {_fetch()}")
    return 0


def _fetch() -> str:
    """Download and unpack it; return the result as a sentence."""
    if sys.prefix == sys.base_prefix:
        return f"not installed, and this is no virtual environment; tests that need {HEADER} are skipped"
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, capture_output=True)
            package = next(Path(folder).glob("*.deb"))
            subprocess.run(["dpkg", "-x", package, "unpacked"], cwd=folder, check=True, capture_output=True)
        except (OSError, StopIteration, subprocess.CalledProcessError) as error:
            return f"not installed, and {PACKAGE} could not be fetched ({error}); tests that need it are skipped"
        include = Path(sys.prefix) / "include"
        include.mkdir(exist_ok=True)
        shutil.copytree(Path(folder) / "unpacked" / "usr" / "include" / "hwy", include / "hwy", dirs_exist_ok=True)
    return f"{highway_version(find_highway())} is in {include}"


if __name__ == "__main__":
    sys.exit(main())
