"""Tensors among the arguments of a call: looked up, replaced, and copied to other places in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

Inputs = dict[str, Any]
"""The arguments of a call, by name."""


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """A function applied to a tensor, or to each tensor of a list; other values are unchanged."""
    if isinstance(value, (list, tuple)):
        return [map_tensors(function, each) for each in value]
    return function(value) if isinstance(value, torch.Tensor) else value


def _place(name: str) -> tuple[str, int | None]:
    """The argument of the tensor `name`, and its index if that is a list."""
    argument, _, index = name.removesuffix("]").partition("[")
    return argument, int(index) if index else None


def get_tensor(inputs: Inputs, name: str) -> torch.Tensor:
    argument, index = _place(name)
    return cast("torch.Tensor", inputs[argument] if index is None else inputs[argument][index])


def change_tensor(inputs: Inputs, name: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace a tensor by the result of a function of it."""
    argument, index = _place(name)
    changed = function(get_tensor(inputs, name))
    if index is None:
        inputs[argument] = changed
    else:
        inputs[argument] = list(inputs[argument])
        inputs[argument][index] = changed


def shifted(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """A copy that begins `offset` elements after an aligned address."""
    size = tensor.numel() + offset
    memory = torch.empty(size, dtype=tensor.dtype, device=tensor.device)
    return memory[offset:].view(tensor.shape).copy_(tensor)


_GUARD = 256
"""The bytes beside a guarded tensor on each side; tensors stay aligned."""


def guarded(tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], bool]]:
    """A copy between bytes of which another function says whether they are unchanged."""
    nbytes = tensor.numel() * tensor.itemsize
    memory = torch.randint(0, 256, (nbytes + 2 * _GUARD,), dtype=torch.uint8, device=tensor.device)
    before = memory.clone()
    copy = memory[_GUARD : _GUARD + nbytes].view(tensor.dtype).view(tensor.shape)
    copy.copy_(tensor)

    def is_intact() -> bool:
        return all(torch.equal(memory[part], before[part]) for part in (slice(_GUARD), slice(_GUARD + nbytes, None)))

    return copy, is_intact


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is a slice of a larger tensor, such as the heads of one projection."""
    memory = tensor.new_zeros([*tensor.shape[:-1], 2, tensor.shape[-1]])
    view = memory[..., 1, :] if tensor.dim() > 1 else tensor.new_zeros([*tensor.shape, 2])[..., 0]
    return view.copy_(tensor)


def all_alike(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of that shape whose rows all share the memory of its first."""
    return tensor[:1].expand_as(tensor)
