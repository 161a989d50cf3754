"""One variant built on a miss: under the lock of its key, in a staging folder, published if its inputs stayed the same.

A source that is saved while its compile runs makes the result unfit for the cache, as it may hold either version. It is
then built once more, from the new content. If that happens twice, something writes the file continually, and the answer
is an error. The same goes for a compiler that is replaced during the compile.

What compilers refused, and would refuse again, is not compiled again by this process (failures.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from kjit.engine import reports
from kjit.engine.cache import failures
from kjit.engine.cache.failures import Rejection
from kjit.engine.cache.staging import is_taken_away
from kjit.engine.cache.store import Lookup, Store
from kjit.engine.compile.compile import compile_variant
from kjit.engine.compile.jobs import most_jobs
from kjit.engine.key.key import Key
from kjit.engine.key.observation import Observation, Start
from kjit.engine.outcomes import Outcome, Started
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CacheError, CompileError, KjitError
from kjit.runtime.manifest import FileState
from kjit.spec import Variant

_ATTEMPTS = 10

_log = logging.getLogger("kjit")


def build(
    variant: Variant,
    store: Store,
    *,
    missed: Lookup | None = None,
    on_start: Callable[[Started], None] | None = None,
    verbose: bool = False,
    cancel: threading.Event | None = None,
    jobs: int | None = None,
) -> Outcome:
    """Build `variant` unless it is already built, by this process or another.

    Args:
        missed: an earlier look-up in `store`, which is not repeated unless the key has changed since. The key itself is
            derived again: sources and compilers may have changed while the build waited for its turn.
        on_start: called right before a compile.
        verbose: put the compilers' whole output into an error's message.
        cancel: set by another thread, ends a wait and a compile.
        jobs: the number of compilers that run in parallel; by default as many as fit.

    Raises:
        KjitError: it cannot be built (most often a `CompileError`); no artifact was added to the cache.
        CancelledError: `cancel` was set.
    """
    began = time.perf_counter()
    before: Mapping[str, FileState] = {}
    changes = 0
    for _ in range(_ATTEMPTS):
        toolchain = Toolchain.for_target(variant.target, thorough=True)
        key = Key.of(variant, toolchain)
        if missed is None or missed.key1 != key.key1:
            found = store.fetch(key)
            if found.artifact is not None:
                return Outcome(variant, "hit", time.perf_counter() - began, artifact=found.artifact)
            missed = found
        reason, missed = missed.reason, None
        home = store.writable()
        with home.lock(key, cancel):
            # Another process may have built it while this one waited for the lock.
            found = home.find(key)
            if found.artifact is not None:
                return Outcome(variant, "hit", time.perf_counter() - began, artifact=found.artifact)
            if home is store:
                reason = found.reason
            failure = failures.recall(key, verbose=verbose)
            if failure is not None:
                raise failure
            with home.staging() as staging:
                if on_start is not None:
                    on_start(Started(variant, reason))
                start = Start.now()
                refusals: list[Rejection] = []
                try:
                    built = compile_variant(
                        variant,
                        toolchain,
                        staging,
                        verbose=verbose,
                        cancel=cancel,
                        on_refusal=refusals.append,
                        jobs=most_jobs([variant]) if jobs is None else jobs,
                    )
                    observed = Observation.of(built.headers, key, toolchain, others=built.others, sought=built.sought)
                    known = {**before, **{state.path: state for state in key.sources}}
                    changed = observed.changed_since(start.earliest_ns(), known)
                    if Toolchain.for_target(variant.target, thorough=True) != toolchain:
                        changed.append(str(toolchain.cxx.path))
                    if not changed:
                        artifact = home.publish(key, built.library, observed.reads, reports.written(built), staging)
                        return Outcome(variant, "built", time.perf_counter() - began, reason, artifact)
                except (OSError, KjitError) as error:
                    if not is_taken_away(staging, error):
                        if refusals and isinstance(error, CompileError):
                            failures.remember(key, toolchain, refusals[-1], start, error, verbose=verbose)
                        raise
                    _log.info("%s: built once more, because the cache was emptied meanwhile: %s", variant.label, error)
                    continue
        changes += 1
        if changes == 2:
            raise KjitError(
                f"{variant.label} is not built, because '{changed[0]}' changed during the compile, twice.",
                hint="build it again when nothing writes or removes it; rename a header with a tab or a backslash",
            )
        _log.info("%s: built once more, because it changed meanwhile: %s", variant.label, ", ".join(changed))
        before = observed.states
    raise CacheError(f"{variant.label} cannot be built: another process keeps emptying the cache '{store.root}'.")
