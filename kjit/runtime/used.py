"""Recorded variants: those requested by a run, as lines of a file (`KJIT_RECORD_VARIANTS`), for `kjit.warm` and `kjit
build --from`.

A variant of a declared op is recorded as the declaring function and its values, which are valid on any machine; any
other as its `Spec` and the requesting file, with their paths. Each line is a JSON object, appended in one write, so
that several processes can share a file.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kjit.errors import KjitError, UsageError
from kjit.spec import KINDS, Spec, Target, Variant

if TYPE_CHECKING:
    from kjit.runtime.declared import DeclaredModule

_written: set[str] = set()


class Declared(NamedTuple):
    """A declared op, and the values of its parameters."""

    module: str
    function: str
    values: Mapping[str, object]


class Used(NamedTuple):
    """A line of the file.

    Attributes:
        name: the op, for display: `kernels.scale:_scale`, or the name of a spec.
        target: the target of the run; arbitrary if there is an error.
        declared: the declared op and its values, or None.
        spec: the spec of any other variant, or None.
        wrapper: the requesting file of any other variant, or None.
        error: why it cannot be used here, or None.
    """

    name: str
    target: Target
    declared: Declared | None = None
    spec: Spec | None = None
    wrapper: str | None = None
    error: KjitError | None = None


def record(file: str, variant: Variant, declared: Declared | None, wrapper: str | None = None) -> None:
    """Append a variant to a file, once per process.

    Args:
        wrapper: the requesting file.

    Raises:
        UsageError: the file cannot be written.
    """
    target = variant.target
    line: dict[str, object] = {"target": target.kind, "archs": [str(arch) for arch in target.archs]}
    try:
        if declared is None:
            raise TypeError
        line["op"] = f"{declared.module}:{declared.function}"
        line["values"] = {name: to_json(value) for name, value in declared.values.items()}
    except TypeError:  # a value that cannot be written: its Spec is recorded instead
        line.pop("op", None)
        line["spec"] = {field: getattr(variant.spec, field) for field in variant.spec._fields}
        line["wrapper"] = wrapper
    text = json.dumps(line) + "\n"
    if (file + text) in _written:
        return
    try:
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise UsageError(
            f"the variants of this run cannot be recorded in '{file}': {error.strerror}.",
            hint="KJIT_RECORD_VARIANTS names a file in a folder that exists and can be written",
        ) from None
    _written.add(file + text)


def read(file: str) -> Iterator[Used]:
    """The variants in a file.

    Raises:
        UsageError: the file cannot be read, or a line is not a recorded variant.
    """
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{file} cannot be read: {reason}.") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield _parse(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
            raise UsageError(
                f"{file}, line {number} is not a recorded variant ({type(error).__name__}: {error}).",
                hint="such files are written by runs with KJIT_RECORD_VARIANTS",
            ) from None


def _parse(record: dict[str, Any]) -> Used:
    """Raises ValueError, KeyError, TypeError or AttributeError if it is not a recorded variant."""
    if record["target"] not in KINDS:
        raise ValueError(f"'{record['target']}' is not a target")
    name = str(record["op"] if "op" in record else record["spec"]["name"])
    values = {each: from_json(value) for each, value in record.get("values", {}).items()}
    try:
        target = Target.cuda(*record["archs"]) if KINDS[record["target"]].has_archs else Target(record["target"])
        if "op" in record:
            module, _, function = name.partition(":")
            return Used(name, target, declared=Declared(module, function, values))
        return Used(name, target, spec=Spec.of_fields(record["spec"]), wrapper=record.get("wrapper"))
    except KjitError as error:
        return Used(name, Target.cpu(), error=error)


def find_declared(declared: Declared) -> DeclaredModule[Any]:
    """The declared op of a line.

    Raises:
        KjitError: its module cannot be imported, or does not declare it.
    """
    from kjit.runtime.declared import declared_in

    refuse_foreign(declared.module, declared.function)
    try:
        module = importlib.import_module(declared.module)
    except ImportError as error:
        raise KjitError(
            f"'{declared.module}', which declares {declared.function}, cannot be imported: {error}.",
            hint="the packages that the recorded run used must be installed here",
        ) from None
    for found in declared_in(vars(module)):
        if found.__name__ == declared.function:
            return found
    raise KjitError(
        f"{declared.module} no longer declares a module '{declared.function}'.", hint="record the variants again"
    )


_OF_KJIT = re.compile(r"^\s*(?:from\s+kjit\b|import\s+[\w., ]*\bkjit\b)", re.MULTILINE)


def refuse_foreign(module: str, name: str) -> None:
    """Refuse to import a module for a recording, which is data from elsewhere, if it is not one with ops.

    An import runs code. So the text of the module must import kjit and define the name; it is found without importing
    anything. A module that this process has imported already may be any.

    Raises:
        KjitError: it does not, or there is no such module.
    """
    if module in sys.modules:
        return
    text = ""
    source = _source_of(module)
    if source is None:
        raise KjitError(
            f"'{module}', which the recording names, cannot be imported: there is no such module here.",
            hint="use the recording in the project of the op, or where its package is installed",
        )
    with contextlib.suppress(OSError), open(source, encoding="utf-8", errors="replace") as file:
        text = file.read()
    defined = re.compile(rf"^(?:def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*[:=]", re.MULTILINE)
    if _OF_KJIT.search(text) is None or defined.search(text) is None:
        raise KjitError(
            f"'{module}', which the recording names, is not imported: its source defines no op '{name}' of kjit.",
            hint="a recording may name ops only; import the module first if it is one of yours",
        )


def _source_of(module: str) -> str | None:
    """The file of a module, found without importing its packages; None if there is no such module."""
    first, *rest = parts = module.split(".")
    if not all(map(str.isidentifier, parts)):
        return None
    try:
        found = importlib.util.find_spec(first)
    except ValueError:  # of `__main__`
        return None
    for count in range(len(rest)):
        if found is not None:
            name = ".".join(parts[: count + 2])
            found = importlib.machinery.PathFinder.find_spec(name, found.submodule_search_locations or [])
    return None if found is None else found.origin or ""


def spec_of(declared: Declared) -> Spec:
    """The spec for the values of a line.

    Raises:
        KjitError: as for `find_declared`, or the op no longer takes these values.
    """
    try:
        return find_declared(declared).spec(**declared.values)
    except (TypeError, ValueError) as error:
        raise KjitError(
            f"{declared.module}:{declared.function} no longer takes the recorded values: {error}",
            hint="record the variants again",
        ) from None


def to_json(value: object) -> object:
    """A value as JSON.

    Raises:
        TypeError: it has no JSON form.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple:
        return {"tuple": [*map(to_json, value)]}
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return {"dtype": str(value).removeprefix("torch.")}
    raise TypeError(type(value))


def from_json(value: Any) -> object:
    """The inverse of `to_json`.

    Raises:
        ValueError: `to_json` does not write this.
    """
    if isinstance(value, dict):
        if [*value] == ["tuple"] and isinstance(value["tuple"], list):
            return tuple(map(from_json, value["tuple"]))
        if [*value] == ["dtype"] and isinstance(value["dtype"], str):
            import torch

            dtype = getattr(torch, value["dtype"], None)
            if isinstance(dtype, torch.dtype):
                return dtype
        raise ValueError(f"{value} is not a recorded value")
    if isinstance(value, list):
        raise ValueError(f"{value} is not a recorded value")
    return value
