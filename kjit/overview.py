"""The ops of a project, and which of their variants are built.

Declarations are read (without torch, if possible), and the docstring written by `kjit new`. Artifacts are looked up for
the CPU, for the GPUs of this machine, and for each target that the cache has artifacts of this op for, so that those
for GPUs are shown on a machine without one.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kjit.bench.last import find_last
from kjit.engine import pool
from kjit.engine.cache.artifact import Artifact, read_artifact
from kjit.engine.cache.store import Store
from kjit.engine.toolchain.archs import gpu_archs
from kjit.errors import UsageError
from kjit.planning import wrappers
from kjit.project import Project
from kjit.runtime.declared import variants_of
from kjit.spec import CPP_DTYPES, Side, Spec, Target, TargetKind

State = Literal["built", "stale", "not built"]


class TargetState(NamedTuple):
    """The state of an op for a target: `built` of `variants`; stale, if the cache has artifacts of older sources."""

    target: str
    state: State
    built: int
    variants: int


@dataclass(frozen=True)
class OpSummary:
    """An op of a project.

    Args:
        pattern, signature: from the wrapper's docstring, written by `kjit new`; None if they are not there.
        devices: the devices that it has sources for.
        dtypes: the dtypes in its variants' arguments, in torch's names.
        variants: the number of declared modules.
        files: wrapper, sources, test and benchmark, if they exist.
        last_bench: the last result of `kjit bench`; None if it never ran.
        error: why the declarations cannot be read.
    """

    op: str
    pattern: str | None
    signature: str | None
    devices: tuple[Side, ...]
    dtypes: tuple[str, ...]
    variants: int
    targets: tuple[TargetState, ...]
    files: tuple[Path, ...]
    last_bench: dict[str, Any] | None = None
    error: str | None = None


def summarize(project: Project, ops: Sequence[str] = ()) -> list[OpSummary]:
    """Summaries of `ops`, by default of all ops of the project.

    Raises:
        UsageError: there is no such op.
    """
    names = project.check_ops(list(ops))
    collected = wrappers.collect(project, names)
    specs: dict[str, list[Spec]] = {}
    for op, found in collected.modules:
        specs.setdefault(op, []).extend(found)
    errors = {op: error.message for op, error in collected.failures}
    store = Store.open()
    # By op and target: whether one of the artifacts was built in this project. Others may be hits here.
    in_cache: dict[str, dict[str, bool]] = {spec.name: {} for found in specs.values() for spec in found}
    for entry in store.entries():
        if (known := in_cache.get(entry.op)) is not None:
            artifact = read_artifact(entry.path)
            is_own = isinstance(artifact, Artifact) and artifact.is_of([os.path.realpath(project.root)])
            known[entry.target] = known.get(entry.target, False) or is_own
    here = [Target("cpu"), *map(Target.cuda, gpu_archs())]
    return [_summarize(project, op, specs.get(op, []), errors.get(op), store, in_cache, here) for op in names]


def _summarize(
    project: Project,
    op: str,
    specs: Sequence[Spec],
    error: str | None,
    store: Store,
    in_cache: dict[str, dict[str, bool]],
    here: Sequence[Target],
) -> OpSummary:
    found = [in_cache.get(name, {}) for name in dict.fromkeys(spec.name for spec in specs)]
    own = {target for each in found for target, is_own in each.items() if is_own}
    targets = dict.fromkeys((*here, *_targets(sorted(set().union(*found)))))
    states = []
    for target in targets:
        variants = [variant for spec in specs for variant in variants_of(spec, [target])]
        if variants:
            built = sum(outcome.state == "hit" for outcome in pool.look_up_all(variants, store))
            is_own = str(target) in own
            if built or target in here or is_own:
                state: State = "built" if built == len(variants) else "stale" if is_own else "not built"
                states.append(TargetState(str(target), state, built, len(variants)))
    try:
        text = ast.get_docstring(ast.parse(project.wrapper_path(op).read_bytes())) or ""
    except (SyntaxError, ValueError):
        text = ""  # `error` says so
    return OpSummary(
        op=op,
        pattern=_said(text, "Pattern"),
        signature=_said(text, "Signature"),
        devices=tuple(side for side in ("cuda", "cpu") if any(side in spec.kinds for spec in specs)),
        dtypes=tuple(dict.fromkeys(_DTYPES[arg] for spec in specs for arg in spec.args if arg in _DTYPES)),
        variants=len(specs),
        targets=tuple(states),
        files=tuple(project.files_of(op, specs)),
        last_bench=find_last(project, op),
        error=error,
    )


_DTYPES = {cpp: name for name, cpp in CPP_DTYPES.items() if name != "bool"}  # a bool may be a flag


_PLAIN: tuple[TargetKind, ...] = ("cpu", "sim", "sim-check")


def _targets(names: Iterable[str]) -> Iterable[Target]:
    """The targets with artifacts in the cache that calls can have, without those of bundles."""
    for name in names:
        kind, _, arch = name.partition(":")
        with contextlib.suppress(UsageError):  # several architectures
            if kind == "cuda":
                yield Target.cuda(arch)
            else:
                yield from (Target(each) for each in _PLAIN if name == each)


def _said(text: str, what: str) -> str | None:
    match = re.search(rf"^{what}: (.+(?:\n[ \t]+\S.*)*)", text, re.MULTILINE)
    return None if match is None else " ".join(match[1].split())
