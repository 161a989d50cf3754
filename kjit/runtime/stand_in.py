"""A stand-in for torch, to read the declarations of wrappers without importing torch, which takes a second.

Declarations need the names of dtypes and, for annotations, `torch.Tensor`; wrappers of `kjit new` use nothing else of
torch when they are imported. The stand-in has these. If anything else is used, or a package is imported that is neither
the project's nor Python's, the stand-in is not enough: the result is discarded, and the wrappers are imported with the
real torch. Nothing is kept from one process to the next, so no answer can be out of date. No module of the project
stays imported, as they refer to the stand-in.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

from kjit import spec

T = TypeVar("T")

_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}


def torch_stub() -> StandIn | None:
    """The stand-in, if it is in torch's place."""
    torch = sys.modules.get("torch")
    return torch if isinstance(torch, StandIn) else None


def without_torch(root: Path, ask: Callable[[], T], is_whole: Callable[[T], bool]) -> T:
    """The answer of `ask`, which imports modules below `root`: without torch if they can be imported without it.

    Otherwise `ask` is called again, and imports them with the real torch, whose errors are those to report. That is
    also done if torch is imported already, or is not installed.

    Args:
        is_whole: whether an answer without torch can be taken for the one with it, as no import failed.
    """
    if "torch" not in sys.modules and (real := importlib.util.find_spec("torch")) is not None:
        stand_in = StandIn(real)
        with contextlib.suppress(Exception, NotEnough), _in_place(stand_in, root.resolve()):
            answer = ask()
            if stand_in.is_enough and is_whole(answer):
                return answer
    return ask()


class NotEnough(BaseException):
    """Code used something that the stand-in lacks. Not an Exception, so that wrappers do not catch it."""


class StandIn(ModuleType):
    """The stand-in for torch: `torch.Tensor`, `torch.dtype` and the dtypes that kjit knows.

    Args:
        real: the spec of the real torch.

    Attributes:
        is_enough: whether nothing else was used.
        ops: the ops that were defined, by name, and the function of each.
        refuse: called with the name of something that needs the real torch.
    """

    def __init__(self, real: importlib.machinery.ModuleSpec) -> None:
        super().__init__("torch")
        self.__spec__ = real
        self.__file__ = real.origin
        self.is_enough = True
        self.ops: dict[str, str] = {}

        def refuse(name: str) -> NoReturn:
            self.is_enough = False
            raise NotEnough(name)

        class Meta(type):
            def __getattr__(cls, name: str) -> Any:
                if name.startswith("__"):  # used by `typing`
                    raise AttributeError(name)
                refuse(f"{cls.__name__}.{name}")

        class Tensor(metaclass=Meta):
            def __new__(cls, *_: object, **__: object) -> Any:
                refuse(cls.__name__)

            def __init_subclass__(cls) -> None:
                refuse(cls.__name__)

        class dtype:  # noqa: N801 (as in torch)
            def __init__(self, name: str) -> None:
                self._name = name

            def __repr__(self) -> str:
                return f"torch.{self._name}"

            def __reduce__(self) -> str:  # so that a copy is the same object
                return self._name

            def __getattr__(self, name: str) -> Any:
                if name.startswith("__"):
                    raise AttributeError(name)
                refuse(f"{self}.{name}")

        self.refuse = refuse
        for kind in (Tensor, dtype):
            kind.__module__, kind.__qualname__ = "torch", kind.__name__
            setattr(self, kind.__name__, kind)
        for name in spec.CPP_DTYPES:
            setattr(self, name, dtype(name))
        for alias, name in _ALIASES.items():
            setattr(self, alias, getattr(self, name))

    def __getattr__(self, name: str) -> Any:
        if name == "__warningregistry__":  # used by Python itself
            raise AttributeError(name)
        self.refuse(name)


class _Finder:
    """Finds modules as Python does, and refuses those that are neither the project's, kjit's nor Python's."""

    def __init__(self, stand_in: StandIn, root: Path) -> None:
        self.found: list[str] = []
        self._stand_in = stand_in
        self._root = root

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in (*sys.stdlib_module_names, "kjit"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or not self._is_of_project(spec):
            self._stand_in.refuse(name)
        self.found.append(name)
        return spec

    def _is_of_project(self, spec: importlib.machinery.ModuleSpec) -> bool:
        """Whether it is a Python file or folder of the project: an extension cannot be loaded twice."""
        places = [Path(place).resolve() for place in (spec.submodule_search_locations or [spec.origin or ""])]
        # An environment may be in the project's folder.
        installed = {"site-packages", "dist-packages"}
        are_here = all(place.is_relative_to(self._root) and installed.isdisjoint(place.parts) for place in places)
        return are_here and (spec.origin is None or spec.origin.endswith(".py"))


@contextlib.contextmanager
def _in_place(stand_in: StandIn, root: Path) -> Iterator[None]:
    """Replace torch by the stand-in while modules below `root` are imported; both are removed afterwards."""
    finder = _Finder(stand_in, root)
    sys.modules["torch"] = stand_in
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        del sys.modules["torch"]
        holders = [
            name for name, module in sys.modules.items() if getattr(module, "__dict__", {}).get("torch") is stand_in
        ]
        for name in (*finder.found, *holders):
            sys.modules.pop(name, None)
            # `from package import module` looks there first.
            package, _, child = name.rpartition(".")
            if package in sys.modules:
                vars(sys.modules[package]).pop(child, None)
        spec.forget_dtypes()
