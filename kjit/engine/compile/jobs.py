"""The number of compilers that run in parallel: enough to keep the cores busy, and not more than fit into free memory.

Units are counted, not modules: one module may have dozens of units that take nvcc gigabytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kjit.engine.toolchain import machine
from kjit.spec import Spec, TargetKind, Variant

# Upper estimates of the peak memory for the compile of a unit; nvcc's front ends and ptxas run one after another. Of
# FlashInfer's units, those of sampling take the most, 1.0 GB.
_MEMORY: Mapping[TargetKind, int] = {"cpu": 1 << 29, "cuda": 3 << 29, "sim": 3 << 28, "sim-check": 1 << 30}


def units(spec: Spec) -> int:
    """The number of a module's units: with wrappers, all sources of a side are one unit."""
    sides = ((spec.cuda_files, spec.cuda_wrappers), (spec.cpp_files, spec.cpp_wrappers))
    return sum(1 if wrappers else len(files) for files, wrappers in sides)


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
    return _MEMORY[variant.target.kind] * (2 if variant.target.others else 1)
