"""Builds of many variants in parallel.

`build_all` builds stale variants in threads, each with a ninja of its own and an equal part of the parallelism of
jobs.py; a module with many units is built alone, with all of it. Those for GPUs start first: they take longest, and the
last one keeps one core busy while the others are idle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from kjit.engine.builder import build
from kjit.engine.cache import toolchains
from kjit.engine.cache.store import Lookup, Store
from kjit.engine.compile.jobs import most_jobs, parallel_jobs, units
from kjit.engine.key.key import Key
from kjit.engine.outcomes import Event, Outcome
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.spec import Variant


def look_up_all(variants: Iterable[Variant], store: Store) -> list[Outcome]:
    """The state of each of `variants`: `hit`, `stale` with the reason, or `failed` if that cannot be determined."""
    return [_look_up(variant, store.find)[0] for variant in dict.fromkeys(variants)]


def _look_up(variant: Variant, find: Callable[[Key], Lookup]) -> tuple[Outcome, Lookup | None]:
    began = time.perf_counter()
    try:
        key = Key.of(variant, Toolchain.for_target(variant.target))
        found = find(key)
    except KjitError as error:
        return Outcome(variant, "failed", time.perf_counter() - began, error=error), None
    seconds = time.perf_counter() - began
    if found.artifact is None:
        return Outcome(variant, "stale", seconds, found.reason), found
    return Outcome(variant, "hit", seconds, artifact=found.artifact), None


def build_all(
    variants: Iterable[Variant],
    store: Store,
    *,
    jobs: int | None = None,
    on_event: Callable[[Event], None] | None = None,
    verbose: bool = False,
    must_last: bool = False,
    cancel: threading.Event | None = None,
) -> list[Outcome]:
    """Build many variants in parallel. A failure of one does not stop the others.

    An exception other than `KjitError`, such as Ctrl-C, ends all running compiles, leaves the cache as if they had not
    begun, and is raised again. This takes some seconds and must not be interrupted: the caller has to block a second
    Ctrl-C.

    Args:
        jobs: the maximum number of commands that run in parallel; the default is that of `most_jobs`. Free memory may
            allow fewer.
        on_event: called with each event, one at a time, from any thread.
        verbose: put the compilers' whole output into errors' messages.
        must_last: the artifacts must outlive this process.
        cancel: ends the compiles, as an exception does, when another thread or a signal handler sets it.

    Returns:
        One outcome per variant, in their order; a variant that is given twice has one.

    Raises:
        CancelledError: `cancel` was set.
        CacheError: with `must_last`, the cache cannot be written, and something is stale. Nothing was compiled.
    """
    todo = list(dict.fromkeys(variants))
    reporting = threading.Lock()
    cancel = threading.Event() if cancel is None else cancel

    def report(event: Event) -> None:
        if on_event is not None:
            with reporting:
                on_event(event)

    def work(variant: Variant, jobs: int) -> Outcome:
        began = time.perf_counter()
        try:
            outcome = build(
                variant,
                store,
                missed=missed[variant],
                on_start=report,
                verbose=verbose,
                cancel=cancel,
                jobs=jobs,
            )
        except KjitError as error:
            outcome = Outcome(variant, "failed", time.perf_counter() - began, error=error)
        report(outcome)
        return outcome

    # Hits are reported at once, not after compiles.
    outcomes: dict[Variant, Outcome] = {}
    missed: dict[Variant, Lookup | None] = {}
    for variant in todo:
        outcomes[variant], missed[variant] = _look_up(variant, store.fetch)
        if outcomes[variant].state != "stale":
            report(outcomes[variant])
    stale = [variant for variant in todo if outcomes[variant].state == "stale"]
    if stale and must_last:
        store.writable(must_last=True)
    most = most_jobs(stale, jobs)
    at_once = max(min(parallel_jobs(stale, jobs), len(stale)), 1)
    order = sorted(stale, key=lambda variant: len(variant.target.archs), reverse=True)
    large = [variant for variant in order if 2 * units(variant.spec) > most > 1]
    small = [variant for variant in order if variant not in large]
    for part in (*([variant] for variant in large), small):
        threads = max(min(at_once, len(part)), 1)
        with ThreadPoolExecutor(threads, thread_name_prefix="kjit-build") as pool:
            try:
                # Inside the `try`: an interrupt may come while the first compile runs and the last is not submitted.
                futures = {variant: pool.submit(work, variant, max(most // threads, 1)) for variant in part}
                done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                outcomes |= {variant: future.result() for variant, future in futures.items()}
            except BaseException:
                # The end of the pool waits for its threads, and each thread for its compilers to end.
                cancel.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    for target in {variant.target for variant, outcome in outcomes.items() if outcome.artifact is not None}:
        toolchains.remember(target, store)
    return [outcomes[variant] for variant in todo]
