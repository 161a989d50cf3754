"""Arguments of calls: described as JSON, with their tensors' positions in memory, and made again from that.

Described is what a kernel sees: dtypes, shapes, strides, devices, and positions in memory: the storage, which a tensor
may share with others of the call, and the offset from an aligned address. Values that were not recorded are generated:
random floats (positive for tensors named as a scale), and counting integers below the number of rows of all tensors and
the other numbers of the call, so that they are valid as indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from kjit.dtypes import find_dtype
from kjit.errors import KjitError
from kjit.runtime.call_files import DEEPEST, METADATA, Call, to_bytes, values_of

_ALIGNMENT = 256
_CHECKED_ALIGNMENT = 16  # of vectors in kernels


def look(values: Iterable[Any], depth: int = 0) -> tuple[object, ...]:
    """The properties of arguments that distinguish calls. Every call waits for this."""
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
            looks += (type(value), look(value, depth + 1) if depth < DEEPEST else len(value))
        elif isinstance(value, float):
            looks.append(float)
        elif isinstance(value, (bool, int, str)) or value is None:
            looks += (type(value), value)
        else:
            looks.append(repr(value))
    if len(set(addresses)) < len(addresses):  # some have the same address
        looks.append(tuple(map(addresses.index, addresses)))
    return tuple(looks)


def distinct(described: Any) -> Any:
    """A description without properties that may differ between calls that count as the same."""
    if isinstance(described, dict):
        if "tensor" in described:
            tensor = described["tensor"]
            kept = {name: tensor[name] for name in ("dtype", "shape", "strides", "memory")}
            return kept | {"device": tensor["device"].partition(":")[0], "place": tensor["offset"] % _CHECKED_ALIGNMENT}
        return {name: distinct(each) for name, each in described.items() if name != "float"}
    if isinstance(described, list):
        return [*map(distinct, described)]
    return "float" if isinstance(described, float) else described


class Descriptions:
    """Descriptions of the tensors of a call, with their positions in storages."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self._described: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}

    def describe(self, value: Any, depth: int = 0) -> object:
        """An argument as JSON."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            is_finite = value - value == 0
            return float(value) if is_finite else {"float": repr(float(value))}
        if isinstance(value, torch.Tensor):
            return self._describe_tensor(value)
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            if depth == DEEPEST:
                return {"unknown": "lists that are nested too deeply"}
            return {kind: [self.describe(each, depth + 1) for each in value]}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if hasattr(value, "__index__"):
            return int(value)
        return {"unknown": f"{type(value).__module__}.{type(value).__qualname__}"}

    def _describe_tensor(self, tensor: torch.Tensor) -> dict[str, object]:
        if not _is_plain(tensor):
            return {"unknown": f"a tensor of layout {tensor.layout}"}
        address = _address(tensor)
        storage = tensor.untyped_storage().data_ptr() if address else -len(self._tensors) - 1
        described: dict[str, Any] = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": [*map(int, tensor.shape)],
            "strides": [*map(int, tensor.stride())],
            "device": str(tensor.device),
            "memory": self._numbers.setdefault(storage, len(self._numbers)),
            "offset": address,  # an address; `sizes` turns it into an offset
        }
        self._tensors.append(tensor)
        self._described.append(described)
        return {"tensor": described}

    def sizes(self) -> list[int]:
        """The bytes of each storage; offsets become bytes from its beginning, which is aligned to `_ALIGNMENT`."""
        begins = dict.fromkeys(range(len(self._numbers)), -1)
        for each in self._described:
            begin = each["offset"] // _ALIGNMENT * _ALIGNMENT
            before = begins[each["memory"]]
            begins[each["memory"]] = begin if before < 0 else min(before, begin)
        sizes = [0] * len(begins)
        for tensor, each in zip(self._tensors, self._described, strict=True):
            each["offset"] -= begins[each["memory"]]
            reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            span = 0 if tensor.numel() == 0 else (int(reach) + 1) * tensor.element_size()
            sizes[each["memory"]] = max(sizes[each["memory"]], each["offset"] + span)
        return sizes

    def device(self) -> torch.device | None:
        """The device of the first tensor."""
        return self._tensors[0].device if self._tensors else None

    def nbytes(self) -> int:
        """The bytes of the values of all tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors)

    def serialise(self, document: dict[str, object]) -> bytes:
        """A safetensors file of the values, in the order of the arguments: `0`, `1` and so on."""
        from safetensors.torch import save

        for number, each in enumerate(self._described):
            each["values"] = str(number)
        values = {str(number): _plain_copy(tensor) for number, tensor in enumerate(self._tensors)}
        return save(values, metadata={METADATA: to_bytes(document).decode()})


class NewArguments:
    """New arguments for a call."""

    def __init__(self, call: Call, place: Callable[[str], str], seed: int | None) -> None:
        self._call = call
        self._place = place
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        self._pieces: dict[int, torch.Tensor] = {}
        self._values = values_of(call) if call.document.get("has_values") and seed is not None else None
        described = [each for _, each in call.tensors()]
        rows = [each["shape"][0] for each in described if len(each["shape"]) > 1 and "float" in each["dtype"]]
        numbers = [value for value in call.document["arguments"].values() if type(value) is int and value > 1]
        self._bound = max(min([*rows, *numbers], default=2**31 - 1), 1)

    def arguments(self) -> dict[str, Any]:
        return {name: self._make(name, value) for name, value in self._call.document["arguments"].items()}

    def _make(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, inside),) = value.items()
        if kind == "tensor":
            return self._tensor(name, inside)
        if kind in ("list", "tuple"):
            made = [self._make(name, each) for each in inside]
            return made if kind == "list" else tuple(made)
        if kind == "float":
            return float(inside)
        if kind == "dtype":
            return self._dtype(inside)
        raise KjitError(f"argument '{name}' of {self._call.op} could not be recorded: {inside}.")

    def _dtype(self, name: str) -> torch.dtype:
        found = getattr(torch, name, None)
        if not isinstance(found, torch.dtype):
            raise KjitError(f"{self._call.file.name} has tensors of {name}, which this torch does not have.")
        return found

    def _tensor(self, name: str, described: Mapping[str, Any]) -> torch.Tensor:
        dtype = self._dtype(described["dtype"])
        shape, strides, device = described["shape"], described["strides"], self._place(described["device"])
        if 0 in shape:
            return torch.empty_strided(shape, strides, dtype=dtype, device=device)
        span = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
        begin, nbytes = described["offset"], span * dtype.itemsize
        piece = self._piece(described["memory"], device)
        if begin + nbytes > piece.numel() or begin % dtype.itemsize:
            raise KjitError(f"{self._call.file} is damaged: '{name}' reaches past its memory.")
        tensor = piece[begin : begin + nbytes].view(dtype).as_strided(shape, strides)
        if self._generator is None:
            return tensor
        # Overlapping elements are written once.
        written = tensor
        for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
            if stride == 0 and size > 1:
                written = written.narrow(axis, 0, 1)
        written.copy_(self._content(name, described, dtype).expand(shape)[tuple(map(slice, written.shape))])
        return tensor

    def _piece(self, number: int, device: str) -> torch.Tensor:
        if number not in self._pieces:
            size = self._call.document["memories"][number]
            memory = torch.zeros(size + _ALIGNMENT, dtype=torch.uint8, device=device)
            begin = -memory.data_ptr() % _ALIGNMENT
            self._pieces[number] = memory[begin : begin + size]
        return self._pieces[number]

    def _content(self, name: str, described: Mapping[str, Any], dtype: torch.dtype) -> torch.Tensor:
        shape = described["shape"]
        if self._values is not None:
            values = self._values.get(described.get("values", ""))
            if values is None:
                raise KjitError(f"{self._call.file} is damaged: it has no values of '{name}'.")
            values = values.view(dtype).reshape(shape) if values.dtype == torch.uint8 else values
            if [*values.shape] != shape or values.dtype != dtype:
                raise KjitError(f"{self._call.file} is damaged: the values of '{name}' have another shape.")
            return values
        if dtype.is_complex:
            return torch.randn(shape, dtype=dtype, generator=self._generator)
        if dtype.is_floating_point:
            floats = torch.randn(shape, generator=self._generator)
            return (floats.abs() + 0.5 if "scale" in name else floats).to(dtype)
        if dtype in (torch.bool, torch.uint8, torch.int8):
            return torch.randint(0, 2 if dtype == torch.bool else 5, shape, generator=self._generator).to(dtype)
        count = torch.Size(shape).numel()
        return (torch.arange(count) % self._bound).reshape(shape).to(dtype)


def _address(tensor: torch.Tensor) -> int:
    """The address of a tensor; 0 for one without memory (of a transformation or a mode)."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a strided view of memory: not sparse and not nested."""
    return tensor.layout == torch.strided and not tensor.is_nested


def _plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy on the CPU (safetensors does not allow shared memory); as bytes if safetensors may not support
    the dtype."""
    # A view may be the conjugate of its memory. Kernels get the memory.
    copy = tensor.detach().to("cpu", copy=True).contiguous()
    if find_dtype(str(tensor.dtype)) is not None:  # all that PyTorch computes with, every safetensors knows
        return copy
    return copy.reshape(-1).view(torch.uint8)
