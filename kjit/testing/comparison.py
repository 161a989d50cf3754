"""The results of an op compared with those of a reference."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import torch

from kjit.runtime.op_call import each_tensor
from kjit.testing import Tolerances, UnwrittenError, tolerances
from kjit.testing.tensors import Inputs, map_tensors

if TYPE_CHECKING:
    from kjit.runtime.torch_op import TorchOp

Results = tuple[torch.Tensor, ...]


class Comparison:
    """A class that runs an op, and compares its results with those of a reference; made by `of`, or by a subclass.

    Attributes:
        tables: for an op that reads or writes rows by an index: the tensors with the rows.
        index: the index.
        tolerances: the allowed differences of results, by their dtype, in place of those of `kjit.testing.tolerances`
            for one rounding and sums as long as the sizes of an input that a result does not have.
    """

    op: ClassVar[TorchOp[..., Any]]
    reference: ClassVar[Callable[..., Any]]
    tables: ClassVar[Sequence[str]] = ()
    index: ClassVar[str | None] = None
    tolerances: ClassVar[Mapping[torch.dtype, Tolerances]] = {}

    # From the op's signature: names of tensors, and of lists of them.
    given: ClassVar[list[str]]
    lists: ClassVar[Sequence[str]] = ()
    optional: ClassVar[list[str]]
    outputs: ClassVar[list[str]]
    mutated: ClassVar[list[str]]
    # The other parameters that may be None.
    absent_numbers: ClassVar[list[str]]

    @staticmethod
    def of(op: TorchOp[..., Any], reference: Callable[..., Any]) -> type[Comparison]:
        """The comparison of an op with a reference, as in `OpTest`, but without inputs and tests."""
        found = cast("type[Comparison]", type("Comparing", (Comparison,), {}))
        found._compare(op, reference)
        return found

    @classmethod
    def _compare(cls, op: TorchOp[..., Any], reference: Callable[..., Any]) -> dict[str, str]:
        """Set the attributes for comparisons; the types of parameters that are not tensors, by name."""
        cls.op, cls.reference = cast("Any", staticmethod(op)), staticmethod(reference)
        arguments = arguments_of(op)
        tensors = {name: argument for name, argument in arguments.items() if "Tensor" in str(argument.type)}
        cls.outputs = [name for name, argument in tensors.items() if argument.kwarg_only]
        cls.given = [name for name in tensors if name not in cls.outputs]
        cls.lists = [name for name in cls.given if "List" in str(tensors[name].type)]
        cls.optional = [name for name in cls.given if "Optional" in str(tensors[name].type)]
        scalars = {name: str(argument.type) for name, argument in arguments.items() if name not in tensors}
        cls.absent_numbers = [name for name, kind in scalars.items() if kind.startswith("Optional")]
        cls.mutated = [name for name in cls.given if _is_written(tensors[name])]
        return scalars

    @classmethod
    def _scatters(cls) -> bool:
        """Whether rows of tables are written."""
        return set(cls.tables) <= set(cls.mutated)

    @classmethod
    def run(cls, inputs: Inputs) -> Results:
        """Call the op; its outputs, then the inputs changed in place."""
        returned = cls.op(**inputs)
        return cls._results(returned, inputs)

    @classmethod
    def _results(cls, returned: Any, inputs: Inputs) -> Results:
        return _flat((*(_as_tuple(returned) if cls.outputs else ()), *(inputs[name] for name in cls.mutated)))

    @classmethod
    def expect(cls, inputs: Inputs) -> Results:
        """The expected results of `run`, computed in the widest dtypes."""
        wide = {name: map_tensors(_wide, value) for name, value in inputs.items()}
        if cls.index and cls._scatters() and any(_is_float(value) for value in wide.values()):
            # Floats truncated to integers: `check` needs to know how close to the next integer they were.
            tables = [name for name in cls.tables if wide[name].dtype != torch.bool]
            wide |= {name: wide[name].double() for name in tables}
        try:
            return _flat(_as_tuple(cls.reference(**wide)))
        except UnwrittenError:
            pytest.skip("`reference` is not written yet: test_the_reference_is_written says where")

    @classmethod
    def check(cls, actual: Results, expected: Results, inputs: Inputs) -> None:
        """Compare results with those of `expect`, rounded to the same dtypes."""
        assert len(actual) == len(expected), f"the reference gives {len(expected)} results, and the op {len(actual)}"
        sources = dict(cls._given(inputs))
        for one_actual, one_expected in zip(actual, expected, strict=True):
            _check_one(one_actual, one_expected, cls.limits(one_actual, sources))

    @classmethod
    def limits(cls, result: torch.Tensor, sources: Mapping[str, torch.Tensor]) -> Tolerances:
        """The allowed difference of a result computed from `sources`; of integers, before they are truncated."""
        if result.dtype in cls.tolerances:
            return cls.tolerances[result.dtype]
        summed = [_reduced(tensor, result) for name, tensor in sources.items() if name not in cls.tables]
        dtype = result.dtype if result.is_floating_point() else torch.float32
        dtypes = (tensor.dtype for tensor in sources.values())
        return tolerances(dtype, *dtypes, length=max(summed, default=1))

    @classmethod
    def _given(cls, inputs: Inputs) -> Iterator[tuple[str, torch.Tensor]]:
        """The given tensors, including those in lists."""
        return each_tensor({name: inputs[name] for name in cls.given})


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def registered(op: Any) -> Any:
    """The overload that writes to all outputs and mutated inputs."""
    return getattr(op.op.overloadpacket, "out", op.op)


def arguments_of(op: Any) -> dict[str, Any]:
    """PyTorch's description of each parameter, by its name in Python."""
    return dict(zip(inspect.signature(op).parameters, registered(op)._schema.arguments, strict=True))


def is_fp8(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize == 1


def _as_tuple(returned: Any) -> Results:
    return returned if isinstance(returned, tuple) else (returned,)


def _flat(values: Sequence[Any]) -> Results:
    """The tensors in values, including those in lists."""
    return tuple(tensor for value in values for tensor in (value if isinstance(value, (list, tuple)) else [value]))


def _wide(value: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor as float64 or int64; bools are unchanged."""
    if value.dtype == torch.bool:
        return value
    dtype = torch.float64 if value.dtype.is_floating_point else torch.int64
    return value.to(dtype, copy=True)


def _reduced(source: torch.Tensor, result: torch.Tensor) -> int:
    """The product of the sizes of `source` that `result` does not have: the number of values that each is a sum of."""
    return math.prod((Counter(source.shape) - Counter(result.shape)).elements())


def _check_one(actual: torch.Tensor, expected: torch.Tensor, limits: Tolerances) -> None:
    """Compare one result with the expected one, computed in the widest dtypes."""
    if is_fp8(actual.dtype):
        # Values that are too large become the largest number in a kernel, and nan in PyTorch.
        info = torch.finfo(actual.dtype)
        expected = expected.float().clamp(info.min, info.max)
    if not actual.is_floating_point():
        if expected.is_floating_point():
            # When truncating close to an integer, both neighbours are right.
            margin = limits["atol"] + limits["rtol"] * expected.abs()
            low, high = ((expected + d).to(actual.dtype) for d in (-margin, margin))
            expected = torch.where(actual == low, low, actual.clamp(low, high))
        limits = {"rtol": 0.0, "atol": 0.0}
    actual, expected = actual.double(), expected.to(actual.dtype).double()
    # assert_close reports where they differ, but the imports of its first call take longer than most tests.
    if actual.shape != expected.shape or not torch.allclose(actual, expected, equal_nan=True, **limits):
        torch.testing.assert_close(actual, expected, equal_nan=True, **limits)
