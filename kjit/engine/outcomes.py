"""Events and outcomes of builds: values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kjit.engine.cache.store import Artifact
from kjit.errors import KjitError
from kjit.spec import Variant


@dataclass(frozen=True)
class Outcome:
    """The outcome of one variant.

    Attributes:
        state: `hit` (it was built before), `built`, `failed`, or `stale` (it would have to be built).
        seconds: from request to result, including waits for other processes.
        reason: why it had to be built, or would have to; empty for a hit.
        error: for `failed`.
    """

    variant: Variant
    state: Literal["hit", "built", "failed", "stale"]
    seconds: float
    reason: str = ""
    artifact: Artifact | None = None
    error: KjitError | None = None


@dataclass(frozen=True)
class Started:
    """A compile starts, and why."""

    variant: Variant
    reason: str


Event = Started | Outcome
"""An event of `build_all`: each variant ends with an `Outcome`, and one that is compiled begins with a `Started`."""
