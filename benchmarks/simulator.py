"""The time of kernels in the simulator.

    python benchmarks/simulator.py [--check] [--repeat 5]

Threads that do nearly nothing, so that what is measured is what the simulator adds: 2^20 threads of an element-wise
kernel without barriers (to be under a second on two cores), 2^16 threads with ten barriers each (under two seconds),
2^16 threads with five warp shuffles each; and the compilation of a small unit. `--check` measures the checking mode.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import common
import torch

import kjit
from kjit.testing import simulated

KERNELS = Path(__file__).parent / "kernels" / "threads.cuh"
EXPORTS = ("elements", "barriers", "shuffles")


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(args)
    common.print_machine(gpu=False)
    with simulated(check=options.check), tempfile.TemporaryDirectory() as folder:

        def build(exports: Sequence[str], directory: str) -> Any:
            return kjit.load_jit(
                "threads",
                cuda_files=[KERNELS],
                cuda_wrappers=[(name, name) for name in exports],
                build_directory=Path(folder) / directory,
            )

        build(EXPORTS[:1], "first")  # compiles the simulator itself, once for a machine
        began = time.perf_counter()
        module = build(EXPORTS, "second")
        built = time.perf_counter() - began
        many, few = torch.rand(1 << 20), torch.rand(1 << 16)
        cases: dict[str, Callable[[], object]] = {
            "2^20 threads, element-wise": lambda: module.elements(torch.empty_like(many), many),
            "2^16 threads, 10 barriers each": lambda: module.barriers(torch.empty_like(few), few, 10),
            "2^16 threads, 5 shuffles each": lambda: module.shuffles(torch.empty_like(few), few),
        }
        print(f"\n{'compile, link and load a small unit':36} {built:8.3f} s")
        for name, run in cases.items():
            first = _seconds(run)
            print(
                f"{name:36} {median(_seconds(run) for _ in range(options.repeat)):8.3f} s (first call: {first:.3f} s)"
            )


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
