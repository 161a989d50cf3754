"""The targets to build for: those that were asked for, or those that this machine has compilers for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kjit import env
from kjit.engine.toolchain.archs import resolve_archs
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError, UsageError
from kjit.spec import KINDS, Side, Spec, Target, TargetKind

_SOURCE: Mapping[Side, str] = {"cuda": "CUDA", "cpu": "C++"}


def choose_targets(
    specs: Sequence[Spec],
    kinds: Sequence[TargetKind] | None = None,
    archs: Sequence[str] = (),
    *,
    needs_all: bool = False,
) -> tuple[list[Target], list[str]]:
    """The targets to build `specs` for, and what was left out and why, a sentence each.

    Args:
        kinds: what was asked for; by default the GPU and the CPU, where there are sources for them and compilers on
            this machine, and the simulator if `KJIT_SIM` asks for it.
        archs: CUDA architectures that were asked for; by default as `resolve_archs` finds them.
        needs_all: a missing compiler is an error by default, too: nothing is left out.

    Raises:
        UsageError: nothing has a source for what was asked for.
        ToolchainError: a compiler for it is missing, or no architecture is known.
    """
    if archs and kinds is not None and not any(KINDS[kind].has_archs for kind in kinds):
        raise UsageError("--arch is for CUDA, and --target leaves CUDA out.", hint="drop one of the two")
    targets: list[Target] = []
    left_out: list[str] = []
    missing: ToolchainError | None = None
    simulation = env.simulation() if kinds is None else None
    for kind, data in sorted(KINDS.items(), key=lambda item: not item[1].has_archs):
        side = data.side
        with_source = sorted({spec.name for spec in specs if side in spec.kinds})
        asked = kind in kinds if kinds is not None else data.has_archs and bool(archs)
        if not asked and (kinds is not None or not with_source or not (data.is_default or kind == simulation)):
            continue
        if not with_source:
            raise UsageError(f"none of these ops has a {_SOURCE[side]} source.", hint=_add_source(specs))
        try:
            if not data.has_archs:
                targets.append(Toolchain.for_target(Target(kind)).target)
                continue
            find_cuda()
        except ToolchainError as error:
            if asked:
                raise
            if needs_all:
                others = sorted({each for spec in specs for each in spec.kinds} - {side})
                instead = f"; `--target {others[0]}` leaves {kind} out" if others else ""
                raise ToolchainError(error.message, hint=f"{error.hint or 'fix it'}{instead}") from None
            missing = missing or error
            left_out.append(f"{kind} is left out ({', '.join(with_source)}): {error.message}")
            continue
        targets += map(Target.cuda, resolve_archs(archs or None))
    if not targets and missing is not None:
        raise missing
    if kinds is not None:
        for kind in kinds:
            lacking = sorted({spec.name for spec in specs if KINDS[kind].side not in spec.kinds})
            left_out += [
                f"{name} has no {_SOURCE[KINDS[kind].side]} source, and is not built for {kind}" for name in lacking
            ]
    return targets, left_out


def _add_source(specs: Sequence[Spec]) -> str | None:
    return f"they have sources for {' and '.join(specs[0].kinds)}" if specs else None
