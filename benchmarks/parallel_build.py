"""The parallelism of `kjit build`: cores in use, and the time against one compile after another.

    python benchmarks/parallel_build.py [--variants 24] [--jobs N] [--no-cuda]

`--variants` variants of `add_constant` for sm_90a (without nvcc for the CPU) are built into an empty cache that knows
the compilers, once in parallel as `kjit build` does it and once with one job. Core use is the CPU time of all compilers
and of kjit itself, as a share of what the cores could have given meanwhile; and, since other programs take their part
of a machine, as a share of what these left: of that and what nobody used. Job use is the share of the time that as many
compiles ran as may.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Sequence

import common

from kjit.engine import builder, pool
from kjit.engine.cache.store import Store
from kjit.engine.compile.jobs import parallel_jobs
from kjit.spec import Target, Variant


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=int, default=24)
    parser.add_argument("--jobs", type=int, help="the most at once; default as `kjit build` chooses")
    parser.add_argument("--no-cuda", action="store_true")
    options = parser.parse_args(args)
    common.print_machine()
    missing = common.nvcc_missing()
    target = Target.cpu() if options.no_cuda or missing is not None else Target.cuda("9.0a")
    if missing is not None:
        print(f"CUDA is left out: {missing}")
    jobs = parallel_jobs([Variant(common.add_constant(0).only(target.side), target)] * options.variants)
    at_once = options.jobs or jobs
    walls = {
        f"{count} at once" if count > 1 else "one after another": _measure(target, options.variants, count)
        for count in dict.fromkeys((at_once, 1))
    }
    common.print_sides(f"build {options.variants} variants for {target}", walls, "s", "one after another")


def _measure(target: Target, variants: int, jobs: int) -> float:
    """Seconds of wall time; prints the use of the cores."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KJIT_CACHE_DIR"] = cache
        store = Store.open()
        # Compilers are asked, and the code that all modules share is compiled, before the clock starts.
        builder.build(Variant(common.add_constant(0).only(target.side), target), store)
        todo = [Variant(common.add_constant(n).only(target.side), target) for n in range(1, variants + 1)]
        cpu, idle, begin = _cpu_seconds(), _idle_seconds(), time.perf_counter()
        outcomes = pool.build_all(todo, store, jobs=jobs)
        wall, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
        if any(outcome.state != "built" for outcome in outcomes):
            raise next(outcome.error for outcome in outcomes if outcome.error is not None)
    cores = len(os.sched_getaffinity(0))
    job_use = sum(outcome.seconds for outcome in outcomes) / (wall * jobs)
    line = f"{jobs} job(s): {wall:.1f} s, job use {job_use:.2f}, core use {cpu / (wall * cores):.2f} of {cores} cores"
    if cores == os.cpu_count() and idle is not None:
        unused = (_idle_seconds() or 0.0) - idle
        line += f", {cpu / (cpu + unused):.2f} of what other programs left"
    print(line)
    return wall


def _cpu_seconds() -> float:
    """CPU time of this process and of the children that have ended, and of theirs."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _idle_seconds() -> float | None:
    """The idle time of all cores together since the machine was started; None if that is unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = file.readline().split()
    except OSError:
        return None
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
