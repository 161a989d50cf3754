"""How long do N processes take that ask for one module at once on an empty cache, against one process alone?

    python benchmarks/many_processes.py [--processes 8] [--repeat 5] [--target cpu|cuda]

All processes have imported kjit (and torch) before the clock starts, and it stops when the last one has the module
loaded. One of them compiles, which is counted by a compiler that keeps a list; the others wait for its lock. `cuda` is
built for sm_90a and not loaded, so that it needs nvcc and no GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import common

_ARCH = "9.0a"


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(args)
    common.print_machine()
    many = f"{options.processes} processes"
    compiles: list[int] = []

    def measure(processes: int) -> float:
        seconds, count = _start_together(processes, options.target)
        compiles.append(count)
        return seconds

    medians = common.alternate(
        {"one process": lambda: measure(1), many: lambda: measure(options.processes)}, options.repeat
    )
    common.print_sides(f"{options.target}: build add_constant and load it everywhere", medians, "s", "one process")
    print(f"  compiles in each run: {', '.join(map(str, sorted(set(compiles))))}")


def _start_together(processes: int, target: str) -> tuple[float, int]:
    """Seconds until the last of them has the module, and how many compiles there were."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "cache").mkdir(mode=0o700)
        log = root / "log"
        environment = {**os.environ, "KJIT_CACHE_DIR": str(root / "cache"), "CXX": str(_counting_compiler(root, log))}
        command = [sys.executable, "-c", f"import many_processes; many_processes.load({target!r})"]
        here = Path(__file__).resolve().parent
        running = [
            subprocess.Popen(
                command, cwd=here, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(processes)
        ]
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        begin = time.monotonic()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        ends = [float(process.communicate()[0]) for process in running]
        return max(ends) - begin, len(log.read_text().splitlines())


def _counting_compiler(folder: Path, log: Path) -> Path:
    """The C++ compiler behind a script that adds a line to `log` for each link: there is one in every build."""
    from kjit.build.compilers import find_cxx

    compiler = folder / "c++"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *add_constant.so*) echo build >>"{log}" ;; esac\nexec "{find_cxx().path}" "$@"\n'
    )
    compiler.chmod(0o755)
    return compiler


def load(target: str) -> None:
    """Say that everything is imported, wait for the start, load, and say when that was done."""
    import tvm_ffi  # noqa: F401 (imports are not counted)

    from kjit.build import plan  # noqa: F401
    from kjit.runtime.load import ensure_built, load_variant
    from kjit.spec import Target, Variant

    print("ready", flush=True)
    sys.stdin.readline()
    if target == "cpu":
        load_variant(Variant(common.add_constant(7).only("cpu"), Target.cpu()))
    else:
        ensure_built(Variant(common.add_constant(7).only("cuda"), Target.cuda(_ARCH)))
    print(time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
