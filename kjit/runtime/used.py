"""The variants that a run asked for, as lines of a file that `kjit build --from` reads (`KJIT_RECORD_VARIANTS`).

A variant of a declared op is written as the function that declares it and its values, which mean the same on another
machine; any other as its `Spec`, whose sources are where they were. One JSON object a line, appended in one write, so
that several processes may share a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from kjit.errors import UsageError
from kjit.spec import Variant

_written: set[str] = set()


class Declared(NamedTuple):
    """Which declared op, and the values of its parameters."""

    module: str
    function: str
    values: Mapping[str, object]


def record(file: str, variant: Variant, declared: Declared | None) -> None:
    """Append a variant to a file, once a process.

    Raises:
        UsageError: the file cannot be written.
    """
    target = variant.target
    line: dict[str, object] = {"target": target.kind, "archs": [str(arch) for arch in target.archs]}
    try:
        if declared is None:
            raise TypeError
        line["op"] = f"{declared.module}:{declared.function}"
        line["values"] = {name: _to_json(value) for name, value in declared.values.items()}
    except TypeError:  # a value that has no form here: its Spec says what came of it
        line.pop("op", None)
        line["spec"] = {field: getattr(variant.spec, field) for field in variant.spec._fields}
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


def _to_json(value: object) -> object:
    """A value as JSON has it.

    Raises:
        TypeError: it has no such form.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple:
        return {"tuple": [*map(_to_json, value)]}
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return {"dtype": str(value).removeprefix("torch.")}
    raise TypeError(type(value))


def from_json(value: Any) -> object:
    """What `_to_json` was given.

    Raises:
        ValueError: nothing of that form is written here.
    """
    if isinstance(value, dict):
        if [*value] == ["tuple"] and isinstance(value["tuple"], list):
            return tuple(map(from_json, value["tuple"]))
        if [*value] == ["dtype"] and isinstance(value["dtype"], str):
            import torch

            dtype = getattr(torch, value["dtype"], None)
            if isinstance(dtype, torch.dtype):
                return dtype
        raise ValueError(f"{value} is no value")
    if isinstance(value, list):
        raise ValueError(f"{value} is no value")
    return value
