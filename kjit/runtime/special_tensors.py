"""Calls of registered ops with special tensors: without data (fake, on the meta device), or lazily transformed.

A tensor may be the conjugate or the negative of its memory (`x.conj()`, `x.H`, the imaginary part of a conjugate), or a
zero tensor, which has no memory. The kernel gets a materialised copy of such a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kjit
from kjit.runtime.op_call import OpLayout, each_tensor

if TYPE_CHECKING:
    import torch


def fake_outputs(layout: OpLayout, outputs: Callable[..., object] | None, given: dict[str, Any]) -> Any:
    """The op's outputs, allocated without running the kernel.

    Args:
        given: the arguments by name; others have their defaults.

    Raises:
        KjitError: as for `require_data`.
    """
    given = {p.name: p.default for p in layout.inputs if p.default is not p.empty} | given
    if outputs is None:
        return require_data(layout, given)
    by_name = [each.partition("=")[0] for each in layout.allocation if "=" in each]
    in_order = [name for name in layout.allocation if "=" not in name]
    new = outputs(*(given[name] for name in in_order), **{name: given[name] for name in by_name})
    outs = new if isinstance(new, tuple) else (new,)
    require_data(layout, given | dict(zip(layout.outputs, outs, strict=True)))
    return new


def require_data(layout: OpLayout, given: dict[str, Any]) -> None:
    """Raise a `KjitError` if an op would have to write to real memory from a tensor without data.

    PyTorch runs the fake implementation if any tensor is on the meta device, and tensors with data would stay
    unchanged. Fake tensors report the device that they represent.
    """
    tensors = {name: given[name] for name in layout.with_tensors if name in given}
    empty = next((name for name, tensor in each_tensor(tensors) if tensor.is_meta), None)
    if empty is None:
        return
    written = {name: tensors[name] for name in (*layout.mutated, *layout.outputs) if name in tensors}
    for name, tensor in each_tensor(written):
        if not tensor.is_meta:
            raise kjit.KjitError(
                f"op '{layout.op}' cannot write to '{name}', which is on {tensor.device}: '{empty}' is on the meta"
                " device and has no data.",
                hint="give tensors that are all on one device",
            )


def materialised(layout: OpLayout, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an op, with a copy of each tensor whose memory differs from its values.

    Raises:
        KjitError: a written tensor has no memory.
    """

    def physical(name: str, tensor: torch.Tensor, is_written: bool) -> torch.Tensor:
        if tensor._is_zerotensor():
            if is_written:
                raise kjit.KjitError(
                    f"op '{layout.op}' cannot write to '{name}', which is a zero tensor and has no memory.",
                    hint=f"pass {name}.clone()",
                )
            tensor = tensor.clone()
        return tensor.resolve_conj().resolve_neg()

    found = dict(given)
    for name in layout.with_tensors:
        tensors = {name: given.get(name)}
        is_written = name in layout.mutated or name in layout.outputs
        each = [physical(called, tensor, is_written) for called, tensor in each_tensor(tensors)]
        if name in layout.lists:
            found[name] = each
        elif each:
            (found[name],) = each
    return found
