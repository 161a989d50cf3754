"""How many compilers run at once.

As many as keep the cores busy and fit into free memory. They are counted by units, each of which is compiled by itself:
one module may have dozens that take nvcc gigabytes each, and is no more one compile than dozens of small modules are.

`Jobs` are the places that builds side by side share: those of a run of `kjit build`, and those of the threads of a
process (`of_process`). A build waits for one, and takes as many more as are free and as it has units for: what takes
longest starts first, so a large module has them all while small ones wait, and small ones share them among each other.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError

from kjit.engine.toolchain import machine
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
    return min(_most(variants, wanted), max(units_of(variants), 1))


def _most(variants: Sequence[Variant], wanted: int | None = None) -> int:
    """As `parallel_jobs`, however few units there are."""
    cores = machine.cores()
    jobs = wanted or cores + max(cores // 8, 1)
    free = machine.free_memory()
    if free is not None and variants:
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


_lock = threading.Lock()
_shared = Jobs(1)
_builds = 0


def _forget_other_threads() -> None:
    """Of a forked process only one thread goes on in the child, and none of the builds."""
    global _lock, _builds
    _lock, _builds = threading.Lock(), 0


os.register_at_fork(after_in_child=_forget_other_threads)


@contextlib.contextmanager
def of_process(variant: Variant, cancel: threading.Event | None = None) -> Iterator[int]:
    """Places for a build that belongs to no run: threads that build at once share them. How many there are is asked
    when none of them builds.

    Raises:
        CancelledError: `cancel` was set while this waited.
    """
    global _shared, _builds
    with _lock:
        if _builds == 0:
            _shared = Jobs(_most([variant]))
        _builds += 1
        jobs = _shared
    try:
        with jobs.take(units(variant.spec), cancel) as taken:
            yield taken
    finally:
        with _lock:
            _builds -= 1
