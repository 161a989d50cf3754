"""Recorded calls (recording.py), read from their files and made again, for `kjit.warm` and `kjit replay`.

A call is rebuilt from its description: its tensors have the same layout in memory, with the same gaps, overlaps and
alignment, on the same kind of device. Values that were not recorded are generated: random floats (positive for tensors
named as a scale), and counting integers below the number of rows of all tensors and the other numbers of the call, so
that they are valid as indices. Without a GPU, calls on a GPU are made in the simulator.

Files are only read. The module in a file is imported, and the function in it is called only if it is an op, a declared
module or a function of `jit`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kjit import env
from kjit.errors import KjitError, UsageError
from kjit.project import Project, Raised, run_of_project
from kjit.runtime.declared import is_declared
from kjit.runtime.load import JIT, simulated
from kjit.runtime.native import ROAD
from kjit.runtime.recording import ALIGNMENT, FORMAT, JSON, LAST, METADATA, TENSORS

if TYPE_CHECKING:
    import torch

REFUSALS = (KjitError, RuntimeError, TypeError, ValueError)
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
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            document = json.loads(file.read_text())
            found.append((int(document["process"]), str(document["last"])))
    return found


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
        import torch

        self.project = project
        self.is_simulated = not torch.cuda.is_available() if simulated is None else simulated
        self.check = check
        self.device = device
        self.seed = seed

    def function(self, call: Call) -> Callable[..., Any]:
        """The function of the call, with the recorded names of its arguments.

        Raises:
            KjitError: it no longer exists, or takes other arguments now.
        """
        found = self.found(call)
        if call.document["kind"] == "export":
            return self._export(found, call)
        _require_fit(found, call)
        return cast("Callable[..., Any]", found)

    def found(self, call: Call) -> Any:
        """The object with the recorded name.

        Raises:
            KjitError: it no longer exists.
        """
        module_name, _, path = call.op.partition(":")
        if "<locals>" in path:
            raise KjitError(f"{call.op} was defined inside a function, and cannot be found by its name.")
        found: Any = self._import(module_name, call)
        for part in path.split("."):
            found = getattr(found, part, None)
        marks = vars(found) if callable(found) and hasattr(found, "__dict__") else {}
        is_kind = {"op": ROAD in marks, "export": is_declared(found), "jit": JIT in marks}
        if not is_kind[call.document["kind"]]:
            raise KjitError(
                f"{module_name} no longer has an op '{path}', of which {call.file.name} is a call.",
                hint="it was recorded with another version of the op: record again, or select other ops with --op",
            )
        return found

    def _export(self, declared: Any, call: Call) -> Callable[..., Any]:
        from kjit.runtime.used import from_json

        try:
            values = {name: from_json(value) for name, value in call.document["values"].items()}
            declared.spec(**values)
        except (TypeError, ValueError) as error:
            raise KjitError(f"{call.op} no longer takes the recorded values: {error}.") from None
        export = str(call.document["export"])

        def run(**arguments: Any) -> Any:
            tensor = next((each for value in arguments.values() for each in _tensors_in(value)), None)
            module = declared(**values, device=tensor)
            function = getattr(module, export, None)
            if function is None:
                raise KjitError(f"{call.op} no longer exports '{export}'.")
            return function(*arguments.values())

        return run

    def _import(self, name: str, call: Call) -> Any:
        package, _, op = name.rpartition(".")
        if self.project is not None and package == self.project.package and self.project.wrapper_path(op).is_file():
            return self.project.import_wrapper(op)
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
        return _Builder(call, self._place, self.seed).arguments()

    def _place(self, device: str) -> str:
        import torch

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
        was_simulated = bool(call.document.get("simulated"))
        if call.is_on_gpu and self.is_simulated:
            with simulated(check=self.check):
                yield
        elif was_simulated:
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
        function = self.function(call)
        arguments = self.arguments(call) if arguments is None else arguments
        with self.around(call):
            returned = apply(function, call, arguments)
            self.wait(call)
        return returned

    def launch(self, call: Call) -> None:
        """Make the call once, to load its modules.

        Raises:
            KjitError: it cannot be made.
        """
        try:
            self.run(call)
        except KjitError:
            raise
        except REFUSALS as error:
            raise KjitError(f"{call.name} ({call.shapes()}) has failed: {one_line(error)}") from error

    def wait(self, call: Call) -> None:
        """Wait for the GPU, which reports errors asynchronously."""
        import torch

        if call.is_on_gpu and not self.is_simulated:
            torch.cuda.synchronize()


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
    if not path.exists():
        raise UsageError(f"there is no file or folder '{path}'.")
    if path.suffix not in (JSON, TENSORS):
        raise UsageError(f"'{path}' is not a recorded call: these are files {JSON} or {TENSORS}.")
    return [path]


def _read(file: Path) -> Call:
    """Raises KjitError if the file is not a recorded call."""
    try:
        text = _metadata(file) if file.suffix == TENSORS else file.read_text("utf-8")
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise KjitError(
                f"{file} was written by kjit {document['written_by']['kjit']}, in a format that this "
                "version does not know."
            )
        call = Call(file, document)
        _validate(call)
    except OSError as error:
        raise KjitError(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise KjitError(
            f"{file} is damaged, or not a recorded call ({type(error).__name__}: {error}).",
            hint=f"remove it; a run with {env.RECORD} writes such files",
        ) from None
    return call


def _metadata(file: Path) -> str:
    """The JSON in a safetensors file: eight bytes with the size of a header, and that header.

    Raises:
        ValueError, KeyError: it is not a safetensors file.
    """
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if size > file.stat().st_size:
            raise ValueError("it is cut off")
        return str(json.loads(opened.read(size))["__metadata__"][METADATA])


def _validate(call: Call) -> None:
    """Raises ValueError, KeyError or TypeError if recording.py does not write this."""
    if call.document["kind"] not in ("op", "jit", "export") or ":" not in call.op:
        raise ValueError("it names no op")
    if call.document["kind"] == "export" and not isinstance(call.document["export"], str):
        raise ValueError("it names no export")
    sizes = call.document["memories"]
    for _, each in call.tensors():
        shape, strides = each["shape"], each["strides"]
        numbers = [*shape, *strides, each["offset"], each["memory"], sizes[each["memory"]]]
        if len(shape) != len(strides) or not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("a tensor has no shape")
        if not isinstance(each["device"], str) or not isinstance(each["dtype"], str):
            raise ValueError("a tensor has no dtype")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and [*value] in (["list"], ["tuple"]):
        (inside,) = value.values()
        for each in inside:
            yield from _leaves(each)
    else:
        yield value


def _names(call: Call) -> set[str]:
    module = call.op.partition(":")[0]
    return {call.name, call.op, module, module.rpartition(".")[2], call.name.partition(".")[0]}


def _short(dtype: str) -> str:
    return dtype.replace("bfloat", "bf").replace("float", "fp")


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    import torch

    for each in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(each, torch.Tensor):
            yield each


def apply(function: Callable[..., Any], call: Call, arguments: Mapping[str, Any], *, has_module: bool = True) -> Any:
    """Call with positional-only arguments by position, and all others by name.

    Args:
        has_module: whether the first parameter is the module of a `jit` function.
    """
    if call.document["kind"] == "export":
        return function(**arguments)
    parameters = _parameters(function, call) if has_module else [*inspect.signature(function).parameters.values()]
    by_place = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first = [arguments[name] for name in by_place if name in arguments]
    more = [value for name, value in arguments.items() if name.isdecimal()]
    rest = {name: value for name, value in arguments.items() if name not in by_place and not name.isdecimal()}
    return function(*first, *more, **rest)


def _parameters(function: Any, call: Call) -> list[inspect.Parameter]:
    parameters = [*inspect.signature(function).parameters.values()]
    # The first of a `jit` function is its module.
    return parameters[1:] if call.document["kind"] == "jit" else parameters


def _require_fit(function: Any, call: Call) -> None:
    """Raise a KjitError if the parameters of a function have changed since the recording."""
    signature = inspect.Signature(_parameters(function, call))
    recorded = list(call.document["arguments"])
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    strange = [name for name in recorded if name not in signature.parameters and not name.isdecimal()]
    required = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    lacking = [name for name in required if name not in recorded]
    if (strange and not takes_any) or lacking:
        raise KjitError(
            f"{call.op} takes ({', '.join(signature.parameters)}), and was recorded with ({', '.join(recorded)}).",
            hint="it was recorded with another version of the op: record again",
        )


def one_line(error: BaseException) -> str:
    """The message of an error in one line."""
    message = error.message if isinstance(error, KjitError) else str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"{type(error).__name__}: {': '.join(lines[:2])}"


class _Builder:
    """New arguments for a call."""

    def __init__(self, call: Call, place: Callable[[str], str], seed: int | None) -> None:
        import torch

        self._call = call
        self._place = place
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        self._pieces: dict[int, torch.Tensor] = {}
        self._values = _values_of(call) if call.document.get("has_values") and seed is not None else None
        described = [each for _, each in call.tensors()]
        rows = [each["shape"][0] for each in described if len(each["shape"]) > 1 and "float" in each["dtype"]]
        numbers = [value for value in call.document["arguments"].values() if type(value) is int and value > 1]
        self._bound = max(min([*rows, *numbers], default=2**31 - 1), 1)

    def arguments(self) -> dict[str, Any]:
        return {name: self._make(name, value) for name, value in self._call.document["arguments"].items()}

    def _make(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, inside),) = value.items()
        if kind == "tensor":
            return self._tensor(name, inside)
        if kind in ("list", "tuple"):
            made = [self._make(name, each) for each in inside]
            return made if kind == "list" else tuple(made)
        if kind == "float":
            return float(inside)
        if kind == "dtype":
            return self._dtype(inside)
        raise KjitError(f"argument '{name}' of {self._call.op} could not be recorded: {inside}.")

    def _dtype(self, name: str) -> torch.dtype:
        import torch

        found = getattr(torch, name, None)
        if not isinstance(found, torch.dtype):
            raise KjitError(f"{self._call.file.name} has tensors of {name}, which this torch does not have.")
        return found

    def _tensor(self, name: str, described: Mapping[str, Any]) -> torch.Tensor:
        import torch

        dtype = self._dtype(described["dtype"])
        shape, strides, device = described["shape"], described["strides"], self._place(described["device"])
        if 0 in shape:
            return torch.empty_strided(shape, strides, dtype=dtype, device=device)
        span = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
        begin, nbytes = described["offset"], span * dtype.itemsize
        piece = self._piece(described["memory"], device)
        if begin + nbytes > piece.numel() or begin % dtype.itemsize:
            raise KjitError(f"{self._call.file} is damaged: '{name}' reaches past its memory.")
        tensor = piece[begin : begin + nbytes].view(dtype).as_strided(shape, strides)
        if self._generator is None:
            return tensor
        # Overlapping elements are written once.
        written = tensor
        for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
            if stride == 0 and size > 1:
                written = written.narrow(axis, 0, 1)
        written.copy_(self._content(name, described, dtype).expand(shape)[tuple(map(slice, written.shape))])
        return tensor

    def _piece(self, number: int, device: str) -> torch.Tensor:
        import torch

        if number not in self._pieces:
            size = self._call.document["memories"][number]
            memory = torch.zeros(size + ALIGNMENT, dtype=torch.uint8, device=device)
            begin = -memory.data_ptr() % ALIGNMENT
            self._pieces[number] = memory[begin : begin + size]
        return self._pieces[number]

    def _content(self, name: str, described: Mapping[str, Any], dtype: torch.dtype) -> torch.Tensor:
        import torch

        shape = described["shape"]
        if self._values is not None:
            values = self._values.get(described.get("values", ""))
            if values is None:
                raise KjitError(f"{self._call.file} is damaged: it has no values of '{name}'.")
            values = values.view(dtype).reshape(shape) if values.dtype == torch.uint8 else values
            if [*values.shape] != shape or values.dtype != dtype:
                raise KjitError(f"{self._call.file} is damaged: the values of '{name}' have another shape.")
            return values
        if dtype.is_complex:
            return torch.randn(shape, dtype=dtype, generator=self._generator)
        if dtype.is_floating_point:
            floats = torch.randn(shape, generator=self._generator)
            return (floats.abs() + 0.5 if "scale" in name else floats).to(dtype)
        if dtype in (torch.bool, torch.uint8, torch.int8):
            return torch.randint(0, 2 if dtype == torch.bool else 5, shape, generator=self._generator).to(dtype)
        count = torch.Size(shape).numel()
        return (torch.arange(count) % self._bound).reshape(shape).to(dtype)


def _values_of(call: Call) -> dict[str, torch.Tensor]:
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
