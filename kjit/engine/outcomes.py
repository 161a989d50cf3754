"""Events and outcomes of builds: values."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class Queued:
    """The variants that `build_all` has to compile; reported after all hits.

    Attributes:
        seconds: the expected time of each variant, in the order in which they start; None if it is unknown.
        jobs: how many are built at once.
    """

    seconds: Mapping[Variant, float | None]
    jobs: int


Event = Queued | Started | Outcome
"""An event of `build_all`: each variant ends with an `Outcome`, one that is compiled begins with a `Started`, and one
`Queued` precedes the first `Started`."""
