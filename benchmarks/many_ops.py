"""The time to list and to plan a project with many ops.

    python benchmarks/many_ops.py [--ops 100] [--repeat 5] [--built]

The ops are what `kjit new` writes for CUDA and the CPU, in three dtypes: six variants each. To list is to know the
names of the ops. To plan is to import every wrapper, ask it for its variants and look each up in the cache, as
`kjit build --dry-run` does. The wrappers ask torch for names alone while they are imported, so that planning leaves
torch out; beside it, how long `import torch` takes. The cache is empty, so that everything is stale; with `--built` the
variants for the CPU are built (0.5 s each), and planned again as hits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import common


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--built", action="store_true")
    options = parser.parse_args(args)
    common.print_machine()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "project", Path(folder) / "cache"
        _scaffold(root, options.ops)

        def in_project(function: str, *given: object) -> Callable[[], float]:
            return lambda: common.in_new_process("many_ops", function, *given, KJIT_CACHE_DIR=str(cache))

        def dry_run(*targets: str) -> float:
            command = [sys.executable, "-m", "kjit", "build", "--dry-run", *targets]
            begin = time.perf_counter()
            subprocess.run(
                command,
                cwd=root,
                env={**os.environ, "KJIT_CACHE_DIR": str(cache)},
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return time.perf_counter() - begin

        targets = ["cpu"] if common.nvcc_missing() is not None else ["cpu", "cuda"]
        arch = ["--arch", "9.0a"] if "cuda" in targets else []
        sides = {
            "import torch": in_project("importing_torch"),
            f"list {options.ops} ops": in_project("listing", str(root)),
            f"plan {3 * len(targets) * options.ops} variants, all stale": in_project("planning", str(root), targets),
            "kjit build --dry-run, the whole process": lambda: dry_run("--target", ",".join(targets), *arch),
        }
        common.print_sides("seconds", common.alternate(sides, options.repeat), "s", "import torch")
        if options.built:
            command = [sys.executable, "-m", "kjit", "build", "--target", "cpu"]
            subprocess.run(
                command,
                cwd=root,
                env={**os.environ, "KJIT_CACHE_DIR": str(cache)},
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            sides = {
                "import torch": in_project("importing_torch"),
                f"plan {3 * options.ops} variants, all built": in_project("planning", str(root), ["cpu"]),
                "kjit build --dry-run, the whole process": lambda: dry_run("--target", "cpu"),
            }
            common.print_sides("seconds", common.alternate(sides, options.repeat), "s", "import torch")


def importing_torch() -> float:
    begin = time.perf_counter()
    import torch  # noqa: F401

    return time.perf_counter() - begin


def listing(root: str) -> float:
    """Start to end, with kjit's own import."""
    begin = time.perf_counter()
    from kjit.project import find_project

    assert find_project(root).ops()
    return time.perf_counter() - begin


def planning(root: str, targets: list[str]) -> float:
    """Start to end, with kjit's own import: to knowing what of every variant is built."""
    begin = time.perf_counter()
    from kjit.engine import pool
    from kjit.engine.cache.store import Store
    from kjit.planning import wrappers
    from kjit.project import find_project
    from kjit.spec import Target

    collected = wrappers.collect(find_project(root))
    assert not collected.failures
    assert "torch" not in sys.modules
    for_targets = [Target.cuda("9.0a") if target == "cuda" else Target.cpu() for target in targets]
    outcomes = pool.look_up_all(collected.variants(for_targets), Store.open())
    assert {outcome.state for outcome in outcomes} <= {"stale", "hit"}
    return time.perf_counter() - begin


def _scaffold(root: Path, count: int) -> None:
    from kjit.scaffold.new import parse_devices, scaffold_op

    root.mkdir()
    for index in range(count):
        scaffold_op(f"op_{index}", devices=parse_devices("cuda,cpu"), start=root).files.write()


if __name__ == "__main__":
    main()
