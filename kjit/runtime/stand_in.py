"""A stand-in for torch: reads what wrappers declare without the second that importing torch takes.

To say what would be built takes the names of dtypes and, for annotations, `torch.Tensor`; a wrapper that `kjit new`
writes asks torch for no more while it is imported. So these are there in place of torch (`torch_stand_in`), and who
asks for anything else, or imports a package that is neither the project's nor Python's, is told that it is not enough:
what came of it is to be thrown away, and the wrappers are to be imported with the real torch. Nothing of the project
stays imported, for it holds what the stand-in gave.
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


class NotEnough(BaseException):
    """Code asked for more than the stand-in has. No `except Exception` of a wrapper's catches it."""


class StandIn(ModuleType):
    """In place of torch: `torch.Tensor`, `torch.dtype` and the dtypes that kjit knows.

    Attributes:
        is_enough: nobody asked for anything else.
        is_kjit_stand_in: by this it is known (`native.is_stood_in`).
        refuse: says that what it is given the name of takes the real torch.
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
                if name.startswith("__"):  # as `typing` asks
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
        if name in ("__file__", "__warningregistry__"):  # as Python itself asks
            raise AttributeError(name)
        self.refuse(name)


class _Finder:
    """Finds modules as Python does, and refuses those that are neither the project's, kjit's nor Python's own."""

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
        """Whether it is Python code of the project, or a folder with some: an extension cannot be loaded twice."""
        places = [Path(place).resolve() for place in (spec.submodule_search_locations or [spec.origin or ""])]
        # An environment may lie in the project's folder.
        installed = {"site-packages", "dist-packages"}
        are_here = all(place.is_relative_to(self._root) and installed.isdisjoint(place.parts) for place in places)
        return are_here and (spec.origin is None or spec.origin.endswith(".py"))


@contextlib.contextmanager
def torch_stand_in(root: Path) -> Iterator[StandIn | None]:
    """Put the stand-in in place of torch while modules below `root` are imported; afterwards neither is there.

    Gives None, and does nothing, where torch is imported already, or cannot be.
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
