"""The declarations of a project's wrappers, to be built ahead of use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kjit.errors import KjitError
from kjit.project import Project, Raised, run_of_project
from kjit.runtime.declared import DeclaredModule, declared_in, variants_of
from kjit.runtime.stand_in import without_torch
from kjit.spec import Spec, Target, Variant


@dataclass(frozen=True)
class Collected:
    """The declarations of a project's wrappers.

    Attributes:
        modules: the specs to build ahead of use for each declared op, with the name of the first wrapper that has it.
        failures: wrappers whose declarations cannot be read, and why.
        without: wrappers that declare nothing, and so cannot be built ahead of use.
    """

    modules: list[tuple[str, list[Spec]]]
    failures: list[tuple[str, KjitError]]
    without: list[str]

    def specs(self) -> list[Spec]:
        return list(dict.fromkeys(spec for _, specs in self.modules for spec in specs))

    def variants(self, targets: Sequence[Target]) -> list[Variant]:
        every = (each for _, specs in self.modules for spec in specs for each in variants_of(spec, targets))
        return list(dict.fromkeys(every))


def collect(project: Project, ops: Sequence[str] = ()) -> Collected:
    """Import the wrappers of `ops` (default: all of the project) and find the declared ops in them.

    torch is not imported if they can be imported without it (stand_in.py). What they print goes to stderr.

    Raises:
        UsageError: there is no such op.
    """
    return without_torch(project.import_root, lambda: _collect(project, ops), lambda found: not found.failures)


def _collect(project: Project, ops: Sequence[str]) -> Collected:
    collected = Collected([], [], [])
    known: set[int] = set()
    for op in project.check_ops(list(ops)):
        try:
            module = project.import_wrapper(op)
        except KjitError as error:
            collected.failures.append((op, error))
            continue
        found = declared_in(vars(module))
        if not found:
            collected.without.append(op)
        for declared in found:
            if id(declared) in known:
                continue
            known.add(id(declared))
            specs = run_of_project(declared.specs)
            if isinstance(specs, Raised):
                collected.failures.append((op, _failed_declaration(op, declared, specs.error)))
            else:
                collected.modules.append((op, specs))
    return collected


def _failed_declaration(op: str, declared: DeclaredModule[Any], error: BaseException) -> KjitError:
    if isinstance(error, KjitError):
        return KjitError(f"{op}: {error.message}", hint=error.hint)
    return KjitError(
        f"{op}: the declaration {declared.__name__} fails: {type(error).__name__}: {error}",
        hint=f"correct the function {declared.__name__} in the wrapper of {op}",
    )
