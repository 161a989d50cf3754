"""A module in parts; only those are compiled that the selected tests call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Export = tuple[str, str]


class InParts:
    """Calls as of one module with all exports; each part is compiled when one of its functions is first asked for.

    Args:
        load: compiles and loads a module with these exports.
        daily: the names of the exports of the first part; the second has the others.
    """

    def __init__(
        self, load: Callable[[Sequence[Export]], Any], exports: Iterable[Export], daily: Iterable[str]
    ) -> None:
        self._load = load
        chosen = set(daily)
        parts: list[list[Export]] = [[], []]
        for export in exports:
            parts[export[0] not in chosen].append(export)
        self._parts = parts
        self._modules: dict[int, Any] = {}

    def __getitem__(self, name: str) -> Any:
        (number,) = (number for number, part in enumerate(self._parts) if name in dict(part))
        if number not in self._modules:
            self._modules[number] = self._load(self._parts[number])
        return self._modules[number][name]

    def __getattr__(self, name: str) -> Any:
        return self[name]
