"""Requests that are neither in a bundle nor found by times: derive the key, look it up, compile on a miss.

The compilers that were found are kept (cache/toolchains.py), so that the next process need not come here.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from kjit import env
from kjit.engine.cache import toolchains
from kjit.engine.cache.store import Artifact, Lookup, Store
from kjit.engine.key.key import Key
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import NotPrebuiltError, ToolchainError, UsageError
from kjit.runtime.bundle import Refusal
from kjit.runtime.load import attach_log, count_compile, count_hit
from kjit.spec import StrPath, Variant

if TYPE_CHECKING:
    from kjit.engine.outcomes import Started

_LONG_S = 1.0

_log = logging.getLogger("kjit")
_told_warnings: set[str] = set()


def ensure_built(
    variant: Variant,
    *,
    build_directory: StrPath | None = None,
    hint: str | None = None,
    refusals: tuple[Refusal, ...] = (),
) -> Artifact:
    """The artifact of a variant, compiled if there is none. Compiles are logged.

    Args:
        refusals: why bundles do not serve it, for errors.

    Raises:
        KjitError: as for `load_jit`.
    """
    attach_log()
    folder = None if build_directory is None else env.absolute("build_directory", os.fspath(build_directory))
    store = Store.open(folder)
    found = _look_up(variant, store, refusals)
    if found.artifact is not None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s is in the cache: %s", variant.label, found.artifact.path)
        toolchains.remember(variant.target, store)
        count_hit(variant)
        return found.artifact
    hint = hint or f"run this once on such a machine without {env.NO_COMPILE}, with the same cache folder"
    if env.no_compile():
        raise NotPrebuiltError(
            f"{variant.label} is not built, because {found.reason}, and {env.NO_COMPILE} is set."
            + "".join(map(str, refusals)),
            hint=f"{hint}, with `--out` into the bundle" if refusals else hint,
        )
    # Only a miss pays for these imports.
    from kjit.engine import builder, reports

    began = 0.0

    def say(started: Started) -> None:
        nonlocal began
        began = time.perf_counter()
        if env.reports_compiles():
            why = f"{started.reason}, and {env.NO_COMPILE}=warn reports each module that is not built ahead: {hint}"
            _log.error("kjit compiles %s at run time: %s", variant.label, why)
        else:
            _log.warning("kjit compiles %s: %s", variant.label, started.reason)

    outcome = builder.build(variant, store, missed=found, on_start=say)
    took = time.perf_counter() - began
    if outcome.state == "built":
        count_compile(variant, outcome.seconds)
    else:  # by another process, meanwhile
        count_hit(variant)
    if outcome.state == "built" and took > _LONG_S:
        _log.warning("kjit compiled %s in %.1f s", variant.label, took)
    # The next variant of the op would say the same.
    warnings = [warning for warning in reports.warnings_of([outcome]) if warning not in _told_warnings]
    if warnings:
        _told_warnings.update(warnings)
        _log.warning("what the compiler warns of in %s:\n%s", variant.label, "\n\n".join(warnings))
    assert outcome.artifact is not None  # otherwise `build` raises
    toolchains.remember(variant.target, store)
    return outcome.artifact


def _look_up(variant: Variant, store: Store, refusals: tuple[Refusal, ...]) -> Lookup:
    """Look into the cache, which needs the compilers: their identities are part of the key."""
    try:
        return store.fetch(Key.of(variant, Toolchain.for_target(variant.target)))
    except ToolchainError as error:
        if env.no_compile():
            without = error.message.rstrip(".")
            return Lookup(None, f"the cache is of no use without the compilers that filled it ({without})")
        raise ToolchainError(f"{error.message}{''.join(map(str, refusals))}", hint=error.hint) from None
    except UsageError as error:
        # A source is not there. So it is in a package that is shipped without them.
        if env.no_compile():
            return Lookup(None, error.message.rstrip("."))
        raise UsageError(f"{error.message}{''.join(map(str, refusals))}", hint=error.hint) from None
