"""The time of `kjit cache ls|size|verify` and `kjit clean-cache` with many artifacts, start-up included.

    python benchmarks/cache_commands.py [--artifacts N]

One small op is built, and its artifact is copied under other keys into a cache of its own: libraries and records of
real size, in the folder for temporary files (TMPDIR decides on which disk). Besides the commands: a publication at the
limit of `KJIT_CACHE_MAX_SIZE`, which counts and evicts, and one below it, which does not.

The time that passed and the time on a processor: the first is longer where the machine or its disk is busy. Of what
is short and changes nothing, the fastest of five runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import KERNELS, print_machine

from kjit.engine import builder
from kjit.engine.cache.artifact import lines_of, read_artifact, write_record
from kjit.engine.cache.limit import make_room
from kjit.engine.cache.store import Artifact, Store
from kjit.runtime import LAYOUT
from kjit.spec import Spec, Target, Variant

OPS = 100
REPEAT = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=10_000, metavar="N")
    count = parser.parse_args().artifacts
    print_machine()
    with tempfile.TemporaryDirectory(prefix="kjit-cache-commands-") as folder:
        os.environ["KJIT_CACHE_DIR"] = folder
        os.environ.pop("KJIT_CACHE_MAX_SIZE", None)
        os.environ.pop("KJIT_SHARED_CACHE_DIR", None)
        last = fill(Path(folder), count)
        size = sum(entry.size for entry in Store.open().entries())
        print(f"{count} artifacts of {OPS} ops, {size / 2**20:.0f} MiB, in {folder}\n")
        print(f"  {'':<55} {'clock':>10} {'processor':>10}")
        for words in (
            ["cache", "size"],
            ["cache", "ls"],
            ["cache", "ls", "--json"],
            ["cache", "verify"],
            ["clean-cache", "--older-than", "30d", "--yes"],
        ):
            runs = [kjit(words) for _ in range(1 if "verify" in words else REPEAT)]
            report(f"kjit {' '.join(words)}", (min(run[0] for run in runs), min(run[1] for run in runs)))
        os.environ["KJIT_CACHE_MAX_SIZE"] = str(2 * size)
        report("publish below a limit, the first time (counts)", evict(last))
        report("publish below a limit", evict(last))
        for entry in list(Store.open().entries())[: count // 10]:
            os.utime(f"{entry.path}/record.jsonl", (0, 0))
        os.environ["KJIT_CACHE_MAX_SIZE"] = str(size)
        report(f"publish at the limit (counts, evicts {count // 10})", evict(last))
        del os.environ["KJIT_CACHE_MAX_SIZE"]
        report("kjit clean-cache --yes", kjit(["clean-cache", "--yes"]))


def fill(folder: Path, count: int) -> Artifact:
    """Put `count` artifacts into the cache, and return the last."""
    spec = Spec("seed", cpp_files=[KERNELS / "add_constant.cpp"], cpp_wrappers=[("f", "add_constant<1>")])
    seed = builder.build(Variant(spec, Target.cpu()), Store.open()).artifact
    assert seed is not None
    for index in range(count):
        op, key = f"op{index % OPS}", f"{index:032x}"
        home = folder / LAYOUT / "cpu" / op / key / key
        home.mkdir(mode=0o700, parents=True)
        shutil.copyfile(seed.library, home / f"{op}.so")
        names = {"op": op, "label": f"{op}<{index}>", "arguments": [str(index)], "key1": key, "key2": key}
        write_record(
            home, lines_of({**seed.summary, **names}, seed.reads, {"inputs": seed.inputs, "build": seed.build})
        )
    last = read_artifact(str(home))
    assert isinstance(last, Artifact)
    return last


def kjit(words: list[str]) -> tuple[float, float]:
    """The seconds that a command took, by the clock and on a processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "kjit", *words], check=True, capture_output=True)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def evict(added: Artifact) -> tuple[float, float]:
    """Make room for `added`, as its publication does; the elapsed and the CPU time."""
    store = Store.open()
    before, began = time.process_time(), time.perf_counter()
    make_room(store, added)
    return time.perf_counter() - began, time.process_time() - before


def report(what: str, seconds: tuple[float, float]) -> None:
    print(f"  {what:<55} {seconds[0]:8.3f} s {seconds[1]:8.3f} s")


if __name__ == "__main__":
    main()
