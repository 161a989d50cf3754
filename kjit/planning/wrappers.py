"""Declarations to be built ahead of use: those of a project's wrappers, or the variants that a run has recorded
(`KJIT_RECORD_VARIANTS`).

torch is not imported if wrappers can be imported without it (stand_in.py). What they print goes to stderr.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.errors import KjitError
from kjit.project import Project, Raised, run_of_project
from kjit.runtime import used
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


def read_recorded(file: Path, project: Project) -> tuple[list[Variant], list[tuple[str, KjitError]]]:
    """The variants that a file lists, each once; and the names of those that no longer exist, with the reason.

    Declared ops are looked for in the modules that declared them: wrappers of the project, or of a package that is
    installed.

    Raises:
        UsageError: the file cannot be read, or a line is not a recorded variant.
    """
    return without_torch(project.import_root, lambda: _read_recorded(file, project), lambda found: not found[1])


def _read_recorded(file: Path, project: Project) -> tuple[list[Variant], list[tuple[str, KjitError]]]:
    variants: dict[Variant, None] = {}
    failures: list[tuple[str, KjitError]] = []
    for each in used.read(str(file)):
        try:
            if each.error is not None:
                raise each.error
            spec = each.spec
            if each.declared is not None:
                package, _, op = each.declared.module.rpartition(".")
                if package == project.package:
                    project.import_wrapper(op)
                spec = used.spec_of(each.declared)
            assert spec is not None  # a line has one or the other
            variants[Variant(spec.only(each.target.side), each.target)] = None
        except KjitError as error:
            failures.append((each.name, error))
    return [*variants], failures
