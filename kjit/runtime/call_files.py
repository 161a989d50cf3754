"""Files of recorded calls: their names, their form, and the calls read from them.

A file is JSON, or, with values, a safetensors file with the same JSON as its metadata. Nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kjit import env
from kjit.errors import KjitError, UsageError

if TYPE_CHECKING:
    import torch

FORMAT = 1
METADATA = "kjit"
"""The key of the JSON in a safetensors file's metadata."""

JSON, TENSORS, LAST = ".json", ".safetensors", "last-"

DEEPEST = 32
"""The most levels of lists in lists."""

_SHOWN_TENSORS = 3
_LARGEST = 1 << 26  # bytes of a description
_MOST_DIMENSIONS = 64  # PyTorch's limit


def to_bytes(document: object) -> bytes:
    """The JSON of a call, for its file."""
    return json.dumps(document, allow_nan=False, default=str).encode()


class Call(NamedTuple):
    """A recorded call.

    Attributes:
        file: its file.
        document: its description, as written by recording.py.
    """

    file: Path
    document: Mapping[str, Any]

    @property
    def op(self) -> str:
        """The function: `kernels.scale:scale`."""
        return str(self.document["op"])

    @property
    def name(self) -> str:
        """The name of the function, with the export if there is one: `_scale.scale`."""
        function = self.op.rpartition(":")[2].rpartition(".")[2]
        return f"{function}.{self.document['export']}" if "export" in self.document else function

    @property
    def is_on_gpu(self) -> bool:
        """Whether one of its tensors was on a GPU."""
        return any(each["device"].startswith("cuda") for _, each in self.tensors())

    @property
    def is_of_cuda(self) -> bool:
        """Whether it ran a CUDA kernel, on a GPU or in the simulator."""
        return self.is_on_gpu or bool(self.document.get("simulated"))

    def tensors(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The descriptions of its tensors, with the names of their arguments."""
        for name, value in self.document["arguments"].items():
            for each in _leaves(value):
                if isinstance(each, dict) and "tensor" in each:
                    yield name, each["tensor"]

    def shapes(self) -> str:
        """Its tensors, for display: `x bf16[2, 64], out bf16[2, 64]`."""
        shown = [f"{name} {_short(each['dtype'])}{each['shape']}" for name, each in self.tensors()]
        more = f" and {len(shown) - _SHOWN_TENSORS} more" if len(shown) > _SHOWN_TENSORS else ""
        return ", ".join(shown[:_SHOWN_TENSORS]) + more


def read(paths: Sequence[Path], ops: Sequence[str] = ()) -> tuple[list[Call], list[KjitError]]:
    """The calls in folders and files, and the errors of invalid files.

    Args:
        ops: only calls of these: names of functions or of their modules.

    Raises:
        UsageError: a path does not exist, or there are no calls, or none of `ops`.
    """
    files = [file for path in paths for file in _files(path)]
    calls: list[Call] = []
    errors: list[KjitError] = []
    for file in files:
        try:
            calls.append(_read(file))
        except KjitError as error:
            errors.append(error)
    for op in ops:
        if not any(op in _names(call) for call in calls):
            known = sorted({call.name for call in calls})
            raise UsageError(
                f"no call of '{op}' is recorded in {', '.join(map(str, paths))}.",
                hint=f"there are calls of {', '.join(known)}" if known else None,
            )
    return [call for call in calls if not ops or _names(call) & set(ops)], errors


def last_calls(path: Path) -> list[tuple[int, str]]:
    """The id of each process that recorded into a folder, and the file of its last call."""
    found = []
    for file in sorted(path.glob(f"{LAST}*{JSON}")) if path.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            document = json.loads(file.read_text())
            found.append((int(document["process"]), str(document["last"])))
    return found


def values_of(call: Call) -> dict[str, torch.Tensor]:
    """The values in a safetensors file.

    Raises:
        KjitError: safetensors is not installed, or the file is damaged.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise KjitError(
            f"{call.file} has values, and safetensors, which reads them, is not installed.",
            hint="pip install 'kjit[record]'",
        ) from None
    try:
        return load_file(call.file)
    except (SafetensorError, OSError) as error:
        raise KjitError(f"{call.file} is damaged: {error}.") from None


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(
            each
            for each in path.iterdir()
            if each.suffix in (JSON, TENSORS) and not each.name.startswith((".", LAST)) and each.is_file()
        )
        if not found:
            raise UsageError(
                f"there is no recorded call in '{path}'.", hint=f"a run with {env.RECORD}={path} writes them there"
            )
        return found
    if not path.is_file():
        raise UsageError(f"there is no file or folder '{path}'.")
    if path.suffix not in (JSON, TENSORS):
        raise UsageError(f"'{path}' is not a recorded call: these are files {JSON} or {TENSORS}.")
    return [path]


def _read(file: Path) -> Call:
    """Raises KjitError if the file is not a recorded call."""
    try:
        text = _metadata(file) if file.suffix == TENSORS else _text(file)
        document = json.loads(text, parse_constant=_refuse_constant)
        if document["format"] != FORMAT:
            raise KjitError(
                f"{file} was written by kjit {document['written_by']['kjit']}, in a format that this "
                "version cannot read."
            )
        call = Call(file, document)
        _validate(call)
    except OSError as error:
        raise KjitError(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise KjitError(
            f"{file} is damaged, or not a recorded call ({type(error).__name__}: {reason}).",
            hint=f"remove it; a run with {env.RECORD} writes such files",
        ) from None
    return call


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _text(file: Path) -> str:
    if file.stat().st_size > _LARGEST:
        raise ValueError("it is too large")
    return file.read_text("utf-8")


def _metadata(file: Path) -> str:
    """The JSON in a safetensors file: eight bytes with the size of a header, and that header.

    Raises:
        ValueError, KeyError: it is not a safetensors file.
    """
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if size > file.stat().st_size:
            raise ValueError("it is cut off")
        if size > _LARGEST:
            raise ValueError("it is too large")
        return str(json.loads(opened.read(size))["__metadata__"][METADATA])


def _validate(call: Call) -> None:
    """Raises ValueError, KeyError, TypeError or AttributeError if recording.py does not write this."""
    document = call.document
    module, _, function = call.op.partition(":")
    is_named = function and all(map(str.isidentifier, module.split(".")))
    if document["kind"] not in ("op", "jit", "export") or not is_named:
        raise ValueError("it names no op")
    if document["kind"] == "export":
        if not isinstance(document["export"], str):
            raise ValueError("it names no export")
        for value in document["values"].values():
            [*_leaves(value)]
    for name, value in document["arguments"].items():
        for each in _leaves(value):
            if isinstance(each, list) or (isinstance(each, dict) and (len(each) != 1 or not each.keys() <= _KINDS)):
                raise ValueError(f"'{name}' is not an argument")
    sizes = document["memories"]
    if not isinstance(sizes, list):
        raise TypeError("it has no memories")
    for _, each in call.tensors():
        shape, strides = each["shape"], each["strides"]
        numbers = [*shape, *strides, each["offset"], each["memory"], sizes[each["memory"]]]
        if len(shape) != len(strides) or not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            raise ValueError("a tensor has no shape")
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError("a tensor has too many dimensions")
        if not isinstance(each["device"], str) or not isinstance(each["dtype"], str):
            raise ValueError("a tensor has no dtype")


_KINDS = {"tensor", "float", "dtype", "unknown"}


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Raises ValueError if lists are nested too deeply."""
    if isinstance(value, dict) and [*value] in (["list"], ["tuple"]):
        if depth == DEEPEST:
            raise ValueError("its lists are nested too deeply")
        (inside,) = value.values()
        for each in inside:
            yield from _leaves(each, depth + 1)
    else:
        yield value


def _names(call: Call) -> set[str]:
    module = call.op.partition(":")[0]
    return {call.name, call.op, module, module.rpartition(".")[2], call.name.partition(".")[0]}


def _short(dtype: str) -> str:
    return dtype.replace("bfloat", "bf").replace("float", "fp")
