"""How long does kjit take to start, against Python itself, and does it load torch?

python benchmarks/startup.py [--repeat 20]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

import common

_SIDES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import kjit": [sys.executable, "-c", "import kjit"],
    "kjit --help": [sys.executable, "-m", "kjit", "--help"],
    "kjit new --help": [sys.executable, "-m", "kjit", "new", "--help"],
}


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args(args)
    common.print_machine()
    for command in _SIDES.values():
        _run(command)  # compiles Python's own files once
    medians = common.alternate({name: lambda c=command: _run(c) for name, command in _SIDES.items()}, options.repeat)
    common.print_sides("start to exit", medians, "ms", "python -c pass")
    base = medians["python -c pass"]
    for name in list(_SIDES)[1:]:
        print(f"  {name}: {medians[name] - base:+.1f} ms over Python; loads torch: {_loads_torch(_SIDES[name])}")


def _run(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - begin) * 1e3


def _loads_torch(command: list[str]) -> str:
    """Ask Python which modules it imports."""
    timed = [command[0], "-X", "importtime", *command[1:]]
    log = subprocess.run(timed, check=True, capture_output=True, text=True).stderr
    return "yes" if any(line.rpartition("|")[2].strip() == "torch" for line in log.splitlines()) else "no"


if __name__ == "__main__":
    main()
