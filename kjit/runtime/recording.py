"""Recording: calls of ops written to files as they are made (`KJIT_RECORD`), for `kjit replay`.

A process without recording has no overhead: recording is decided when an op is defined (`torch_op`), and only then is
a function put between the caller and the kernel. An op's function is recorded however it is called: eagerly, by a graph
of `torch.compile`, or while a CUDA graph is captured.

A call is a JSON file. Of its arguments it describes what a kernel sees: dtypes, shapes, strides, devices, and positions
in memory: the storage, which a tensor may share with others of the call, and the place in it. The values, if they are
recorded, are in a file `.pt` beside it: the bytes of each piece of memory. A call is written before the kernel runs, so
that one which crashes the process is on the disk; each file appears by one rename.

By default a call whose tensors look like those of a recorded one is not written again, by any process: the file's name
is a hash of what is compared (`look`). Floating-point arguments are not compared, as there may be many values.

To record values, memory is copied from the GPU, which synchronises. This is impossible while a CUDA graph is captured,
and the file then says so.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import itertools
import json
import logging
import numbers
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import torch

import kjit
from kjit import env
from kjit.runtime.load import mode

P = ParamSpec("P")
R = TypeVar("R")

FORMAT = 2
CALL, VALUES, LAST = ".json", ".pt", "last-"
"""The ends of the names of files, and the beginning of that with the last call of a process."""

ALIGNMENT = 256
"""Addresses are recorded modulo this."""

_CHECKED_ALIGNMENT = 16  # of vectors in kernels
_LAST_BYTES = 512
_LONGEST_NAME = 120

_OPAQUE = "_torchdynamo_disable"
"""The mark of `torch.compiler.disable`: Dynamo calls such a function without tracing into it."""

_log = logging.getLogger("kjit")


def recorded(function: Callable[P, R]) -> Callable[P, R]:
    """The function of an op that records its calls, then makes them.

    Raises:
        UsageError: the folder cannot be written, or another variable means nothing.
    """
    site = _Site(f"{function.__module__}:{function.__qualname__}", inspect.signature(function))

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        site.note(args, named)
        return function(*args, **named)

    call.__dict__[_OPAQUE] = True
    return call


class _Site:
    """An op whose calls are recorded: its function, as `kernels.scale:scale`, and that function's parameters."""

    def __init__(self, op: str, signature: inspect.Signature) -> None:
        self._op = op
        self._signature = signature
        self._recorder = recorder()
        self._files: dict[object, str] = {}
        self._count = itertools.count()
        self._is_strange = False

    def note(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Record a call before it is made, unless a similar one was recorded. It raises nothing: a failed write ends
        the recording, with an error in the log; arguments that cannot be described, that of the op."""
        to = self._recorder
        if to.is_stopped or self._is_strange:
            return
        try:
            if to.every is not None and next(self._count) % to.every:
                return
            looks = (len(args), *named, look((*args, *named.values())))
            name = self._files.get(looks)
            if name is None or to.every is not None:
                bound = self._signature.bind(*args, **named)
                bound.apply_defaults()
                name = to.write(self._op, bound.arguments)
                if name is None:
                    return
                self._files[looks] = name
            to.name_last(name)
        except OSError as error:
            to.is_stopped = True
            _log.error("no more calls are recorded in %s: %s. They are still made.", to.folder, error.strerror)
        except Exception as error:  # noqa: BLE001 - of an argument, whose classes may raise anything
            self._is_strange = True
            what = f"{type(error).__name__}: {error}"
            _log.error("no more calls of %s are recorded: %s. They are still made.", self._op, what)


@functools.lru_cache(maxsize=1)
def recorder() -> Recorder:
    """The one recorder of this process.

    Raises:
        UsageError: as for `recorded`.
    """
    return Recorder()


class Recorder:
    """Writes calls to the folder of `KJIT_RECORD`, for all threads of a process.

    Threads and processes share nothing but the folder: each file is written under a name of its own and renamed.

    Raises:
        UsageError: the folder cannot be written, or another variable means nothing.
    """

    def __init__(self) -> None:
        self.folder = str(env.record_folder())
        self.every = env.record_every()
        self.limit = env.record_max_size()
        self.is_stopped = False
        self._wanted = env.record_values()
        self._last: tuple[int, int] | None = None  # a process, and its open file
        try:
            os.makedirs(self.folder, exist_ok=True)
            os.unlink(self._write_aside(b""))
        except OSError as error:
            raise kjit.UsageError(
                f"calls cannot be recorded in '{self.folder}': {error.strerror}.",
                hint=f"set {env.RECORD} to a writable folder",
            ) from None

    def write(self, op: str, arguments: Mapping[str, object]) -> str | None:
        """Write a call, and return the name of its file; None if the limit is reached.

        Raises:
            OSError: it cannot be written.
        """
        stem = _stem(op, arguments)
        if self.every is not None:
            stem += f"-{uuid.uuid4().hex[:12]}"
        elif os.path.exists(f"{self.folder}/{stem}{CALL}"):
            return stem + CALL
        memories = _Memories()
        document: dict[str, object] = {
            "format": FORMAT,
            "op": op,
            "arguments": {name: memories.describe(value) for name, value in arguments.items()},
            "memories": memories.finish(),
            "captured": _is_capturing(),
            "simulated": (mode() or env.simulation()) is not None,
            "written_by": {
                "kjit": kjit.__version__,
                "torch": torch.__version__,
                **memories.gpu(),
                "process": os.getpid(),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
        }
        left = self.limit - self._size()
        values = b""
        if self._wants_values(op):
            if document["captured"]:
                document["without_values"] = "a CUDA graph was being captured"
            elif memories.nbytes() > left or len(values := memories.contents()) > left:
                document["without_values"] = f"they are larger than what {env.RECORD_MAX_SIZE} leaves"
                values = b""
            else:
                document["has_values"] = True
        content = json.dumps(document).encode()
        if len(content) + len(values) > left:
            self.is_stopped = True
            _log.warning(
                "no more calls are recorded: %s holds the %d bytes that %s allows",
                self.folder,
                self.limit,
                env.RECORD_MAX_SIZE,
            )
            return None
        if values:
            os.replace(self._write_aside(values), f"{self.folder}/{stem}{VALUES}")
        os.replace(self._write_aside(content), f"{self.folder}/{stem}{CALL}")
        return stem + CALL

    def name_last(self, name: str) -> None:
        """Write the name of a call into a file of this process, which survives a crash of it."""
        process = os.getpid()
        if self._last is None or self._last[0] != process:
            path = f"{self.folder}/{LAST}{process}-{uuid.uuid4().hex[:12]}{CALL}"
            self._last = process, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # A name needs no escapes.
        line = f'{{"process": {process}, "last": "{name}"}}'.ljust(_LAST_BYTES - 1) + "\n"
        os.pwrite(self._last[1], line.encode(), 0)

    def _wants_values(self, op: str) -> bool:
        module, _, path = op.partition(":")
        return self._wanted == "all" or not {op, path.rpartition(".")[2], module.rpartition(".")[2]}.isdisjoint(
            self._wanted
        )

    def _size(self) -> int:
        with os.scandir(self.folder) as found:
            return sum(each.stat().st_size for each in found if not each.name.startswith((LAST, ".")))

    def _write_aside(self, content: bytes) -> str:
        """Write a file under a temporary name, and return its path."""
        path = f"{self.folder}/.{uuid.uuid4().hex}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(handle, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(handle)
        return path


def look(values: Iterable[Any]) -> tuple[object, ...]:
    """The properties of arguments that distinguish calls, with the same `repr` in every process.

    Every recorded call waits for this.
    """
    looks: list[object] = []
    addresses: list[int] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            try:
                address = value.data_ptr()
                strides = value.stride()
            except RuntimeError:  # it is not a view of memory
                address, strides = 0, ()
            addresses.append(address)
            looks += (value.dtype, value.shape, strides, value.is_cuda, address % _CHECKED_ALIGNMENT)
        elif isinstance(value, (list, tuple)):
            looks += (type(value), look(value))
        elif isinstance(value, float):
            looks.append(float)
        elif value is None or isinstance(value, (int, str, torch.dtype, numbers.Integral)):
            looks += (type(value), value)
        else:
            looks.append(type(value))
    if len(set(addresses)) < len(addresses):  # some have the same address
        looks.append(tuple(map(addresses.index, addresses)))
    return tuple(looks)


def _stem(op: str, arguments: Mapping[str, object]) -> str:
    """The name of a call's files without their ends."""
    module, _, path = op.partition(":")
    readable = f"{module}.{path.rpartition('.')[2]}"
    words = "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in readable)[-_LONGEST_NAME:]
    digest = hashlib.sha256(repr((FORMAT, op, [*arguments], look(arguments.values()))).encode())
    return f"{words}-{digest.hexdigest()[:16]}"


class _Memory:
    """The piece of a storage that the tensors of a call are in."""

    def __init__(self, number: int, tensor: torch.Tensor) -> None:
        self.number = number
        self.tensor = tensor
        self.begin = self.end = tensor.data_ptr()


class _Memories:
    """Descriptions of a call's arguments, and the memory of its tensors."""

    def __init__(self) -> None:
        self._by_storage: dict[int, _Memory] = {}
        self._tensors: list[tuple[dict[str, Any], _Memory]] = []

    def describe(self, value: Any) -> object:
        """An argument as JSON."""
        if value is None or isinstance(value, (bool, float, str)):
            return value
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, torch.Tensor):
            return self._describe_tensor(value)
        if isinstance(value, (list, tuple)):
            each = [*map(self.describe, value)]
            return each if isinstance(value, list) else {"tuple": each}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        return {"unknown": f"{type(value).__module__}.{type(value).__qualname__}"}

    def _describe_tensor(self, tensor: torch.Tensor) -> dict[str, object]:
        if tensor.layout != torch.strided or tensor.is_nested:
            return {"unknown": f"a tensor of layout {tensor.layout}"}
        described: dict[str, Any] = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": [*map(int, tensor.shape)],
            "strides": [*map(int, tensor.stride())],
            "device": str(tensor.device),
        }
        if tensor.numel():
            try:
                address, storage = tensor.data_ptr(), tensor.untyped_storage().data_ptr()
            except RuntimeError:
                return {"unknown": "a tensor without memory"}
            memory = self._by_storage.setdefault(storage, _Memory(len(self._by_storage), tensor))
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            memory.begin = min(memory.begin, address)
            memory.end = max(memory.end, address + (int(last) + 1) * tensor.element_size())
            described |= {"memory": memory.number, "offset": address}  # an address; `finish` makes it an offset
            self._tensors.append((described, memory))
        return {"tensor": described}

    def finish(self) -> list[dict[str, int]]:
        """The size of each piece of memory, and its address modulo `ALIGNMENT`, after everything was described."""
        for described, memory in self._tensors:
            described["offset"] -= memory.begin
        pieces = self._by_storage.values()
        return [{"bytes": each.end - each.begin, "place": each.begin % ALIGNMENT} for each in pieces]

    def gpu(self) -> dict[str, str]:
        """The GPU of the first tensor."""
        device = self._tensors[0][1].tensor.device if self._tensors else None
        return {"gpu": torch.cuda.get_device_name(device)} if device is not None and device.type == "cuda" else {}

    def nbytes(self) -> int:
        """The bytes of all pieces of memory."""
        return sum(each.end - each.begin for each in self._by_storage.values())

    def contents(self) -> bytes:
        """The bytes of each piece of memory, as a file of `torch.save`."""
        pieces = []
        for each in self._by_storage.values():
            storage = each.tensor.untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8, device=each.tensor.device).set_(storage)
            begin = each.begin - storage.data_ptr()
            pieces.append(whole[begin : begin + each.end - each.begin].to("cpu", copy=True))
        file = io.BytesIO()
        torch.save(pieces, file)
        return file.getvalue()


def _is_capturing() -> bool:
    cuda: Any = torch.cuda  # which is not typed throughout
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
