"""Recording: calls of ops written to files as they are made (`KJIT_RECORD`), for `kjit replay`.

A process without recording has no overhead: recording is decided when an op is defined (`torch_op`, `jit`) or a
declared module is loaded, and only then is a function put between the caller and the kernel. An op's function is
recorded however it is called: eagerly, by a graph of `torch.compile`, or while a CUDA graph is captured. Calls of a
declared module are recorded outside of ops.

A file is written before the kernel runs, so that a call which crashes the process is on the disk; it appears by one
rename. call_files.py describes its form, call_arguments.py its arguments.

By default a call whose tensors look like those of a recorded one is not written again, by any process: the file's name
is a hash of what is compared. Floating-point arguments are not compared, as there may be many values.

To record values, tensors are copied from the GPU, which synchronises. This is impossible while a CUDA graph is
captured, and the file then says so.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import logging
import mmap
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar

import torch

import kjit
from kjit import env
from kjit.runtime.call_arguments import Descriptions, distinct, look
from kjit.runtime.call_files import FORMAT, JSON, LAST, TENSORS, to_bytes
from kjit.runtime.load import mode

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["op", "jit", "export"]

_LAST_BYTES = 512
_COUNTED_EVERY = 32  # writes between two scans of the folder, where other processes write too
_LONGEST_NAME = 120

_OPAQUE = "_torchdynamo_disable"
"""The mark of `torch.compiler.disable`: Dynamo calls such a function without tracing into it."""

_log = logging.getLogger("kjit")
_recorder: Recorder | None = None
_making = threading.Lock()


def recorded(function: Callable[P, R], kind: Kind) -> Callable[P, R]:
    """A function that records its calls, then makes them.

    Args:
        function: the function of an op; for `jit` it has the module before its other parameters, which callers do not
            pass.

    Raises:
        UsageError: the folder cannot be written, or another variable means nothing.
    """
    parameters = list(inspect.signature(function).parameters.values())[kind == "jit" :]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    order = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    site = _Site({"kind": kind, "op": f"{function.__module__}:{function.__qualname__}"})
    recorder()

    def by_name(args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        names = [*positional, *map(str, range(len(positional), len(args)))]
        given = defaults | dict(zip(names, args, strict=False)) | dict(named)
        return {name: given[name] for name in [*order, *given] if name in given}

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        (_recorder or recorder()).note(site, args, named, by_name)
        outer = _thread.is_in_op
        _thread.is_in_op = True
        try:
            return function(*args, **named)
        finally:
            _thread.is_in_op = outer

    call.__dict__[_OPAQUE] = True
    return call


class _Site:
    """A function whose calls are recorded.

    Attributes:
        head: the identity of the function in a file.
        seen: files by the compared properties of a call (`look`).
        count: the number of calls so far.
        is_strange: whether the arguments of a call could not be described.
    """

    __slots__ = ("count", "head", "is_strange", "seen")

    def __init__(self, head: Mapping[str, object]) -> None:
        self.head = head
        self.seen: dict[object, str] = {}
        self.count = 0
        self.is_strange = False


class _Thread(threading.local):
    """The state of a thread.

    Attributes:
        is_in_op: whether it is in an op whose call was recorded.
    """

    is_in_op = False


class RecordedExports:
    """A loaded module whose calls are recorded, unless they are made inside an op that is recorded itself.

    Args:
        module: with its exports as attributes.
        declared: the function that declares it: `kernels.scale:_scale`.
        values: the values of that function's parameters.
    """

    def __init__(self, module: Any, declared: str, values: Mapping[str, object]) -> None:
        from kjit.runtime.used import to_json

        self._module = module
        self._head: dict[str, object] = {"kind": "export", "op": declared}
        try:
            self._head["values"] = {name: to_json(value) for name, value in values.items()}
        except TypeError as error:
            self._head["values"] = {"unknown": str(error)}

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        if not callable(function):
            return function
        site = _Site({**self._head, "export": name})

        @functools.wraps(function, assigned=(), updated=())
        def call(*args: Any) -> Any:
            if not _thread.is_in_op:
                (_recorder or recorder()).note(site, args, {}, _by_place)
            return function(*args)

        call.__dict__[_OPAQUE] = True
        setattr(self, name, call)
        return call


_thread = _Thread()


def _by_place(args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    assert not named  # exports have no keyword arguments
    return {str(index): value for index, value in enumerate(args)}


def recorder() -> Recorder:
    """The one recorder of this process.

    Raises:
        UsageError: as for `recorded`.
    """
    global _recorder
    if _recorder is None:
        with _making:
            if _recorder is None:
                _recorder = Recorder()
    return _recorder


class Recorder:
    """Writes calls to the folder of `KJIT_RECORD`, for all threads of a process.

    Raises:
        UsageError: the folder cannot be written, or another variable means nothing.
    """

    def __init__(self) -> None:
        self.folder = str(env.record_folder())
        self.every = env.record_every()
        self.limit = env.record_max_size()
        wanted = env.record_values()
        self._values_of_all = wanted == "all"
        self._values_of = frozenset() if wanted == "all" else frozenset(wanted)
        if wanted:
            _require_safetensors()
        self._lock = threading.RLock()
        self._writes = 0
        self._size = 0
        self._is_full = False
        self._last: mmap.mmap | None = None
        self._begin()

    def _begin(self) -> None:
        """Scan the folder, and choose names that no other process uses."""
        self._token = uuid.uuid4().hex[:12]
        self._process = os.getpid()
        self._last = None
        try:
            os.makedirs(self.folder, exist_ok=True)
            os.unlink(self._write("probe", b""))
        except OSError as error:
            raise kjit.UsageError(
                f"calls cannot be recorded in '{self.folder}': {error.strerror}.",
                hint=f"set {env.RECORD} to a writable folder",
            ) from None

    def renew(self) -> None:
        """In a forked child, choose new names and create a new lock."""
        self._lock = threading.RLock()
        self._token = uuid.uuid4().hex[:12]
        self._process = os.getpid()
        self._last = None

    def note(
        self,
        site: _Site,
        args: tuple[Any, ...],
        named: Mapping[str, Any],
        by_name: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]],
    ) -> None:
        """Record a call before it is made, unless a similar one was recorded. It raises nothing: a failed write ends
        the recording, with an error in the log; arguments that cannot be described, that of the function.

        Args:
            by_name: a function that combines positional and keyword arguments by name.
        """
        if self._is_full or site.is_strange:
            return
        with self._lock:
            number = site.count
            site.count = number + 1
            if self.every is not None and number % self.every:
                return
            try:
                looks = (len(args), *named, look((*args, *named.values())))
                name = site.seen.get(looks)
                if name is None or self.every is not None:
                    name = self._record(site.head, by_name(args, named))
                    if name is None:
                        return
                    site.seen[looks] = name
                self._tell_last(name)
            except OSError as error:
                self._is_full = True
                _log.error("no more calls are recorded in %s: %s. They are still made.", self.folder, error.strerror)
            except Exception as error:  # noqa: BLE001 - of an argument, whose classes may raise anything
                site.is_strange = True
                what = f"{type(error).__name__}: {error}"
                _log.error("no more calls of %s are recorded: %s. They are still made.", site.head["op"], what)

    def _record(self, head: Mapping[str, object], arguments: Mapping[str, object]) -> str | None:
        """Write a call, and return the name of its file; None if the limit is reached."""
        descriptions = Descriptions()
        described = {name: descriptions.describe(value) for name, value in arguments.items()}
        document: dict[str, object] = {
            "format": FORMAT,
            **head,
            "arguments": described,
            "memories": descriptions.sizes(),
            "captured": _is_capturing(),
            "simulated": (mode() or env.simulation()) is not None,
            "written_by": {
                "kjit": kjit.__version__,
                **_machine(descriptions.device()),
                "process": os.getpid(),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
        }
        stem = self._stem(head, described)
        if self.every is None and (there := self._find(stem)) is not None:
            return there
        left = self._space_left()
        content = to_bytes(document)
        suffix = JSON
        if self._wants_values(head):
            if document["captured"]:
                document["without_values"] = "a CUDA graph was being captured"
            elif descriptions.nbytes() > left:
                document["without_values"] = (
                    f"they have {descriptions.nbytes()} bytes, more than {env.RECORD_MAX_SIZE} leaves"
                )
            else:
                document["has_values"] = True
                content, suffix = descriptions.serialise(document), TENSORS
        if suffix == JSON:
            content = to_bytes(document)
        if len(content) > left:
            self._is_full = True
            _log.warning(
                "no more calls are recorded: %s holds the %d bytes that %s allows",
                self.folder,
                self.limit,
                env.RECORD_MAX_SIZE,
            )
            return None
        name = stem + suffix
        os.replace(self._write(name, content), f"{self.folder}/{name}")
        self._writes += 1
        self._size += len(content)
        return name

    def _wants_values(self, head: Mapping[str, object]) -> bool:
        module, _, path = str(head["op"]).partition(":")
        function = path.rpartition(".")[2]
        names = {function, function.lstrip("_"), module.rpartition(".")[2], head.get("export"), str(head["op"])}
        return self._values_of_all or bool(self._values_of & names)

    def _stem(self, head: Mapping[str, object], described: Mapping[str, object]) -> str:
        module, _, path = str(head["op"]).partition(":")
        readable = ".".join([module, path.rpartition(".")[2], *([str(head["export"])] if "export" in head else [])])
        words = "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in readable)[-_LONGEST_NAME:]
        digest = hashlib.sha256(to_bytes([dict(head), distinct(described)])).hexdigest()[:16]
        return f"{words}-{digest}" if self.every is None else f"{words}-{digest}-{self._token}-{self._writes}"

    def _find(self, stem: str) -> str | None:
        """The file of the same call from another process."""
        return next((stem + end for end in (TENSORS, JSON) if os.path.exists(f"{self.folder}/{stem}{end}")), None)

    def _space_left(self) -> int:
        if self._writes % _COUNTED_EVERY == 0:
            with os.scandir(self.folder) as found:
                self._size = sum(each.stat().st_size for each in found if each.name.endswith((JSON, TENSORS)))
        return self.limit - self._size

    def _write(self, name: str, content: bytes) -> str:
        """Write a temporary file with a unique name, and return the name."""
        path = f"{self.folder}/.{self._token}-{name}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
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

    def _tell_last(self, name: str) -> None:
        """Write the name of a call into a memory-mapped file of this process, which survives a crash."""
        if self._last is None:
            path = f"{self.folder}/{LAST}{os.getpid()}-{self._token}{JSON}"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(handle, b" " * (_LAST_BYTES - 1) + b"\n")
                self._last = mmap.mmap(handle, _LAST_BYTES)
            finally:
                os.close(handle)
        # A name needs no escapes.
        self._last[: _LAST_BYTES - 1] = f'{{"process": {self._process}, "last": "{name}"}}'.encode().ljust(
            _LAST_BYTES - 1
        )


def _renew_in_child() -> None:
    global _making, _thread
    _making, _thread = threading.Lock(), _Thread()
    if _recorder is not None:
        _recorder.renew()


os.register_at_fork(after_in_child=_renew_in_child)


def _require_safetensors() -> None:
    import importlib.util

    for name in ("safetensors", "numpy"):
        if importlib.util.find_spec(name) is None:
            raise kjit.UsageError(
                f"{env.RECORD_VALUES} is set, and {name} is not installed, which writing values needs.",
                hint="pip install 'kjit[record]'",
            )


def _is_capturing() -> bool:
    cuda: Any = torch.cuda  # which is not typed throughout
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def _machine(device: torch.device | None) -> dict[str, object]:
    found: dict[str, object] = {"torch": torch.__version__}
    if device is not None and device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
        found["capability"] = list(torch.cuda.get_device_capability(device))
    return found
