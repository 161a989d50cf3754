"""Variants as `KJIT_RECORD_VARIANTS` has written them, for `kjit build --from`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from kjit.errors import KjitError, UsageError
from kjit.project import Project
from kjit.runtime.declared import declared_in
from kjit.runtime.used import from_json
from kjit.spec import Spec, Target, TargetKind, Variant


def read(file: Path, project: Project) -> tuple[list[Variant], list[tuple[str, KjitError]]]:
    """The variants that a file lists, each once; and those that there are no more, with the reason.

    Declared ops are looked for in the modules that declared them: wrappers of the project, or of a package that is
    installed.

    Raises:
        UsageError: the file cannot be read, or a line of it is none of a record.
    """
    variants: dict[Variant, None] = {}
    failures: list[tuple[str, KjitError]] = []
    for number, line in _lines(file):
        try:
            record = json.loads(line)
            target = _target(record)
            name = str(record["op"] if "op" in record else record["spec"]["name"])
            values = {each: from_json(value) for each, value in record.get("values", {}).items()}
            spec = None if "op" in record else Spec.of_fields(record["spec"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{file}, line {number} is no recorded variant ({type(error).__name__}: {error}).",
                hint="the file is what a run with KJIT_RECORD_VARIANTS has written",
            ) from None
        except KjitError as error:
            failures.append((name, error))
            continue
        try:
            found = spec or _declared_spec(name, values, project)
            variants[Variant(found.only(target.side), target)] = None
        except KjitError as error:
            failures.append((name, error))
    return [*variants], failures


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{file} cannot be read: {reason}.") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line


def _target(record: dict[str, Any]) -> Target:
    if record["target"] not in get_args(TargetKind):
        raise ValueError(f"'{record['target']}' is no target")
    return Target.cuda(*record["archs"]) if record["target"] == "cuda" else Target(record["target"])


def _declared_spec(name: str, values: dict[str, object], project: Project) -> Spec:
    module_name, _, function = name.partition(":")
    package, _, op = module_name.rpartition(".")
    if package == project.package:
        module = project.import_wrapper(op)
    else:
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise KjitError(
                f"'{module_name}', which declares {function}, cannot be imported: {error}.",
                hint="build where the packages are installed that the recorded run used",
            ) from None
    for declared in declared_in(vars(module)):
        if declared.__name__ == function:
            try:
                return declared.spec(**values)
            except (TypeError, ValueError) as error:
                raise KjitError(
                    f"{name} does not take the recorded values any more: {error}", hint="record the variants again"
                ) from None
    raise KjitError(f"{module_name} declares no module '{function}' any more.", hint="record the variants again")
