"""Recorded calls (recording.py) read, and made again, for `kjit.warm` and `kjit replay`.

A call is rebuilt from its description: its tensors have the same layout in memory, with the same gaps, overlaps and
alignment, on the same kind of device. Values that were not recorded are generated: random floats (positive for tensors
named as a scale), and counting integers below the number of rows of all tensors and the other numbers of the call, so
that they are valid as indices. Without a GPU, calls on a GPU are made in the simulator.

Nothing in a file is ever executed. The module named in a file is imported only if it is a wrapper of the project or its
source defines that op (`used.refuse_foreign`), and the function is called only if it is an op.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import torch

from kjit import env
from kjit.errors import KjitError, UsageError
from kjit.project import Project, Raised, run_of_project
from kjit.runtime.load import simulated
from kjit.runtime.recording import ALIGNMENT, CALL, FORMAT, LAST, VALUES
from kjit.runtime.torch_op import GRADIENT
from kjit.runtime.used import refuse_foreign

REFUSALS = (KjitError, RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError)
"""Errors of a call with unsuitable arguments."""

_SHOWN_TENSORS = 3


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
        """The name of the function."""
        return self.op.rpartition(":")[2].rpartition(".")[2]

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
            yield from ((name, each) for each in _tensors_of(value))

    def shapes(self) -> str:
        """Its tensors, for display: `x bf16[2, 64], out bf16[2, 64]`."""
        shown = [
            f"{name} {each['dtype'].replace('bfloat', 'bf').replace('float', 'fp')}{each['shape']}"
            for name, each in self.tensors()
        ]
        more = f" and {len(shown) - _SHOWN_TENSORS} more" if len(shown) > _SHOWN_TENSORS else ""
        return ", ".join(shown[:_SHOWN_TENSORS]) + more


def read(paths: Sequence[Path], ops: Sequence[str] = ()) -> tuple[list[Call], list[KjitError]]:
    """The calls in folders and files, and the errors of invalid files.

    Args:
        ops: only calls of these: names of functions or of their modules.

    Raises:
        UsageError: a path does not exist, or there are no calls, or none of `ops`.
    """
    calls: list[Call] = []
    errors: list[KjitError] = []
    for file in [file for path in paths for file in _files(path)]:
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
    documents = [json.loads(file.read_text()) for file in sorted(path.glob(f"{LAST}*{CALL}"))]
    return [(int(each["process"]), str(each["last"])) for each in documents]


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.glob(f"*{CALL}") if not each.name.startswith((".", LAST)))
        if not found:
            raise UsageError(
                f"there is no recorded call in '{path}'.", hint=f"a run with {env.RECORD}={path} writes them there"
            )
        return found
    if not path.is_file():
        raise UsageError(f"there is no file or folder '{path}'.")
    if path.suffix != CALL:
        raise UsageError(f"'{path}' is not a recorded call: these are files {CALL}.")
    return [path]


def _read(file: Path) -> Call:
    """Raises KjitError if the file is not a recorded call."""
    try:
        document = json.loads(file.read_text("utf-8"))
        if document["format"] != FORMAT:
            raise KjitError(
                f"{file} was written by kjit {document['written_by']['kjit']}, in a format that this "
                "version cannot read."
            )
        call = Call(file, document)
        if not call.op.partition(":")[2]:
            raise ValueError("it names no op")
        # What the rest of this file reads is there.
        _ = call.is_on_gpu, call.shapes(), document["memories"]
    except OSError as error:
        raise KjitError(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KjitError(
            f"{file} is damaged, or not a recorded call ({type(error).__name__}: {error}).",
            hint=f"remove it; a run with {env.RECORD} writes such files",
        ) from None
    return call


def _tensors_of(value: Any) -> Iterator[Mapping[str, Any]]:
    """The descriptions of tensors in that of an argument."""
    if isinstance(value, list):
        for each in value:
            yield from _tensors_of(each)
    elif isinstance(value, dict):
        ((kind, inside),) = value.items()
        if kind == "tensor":
            yield inside
        elif kind == "tuple":
            yield from _tensors_of(inside)


def _names(call: Call) -> set[str]:
    module = call.op.partition(":")[0]
    return {call.name, call.op, module, module.rpartition(".")[2]}


class Caller:
    """Makes recorded calls again.

    Args:
        project: the project whose ops may be called; None: only those of installed packages.
        simulated: make calls on a GPU in the simulator; None: if there is no GPU.
        check: with the simulator's checks.
        device: the GPU for the calls; None: the recorded one, if it exists here.
        seed: the seed of generated values; None: all are zero.
    """

    def __init__(
        self,
        project: Project | None,
        *,
        simulated: bool | None = None,
        check: bool = False,
        device: str | None = None,
        seed: int | None = 0,
    ) -> None:
        self.project = project
        self.is_simulated = not torch.cuda.is_available() if simulated is None else simulated
        self.check = check
        self.device = device
        self.seed = seed

    def prepare(self, call: Call, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        """The call with these arguments, to be made in the same mode (`around`).

        Raises:
            KjitError: its function no longer exists, or takes other arguments now.
        """
        found = self.found(call)
        parameters = inspect.signature(found).parameters
        needed = {p.name for p in parameters.values() if p.default is p.empty}
        if not needed <= arguments.keys() <= parameters.keys():
            raise KjitError(
                f"{call.op} takes ({', '.join(parameters)}), and was recorded with ({', '.join(arguments)}).",
                hint="it was recorded with another version of the op: record again",
            )
        return partial(found, **arguments)

    def found(self, call: Call) -> Any:
        """The object with the recorded name.

        Raises:
            KjitError: it no longer exists.
        """
        module_name, _, path = call.op.partition(":")
        if "<locals>" in path:
            raise KjitError(f"{call.op} was defined inside a function, and cannot be found by its name.")
        found: Any = self._import(module_name, path.partition(".")[0], call)
        for part in path.split("."):
            # A module's `__getattr__` may import.
            found = vars(found).get(part) if isinstance(found, ModuleType) else getattr(found, part, None)
        if not callable(found) or GRADIENT not in getattr(found, "__dict__", {}):
            raise KjitError(
                f"{module_name} no longer has an op '{path}', of which {call.file.name} is a call.",
                hint="it was recorded with another version of the op: record again, or select other ops with --op",
            )
        return found

    def _import(self, name: str, defined: str, call: Call) -> Any:
        package, _, op = name.rpartition(".")
        if self.project is not None and package == self.project.package and self.project.wrapper_path(op).is_file():
            return self.project.import_wrapper(op)
        refuse_foreign(name, defined)
        found = run_of_project(partial(importlib.import_module, name))
        if isinstance(found, Raised):
            where = "" if self.project is not None else ", and this folder is in no project"
            raise KjitError(
                f"'{name}', of which {call.file.name} is a call, cannot be imported: {found.error}{where}.",
                hint="replay it in the project of the op, or where its package is installed",
            )
        return found

    def arguments(self, call: Call) -> dict[str, Any]:
        """New arguments like those of the call, by name.

        Raises:
            KjitError: one could not be recorded, or its values are damaged.
        """
        new = _NewArguments(call, self._place, self.seed)
        return {name: new.make(name, value) for name, value in call.document["arguments"].items()}

    def _place(self, device: str) -> str:
        if not device.startswith("cuda"):
            return device
        if self.is_simulated:
            return "cpu"
        if self.device is not None:
            return self.device
        index = device.partition(":")[2] or "0"
        return device if int(index) < torch.cuda.device_count() else "cuda:0"

    @contextlib.contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """The mode of the call: simulated if it was on a GPU and there is none."""
        if call.is_on_gpu and self.is_simulated:
            with simulated(check=self.check):
                yield
        elif call.document.get("simulated"):
            # As with `KJIT_SIM`: an op with a CPU kernel uses that.
            before = os.environ.get(env.SIM)
            os.environ[env.SIM] = "check" if self.check else "1"
            try:
                yield
            finally:
                del os.environ[env.SIM]
                if before is not None:
                    os.environ[env.SIM] = before
        else:
            yield

    def run(self, call: Call, arguments: Mapping[str, Any] | None = None) -> Any:
        """Make the call once, by default with new arguments, and return its result.

        Raises:
            KjitError: it cannot be made.
        """
        with self.around(call):
            returned = self.prepare(call, self.arguments(call) if arguments is None else arguments)()
            self.wait(call)
        return returned

    def wait(self, call: Call) -> None:
        """Wait for the GPU, which reports errors asynchronously."""
        if call.is_on_gpu and not self.is_simulated:
            torch.cuda.synchronize()


def one_line(error: BaseException) -> str:
    """The message of an error in one line."""
    message = error.message if isinstance(error, KjitError) else str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"{type(error).__name__}: {': '.join(lines[:2])}"


class _NewArguments:
    """New arguments for a call.

    Args:
        place: the device for a recorded one.
        seed: as for `Caller`.
    """

    def __init__(self, call: Call, place: Callable[[str], str], seed: int | None) -> None:
        self._call = call
        self._place = place
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        self._values = self._recorded_values() if call.document.get("has_values") and seed is not None else None
        self._memories: dict[int, tuple[torch.Tensor, int]] = {}
        described = [each for _, each in call.tensors()]
        rows = [each["shape"][0] for each in described if len(each["shape"]) > 1 and "float" in each["dtype"]]
        numbers = [value for value in call.document["arguments"].values() if type(value) is int and value > 1]
        self._bound = max(min([*rows, *numbers], default=2**31 - 1), 1)

    def make(self, name: str, value: Any) -> Any:
        """A new value for the description of one, of the argument `name`."""
        if isinstance(value, list):
            return [self.make(name, each) for each in value]
        if not isinstance(value, dict):
            return value
        ((kind, inside),) = value.items()
        if kind == "tensor":
            return self._tensor(name, inside)
        if kind == "tuple":
            return tuple(self.make(name, each) for each in inside)
        if kind == "dtype":
            return self._dtype(inside)
        raise KjitError(f"argument '{name}' of {self._call.op} could not be recorded: {inside}.")

    def _dtype(self, name: str) -> torch.dtype:
        found = getattr(torch, name, None)
        if not isinstance(found, torch.dtype):
            raise KjitError(f"{self._call.file.name} has tensors of {name}, which this torch does not have.")
        return found

    def _tensor(self, name: str, described: Mapping[str, Any]) -> torch.Tensor:
        dtype, shape, strides = self._dtype(described["dtype"]), described["shape"], described["strides"]
        device = self._place(described["device"])
        if 0 in shape:
            return torch.empty_strided(shape, strides, dtype=dtype, device=device)
        memory, begin = self._memory(described["memory"], device)
        begin = (begin + described["offset"]) // dtype.itemsize
        tensor = torch.empty(0, dtype=dtype, device=device).set_(memory.untyped_storage(), begin, shape, strides)
        if self._generator is not None and self._values is None:
            # Elements that share memory are written once.
            once = [size if stride else 1 for size, stride in zip(shape, strides, strict=True)]
            tensor.as_strided(once, strides).copy_(self._content(name, once, dtype, self._generator))
        return tensor

    def _memory(self, number: int, device: str) -> tuple[torch.Tensor, int]:
        """A new piece of memory like the recorded one, and where that begins in it."""
        if number not in self._memories:
            recorded = self._call.document["memories"][number]
            size = recorded["bytes"]
            memory = torch.zeros(size + 2 * ALIGNMENT, dtype=torch.uint8, device=device)
            begin = -memory.data_ptr() % ALIGNMENT + recorded["place"]
            if self._values is not None:
                memory[begin : begin + size].copy_(self._values[number])
            self._memories[number] = memory, begin
        return self._memories[number]

    def _content(self, name: str, shape: list[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        if dtype.is_complex:
            return torch.randn(shape, dtype=dtype, generator=generator)
        if dtype.is_floating_point:
            floats = torch.randn(shape, generator=generator)
            return (floats.abs() + 0.5 if "scale" in name else floats).to(dtype)
        if dtype in (torch.bool, torch.uint8, torch.int8):
            return torch.randint(0, 2 if dtype == torch.bool else 5, shape, generator=generator).to(dtype)
        count = torch.Size(shape).numel()
        return (torch.arange(count) % self._bound).reshape(shape).to(dtype)

    def _recorded_values(self) -> list[torch.Tensor]:
        file = self._call.file.with_suffix(VALUES)
        try:
            return cast("list[torch.Tensor]", torch.load(file, map_location="cpu", weights_only=True))
        except (OSError, RuntimeError, pickle.UnpicklingError) as error:
            raise KjitError(f"the values of {self._call.file.name} cannot be read from {file}: {error}") from None
