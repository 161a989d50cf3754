"""The number of compilers that run in parallel: enough to keep the cores busy, and not more than fit into free memory.

Units are counted, not modules: one module may have dozens of units that take nvcc gigabytes each.

`Jobs` are the slots that concurrent builds share: the builds of one `kjit build`, and those of the threads of a process
(`of_process`). A build waits for one slot, and takes further free ones up to its number of units. The longest builds
start first, so a large module gets all slots, and small ones share them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError

from kjit.engine.toolchain import machine
from kjit.spec import Spec, TargetKind, Variant

# Upper estimates of the peak memory for the compile of a unit; nvcc's front ends and ptxas run one after another. Of
# FlashInfer's units, those of sampling take the most, 1.0 GB.
_MEMORY: Mapping[TargetKind, int] = {"cpu": 1 << 29, "cuda": 3 << 29, "sim": 3 << 28, "sim-check": 1 << 30}
_POLL_S = 0.1


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
    return min(_most(variants, wanted), max(units_of(variants), 1))


def _most(variants: Sequence[Variant], wanted: int | None = None) -> int:
    """Like `parallel_jobs`, whatever the number of units."""
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


class Jobs:
    """Slots for compilers, shared by builds in several threads."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, most: int, cancel: threading.Event | None = None) -> Iterator[int]:
        """Wait for a free slot, and take up to `most`; yield the number taken.

        Raises:
            CancelledError: `cancel` was set during the wait.
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
    """Reset the state after a fork: the child has one thread, and no builds."""
    global _lock, _builds
    _lock, _builds = threading.Lock(), 0


os.register_at_fork(after_in_child=_forget_other_threads)


@contextlib.contextmanager
def of_process(variant: Variant, cancel: threading.Event | None = None) -> Iterator[int]:
    """Slots for a build outside of `kjit build`, shared with the builds of other threads. Their number is computed by
    the first of concurrent builds.

    Raises:
        CancelledError: `cancel` was set during the wait.
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
