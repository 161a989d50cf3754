"""The number of compilers that run in parallel: enough to keep the cores busy, and not more than fit into free memory.

Units are counted, not modules: one module may have dozens of units that take nvcc gigabytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kjit.engine.toolchain import machine
from kjit.spec import SIDES, Spec, Variant


def units(spec: Spec) -> int:
    """The number of a module's units: with wrappers, all sources of a side are one unit."""
    return sum(1 if spec.wrappers(side) else len(spec.files(side)) for side in SIDES)


def parallel_jobs(variants: Sequence[Variant], wanted: int | None = None) -> int:
    """The number of units to compile in parallel: `wanted`, by default slightly more than the number of cores, and not
    more than fit into free memory.

    A compile leaves its core idle at times: while ninja starts, while files are written, and at its end, when threads
    of this process wait for the GIL. One more compile for each eight cores (at least one) uses that time.
    """
    return min(most_jobs(variants, wanted), max(units_of(variants), 1))


def most_jobs(variants: Sequence[Variant], wanted: int | None = None) -> int:
    """Like `parallel_jobs`, whatever the number of units: for commands besides those that compile them."""
    cores = machine.cores()
    jobs = wanted or cores + max(cores // 8, 1)
    free = machine.free_memory()
    if free is not None and variants:
        jobs = min(jobs, free // max(map(_memory, variants)))
    return max(jobs, 1)


def units_of(variants: Iterable[Variant]) -> int:
    """The number of units of all `variants`."""
    return sum(units(variant.spec) for variant in variants)


def _memory(variant: Variant) -> int:
    # nvcc compiles two architectures in parallel.
    return variant.target.data.memory * (2 if variant.target.others else 1)
