"""Recorded calls (recording.py) made again, for `kjit.warm` and `kjit replay`.

A call is rebuilt from its description (call_arguments.py): its tensors have the same layout in memory, with the same
gaps, overlaps and alignment, on the same kind of device. Without a GPU, calls on a GPU are made in the simulator.

Files are only read (call_files.py). The module named in a file is imported only if it is a wrapper of the project or
its source defines that op (`used.refuse_foreign`), and the function is called only if it is an op, a declared module or
a function of `jit`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from kjit import env
from kjit.errors import KjitError
from kjit.project import Project, Raised, run_of_project
from kjit.runtime.call_arguments import NewArguments
from kjit.runtime.call_files import Call
from kjit.runtime.declared import is_declared
from kjit.runtime.load import JIT, simulated
from kjit.runtime.torch_op import GRADIENT
from kjit.runtime.used import refuse_foreign

if TYPE_CHECKING:
    import torch

REFUSALS = (KjitError, RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError)
"""Errors of a call with unsuitable arguments."""


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
        found: Any = self._import(module_name, path.partition(".")[0], call)
        for part in path.split("."):
            # A module's `__getattr__` may import.
            found = vars(found).get(part) if isinstance(found, ModuleType) else getattr(found, part, None)
        marks = vars(found) if callable(found) and hasattr(found, "__dict__") else {}
        is_kind = {"op": GRADIENT in marks, "export": is_declared(found), "jit": JIT in marks}
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
        return NewArguments(call, self._place, self.seed).arguments()

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
