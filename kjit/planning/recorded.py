"""Variants as `KJIT_RECORD_VARIANTS` has written them, for `kjit build --from`."""

from __future__ import annotations

from pathlib import Path

from kjit.errors import KjitError
from kjit.project import Project
from kjit.runtime import used
from kjit.runtime.stand_in import without_torch
from kjit.spec import Spec, Variant


def read(file: Path, project: Project) -> tuple[list[Variant], list[tuple[str, KjitError]]]:
    """The variants that a file lists, each once; and those that there are no more, with the reason.

    Declared ops are looked for in the modules that declared them: wrappers of the project, or of a package that is
    installed. torch is not imported if these can be imported without it (stand_in.py).

    Raises:
        UsageError: the file cannot be read, or a line of it is none of a record.
    """
    return without_torch(project.import_root, lambda: _read(file, project), lambda found: not found[1])


def _read(file: Path, project: Project) -> tuple[list[Variant], list[tuple[str, KjitError]]]:
    variants: dict[Variant, None] = {}
    failures: list[tuple[str, KjitError]] = []
    for each in used.read(str(file)):
        try:
            if each.error is not None:
                raise each.error
            spec = each.spec or _declared_spec(each.declared, project)
            variants[Variant(spec.only(each.target.side), each.target)] = None
        except KjitError as error:
            failures.append((each.name, error))
    return [*variants], failures


def _declared_spec(declared: used.Declared | None, project: Project) -> Spec:
    assert declared is not None  # it has a spec otherwise
    package, _, op = declared.module.rpartition(".")
    if package == project.package:
        project.import_wrapper(op)
    return used.spec_of(declared)
