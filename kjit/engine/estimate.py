"""Estimates of build times, from earlier builds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kjit.engine.cache.store import Store
from kjit.engine.outcomes import Event, Queued, Started
from kjit.spec import Target, Variant


def expected_seconds(variants: Iterable[Variant], store: Store) -> dict[Variant, float | None]:
    """The expected compile time of each variant: that of its last build for this target, else that of the other
    variants of its op; None if neither is in the cache."""
    expected: dict[Variant, float | None] = {}
    known: dict[str, Mapping[tuple[str, str], float]] = {}
    for variant in variants:
        op, target = variant.spec.name, str(variant.target)
        if op not in known:
            known[op] = store.build_seconds(op)
        of_target = sorted(seconds for (each, _), seconds in known[op].items() if each == target)
        middle = of_target[len(of_target) // 2] if of_target else None
        expected[variant] = known[op].get((target, variant.spec.label), middle)
    return expected


def usual_seconds(target: Target) -> float:
    """A rough build time for a target, for variants that were never built."""
    return target.data.seconds * (1 + len(target.others) / 2)


class Estimate:
    """The time that `build_all` will still take, from its events and the time of each (seconds of any clock)."""

    def __init__(self) -> None:
        self._waiting: dict[Variant, float | None] = {}
        self._running: dict[Variant, float] = {}
        self._jobs = 1

    def on_event(self, event: Event, now: float) -> None:
        if isinstance(event, Queued):
            self._waiting = dict(event.seconds)
            self._jobs = event.jobs
        elif isinstance(event, Started):
            self._running.setdefault(event.variant, now)
        else:
            self._running.pop(event.variant, None)
            self._waiting.pop(event.variant, None)

    def expected(self, variant: Variant) -> float | None:
        """Seconds that the compile of `variant` will take from its start; None where that is unknown."""
        return self._waiting.get(variant)

    def seconds_left(self, now: float) -> float | None:
        """Seconds until all is done; None where it is unknown for one that is left."""
        left = []
        for variant, seconds in self._waiting.items():
            if seconds is None:
                return None
            left.append(max(seconds - (now - self._running.get(variant, now)), 0.0))
        return max(sum(left) / self._jobs, max(left, default=0.0))
