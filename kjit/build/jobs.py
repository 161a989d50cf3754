"""How many compilers may run at once?

As many as keep the cores busy and fit into free memory. They are counted by units, each of which is compiled by itself:
one module may have dozens that take nvcc gigabytes each, and is no more one compile than dozens of small modules are.

`Jobs` are the places that all builds of a run share. A build waits for one, and takes as many more as are free and as
it has units for: what takes longest starts first, so a large module has them all while small ones wait, and small ones
share them among each other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError

from kjit.build import machine
from kjit.spec import Spec, TargetKind, Variant

# What the compile of a unit takes at its peak, generously: nvcc's front ends and ptxas run one after another. Of
# FlashInfer's units those of sampling take the most, 1.0 GB.
_MEMORY: Mapping[TargetKind, int] = {"cpu": 1 << 29, "cuda": 3 << 29, "sim": 3 << 28, "sim-check": 1 << 30}
_POLL_S = 0.1


def units(spec: Spec) -> int:
    """How many units a module is compiled from: with wrappers, all sources of a side are one."""
    sides = ((spec.cuda_files, spec.cuda_wrappers), (spec.cpp_files, spec.cpp_wrappers))
    return sum(1 if wrappers else len(files) for files, wrappers in sides)


def parallel_jobs(variants: Sequence[Variant], wanted: int | None = None) -> int:
    """How many units may be compiled at once: as many as wanted, else some more than there are cores, and never more
    than fit into free memory.

    A compile leaves its core now and then: while ninja starts, while files are written, and at its end, when all
    threads here want Python's one lock. One more for each eight cores (one at least) takes what is left of them.
    """
    if not variants:
        return 1
    cores = machine.cores()
    jobs = min(wanted or cores + max(cores // 8, 1), units_of(variants))
    free = machine.free_memory()
    if free is not None:
        jobs = min(jobs, free // max(map(_memory, variants)))
    return max(jobs, 1)


def units_of(variants: Iterable[Variant]) -> int:
    """How many units all of `variants` are compiled from."""
    return sum(units(variant.spec) for variant in variants)


def _memory(variant: Variant) -> int:
    # nvcc compiles two architectures side by side.
    return _MEMORY[variant.target.kind] * (2 if variant.target.others else 1)


class Jobs:
    """Places for compilers that run at once, for builds in several threads."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, most: int, cancel: threading.Event | None = None) -> Iterator[int]:
        """Wait until a place is free, and take `most` of those that are; give how many these are.

        Raises:
            CancelledError: `cancel` was set while this waited.
        """
        with self._changed:
            while self._free == 0:
                self._changed.wait(_POLL_S)
                if cancel is not None and cancel.is_set():
                    raise CancelledError
            taken = max(min(most, self._free), 1)
            self._free -= taken
        try:
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()
