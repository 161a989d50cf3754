"""The time of N processes that request one module at once with an empty cache, against one process alone.

    python benchmarks/many_processes.py [--processes 8] [--repeat 5] [--target cpu|cuda]

All processes have imported kjit (and torch) before the clock starts, and it stops when the last one has the module
loaded. One of them compiles, which is counted by a compiler that keeps a list; the others wait for its lock. `cuda` is
built for sm_90a and not loaded, so that it needs nvcc and no GPU.
"""

from __future__ import annotations

import argparse
import os
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
    compiles: set[int] = set()

    def measure(processes: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "cache").mkdir(mode=0o700)
            log = Path(folder) / "log"
            compiler = _counting_compiler(Path(folder), log)
            variables = {"KJIT_CACHE_DIR": f"{folder}/cache", "CXX": str(compiler)}
            seconds = common.in_new_process("many_processes", "start_together", processes, options.target, **variables)
            compiles.add(len(log.read_text().splitlines()))
            return seconds

    many = f"{options.processes} processes"
    sides = {"one process": lambda: measure(1), many: lambda: measure(options.processes)}
    medians = common.alternate(sides, options.repeat)
    what = "build add_constant and load it everywhere" if options.target == "cpu" else "build add_constant for sm_90a"
    common.print_sides(f"{options.target}: {what}", medians, "s", "one process")
    print(f"  compiles in each run: {', '.join(map(str, sorted(compiles)))}")


def _counting_compiler(folder: Path, log: Path) -> Path:
    """A script that calls the C++ compiler and adds a line to `log` for each link: there is one in every build."""
    from kjit.engine.toolchain.compilers import find_cxx

    compiler = folder / "c++"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *add_constant.so*) echo build >>"{log}" ;; esac\nexec "{find_cxx().path}" "$@"\n'
    )
    compiler.chmod(0o755)
    return compiler


def start_together(processes: int, target: str) -> float:
    """Seconds from the start of all until the last of them has the module. Runs in a process of its own."""
    import tvm_ffi  # noqa: F401 (imports are not counted)

    from kjit.engine.miss import ensure_built
    from kjit.runtime.load import load_variant
    from kjit.spec import Target, Variant

    gate, opener = os.pipe()
    ends, end = os.pipe()
    for _ in range(processes):
        if os.fork() == 0:
            os.close(opener)
            os.read(gate, 1)  # comes back in all of them when the other end is closed
            if target == "cpu":
                load_variant(Variant(common.add_constant(7).only("cpu"), Target.cpu()))
            else:
                ensure_built(Variant(common.add_constant(7).only("cuda"), Target.cuda(_ARCH)))
            os.write(end, f"{time.monotonic()!r}\n".encode())
            os._exit(0)
    begin = time.monotonic()
    os.close(opener)
    os.close(end)
    with open(ends) as lines:
        done = [float(line) for line in lines]
    if len(done) != processes:
        raise SystemExit(f"{processes - len(done)} of {processes} processes failed")
    return max(done) - begin


if __name__ == "__main__":
    main()
