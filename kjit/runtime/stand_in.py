"""A stand-in for torch, to read the declarations of wrappers without importing torch, which takes a second.

Declarations need the names of dtypes and, for annotations, `torch.Tensor`; wrappers of `kjit new` use nothing else of
torch when they are imported. The stand-in has these. If anything else is used, or a package is imported that is neither
the project's nor Python's, the stand-in is not enough: the result has to be discarded, and the wrappers have to be
imported with the real torch. No module of the project stays imported, as they refer to the stand-in.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from kjit import spec


def is_stood_in() -> bool:
    """Whether torch is the stand-in."""
    return getattr(sys.modules.get("torch"), "is_kjit_stand_in", False) is True


class NotEnough(BaseException):
    """Code used something that the stand-in lacks. Not an Exception, so that wrappers do not catch it."""


class StandIn(ModuleType):
    """The stand-in for torch: `torch.Tensor`, `torch.dtype` and the dtypes that kjit knows.

    Attributes:
        is_enough: whether nothing else was used.
        is_kjit_stand_in: its mark (`is_stood_in`).
        refuse: called with the name of something that needs the real torch.
    """

    def __init__(self) -> None:
        super().__init__("torch")
        self.is_enough = True
        self.is_kjit_stand_in = True

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

            def __getattr__(self, name: str) -> Any:
                if name.startswith("__"):
                    raise AttributeError(name)
                refuse(f"{self}.{name}")

        self.refuse = refuse
        self.Tensor = Tensor
        self.dtype = dtype
        for name in spec.CPP_DTYPES:
            setattr(self, name, dtype(name))

    def __getattr__(self, name: str) -> Any:
        if name in ("__file__", "__warningregistry__"):  # used by Python itself
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
def torch_stand_in(root: Path) -> Iterator[StandIn | None]:
    """Replace torch by the stand-in while modules below `root` are imported; both are removed afterwards.

    Yields None, and does nothing, if torch is already imported, or is not installed.
    """
    if "torch" in sys.modules or importlib.util.find_spec("torch") is None:
        yield None
        return
    stand_in = StandIn()
    finder = _Finder(stand_in, root.resolve())
    sys.modules["torch"] = stand_in
    sys.meta_path.insert(0, finder)
    try:
        yield stand_in
    finally:
        sys.meta_path.remove(finder)
        holders = [
            name for name, module in sys.modules.items() if getattr(module, "__dict__", {}).get("torch") is stand_in
        ]
        for name in ("torch", *finder.found, *holders):
            sys.modules.pop(name, None)
        spec.forget_dtypes()
