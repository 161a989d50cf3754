"""A module in two parts, so that a day's tests compile only one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Export = tuple[str, str]


class InParts:
    """Calls as of one module with all exports; each part is compiled when one of its functions is first asked for.

    Args:
        load: compiles and loads a module with these exports.
        nightly: the names of the exports of the second part.
    """

    def __init__(
        self, load: Callable[[Sequence[Export]], Any], exports: Iterable[Export], nightly: Iterable[str]
    ) -> None:
        self._load = load
        self._exports = list(exports)
        self._nightly = set(nightly)
        self._modules: dict[bool, Any] = {}

    def __getitem__(self, name: str) -> Any:
        part = name in self._nightly
        if part not in self._modules:
            self._modules[part] = self._load([each for each in self._exports if (each[0] in self._nightly) == part])
        return self._modules[part][name]

    def __getattr__(self, name: str) -> Any:
        return self[name]
