"""Signatures of ops as values: tensors, numbers and outputs, and the error that points into the text of one.

`str()` of a value writes it in the signature language, which `parser.py` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from kjit.dtypes import DType
from kjit.errors import UsageError
from kjit.signature.sizes import Size

ELLIPSIS = "..."
"""The dimension that stands for any number of dimensions."""

BY_HAND = 'see "Adding a kernel by hand", docs/adding-a-kernel.md'
FORM = 'for example: x: T[N], alpha: float = 2.0 -> out: T[N]; see "The signature", docs/commands.md'
SIZES = f"for example N, 8, ..., 2*D, H*D, D/128, A+B or N+1; others get a name and are checked by hand: {BY_HAND}"
TYPES = f"the types are T[N] (a tensor), list[T[N]], float, int, bool, str, const int, const bool; for others {BY_HAND}"
"""Hints: for what no scaffold serves, for what is no signature, for what is no size, for what is no type."""

ScalarKind = Literal["float", "int", "bool", "str", "choice"]
Dimension = str | int | Size


class SignatureError(UsageError):
    """A signature that cannot be read or served: the `reason`, its `text`, and the `column` of the caret, from 0."""

    def __init__(self, reason: str, *, text: str, column: int, hint: str) -> None:
        # On one line, so that the caret is below its column.
        line = re.sub(r"\s", " ", text)
        super().__init__(f"{reason}\n    {line}\n    {' ' * column}^", hint=hint)
        self.reason, self.text, self.column = reason, text, column


@dataclass(frozen=True)
class Tensor:
    """A tensor parameter or an output.

    `dtype` is fixed, or the name of a dtype variable; `listed` is a list of at least one such tensor. All dimensions
    but the last of a `strided` one may have any stride, and so may a single one. `column` is its position in the text.
    """

    name: str
    dtype: DType | str
    shape: tuple[Dimension, ...]
    mutable: bool = False
    optional: bool = False
    column: int = field(default=0, compare=False, repr=False)
    strided: bool = False
    listed: bool = False

    @property
    def plain(self) -> str:
        """Dtype and shape: `T[B, D]`."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def type(self) -> str:
        """The type in a signature: `T[B, D] strided`, `list[T[N]]`."""
        return f"list[{self.plain}]" if self.listed else f"{self.plain}{' strided' if self.strided else ''}"

    def __str__(self) -> str:
        words = ("mut " if self.mutable else "") + ("Optional " if self.optional else "")
        return f"{self.name}: {words}{self.type}{' = None' if self.optional else ''}"


@dataclass(frozen=True)
class Scalar:
    """A number, a bool, a text or a choice, passed at run time or (`constant`) as a template argument.

    `default` is None if there is none, and for `optional` ones, which may be None. `choices` are the words
    of a choice, which is always `constant`.
    """

    name: str
    kind: ScalarKind
    constant: bool = False
    default: float | int | bool | str | None = None
    column: int = field(default=0, compare=False, repr=False)
    optional: bool = False
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "choice":
            default = "" if self.default is None else f' = "{self.default}"'
            choices = " | ".join(f'"{word}"' for word in self.choices)
            return f"{self.name}: {choices}{default}"
        shown = f'"{self.default}"' if self.kind == "str" else repr(self.default)
        default = " = None" if self.optional else "" if self.default is None else f" = {shown}"
        words = "Optional " if self.optional else "const " if self.constant else ""
        return f"{self.name}: {words}{self.kind}{default}"


Parameter = Tensor | Scalar


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of an op. `parse_signature` reads `str()` of one as an equal value."""

    parameters: tuple[Parameter, ...]
    outputs: tuple[Tensor, ...]
    text: str = field(default="", compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensor parameters."""
        return tuple(parameter for parameter in self.parameters if isinstance(parameter, Tensor))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor parameters, then the outputs."""
        return self.inputs + self.outputs

    @property
    def mutated(self) -> tuple[Tensor, ...]:
        """The tensor parameters that are changed in place."""
        return tuple(tensor for tensor in self.inputs if tensor.mutable)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars that are passed at run time."""
        return tuple(p for p in self.parameters if isinstance(p, Scalar) and not p.constant)

    @property
    def constants(self) -> tuple[Scalar, ...]:
        """The scalars that are template arguments."""
        return tuple(p for p in self.parameters if isinstance(p, Scalar) and p.constant)

    @property
    def variables(self) -> tuple[str, ...]:
        """The dtype variables, in order of appearance."""
        return tuple(dict.fromkeys(t.dtype for t in self.tensors if isinstance(t.dtype, str)))

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The named dimensions, in order of appearance."""
        constants = {constant.name for constant in self.constants}
        names = (word for tensor in self.tensors for d in tensor.shape for word in words_of(d))
        return tuple(name for name in dict.fromkeys(names) if name not in constants)

    @property
    def required(self) -> tuple[Tensor, ...]:
        """The required tensor parameters; lists of tensors last."""
        return tuple(sorted((tensor for tensor in self.inputs if not tensor.optional), key=lambda each: each.listed))

    def places(self, tensors: Iterable[Tensor] | None = None) -> dict[str, tuple[Tensor, int]]:
        """The tensor and the position that determine each named dimension: a dimension with that name alone, or one
        that can be solved for it. By default among the required inputs."""
        tensors = self.required if tensors is None else tensors
        of = [(tensor, at, dimension) for tensor in tensors for at, dimension in enumerate(tensor.shape)]
        constants = {constant.name for constant in self.constants}
        places: dict[str, tuple[Tensor, int]] = {}
        known = -1
        while known != len(places):
            known = len(places)
            for tensor, at, dimension in sorted(of, key=lambda each: isinstance(each[2], Size)):
                unknown = [word for word in words_of(dimension) if word not in places and word not in constants]
                if len(unknown) == 1:
                    places[unknown[0]] = (tensor, at)
        return places

    @property
    def sized(self) -> tuple[Tensor, ...]:
        """The tensors with a computed size."""
        return tuple(tensor for tensor in self.tensors if any(isinstance(d, Size) for d in tensor.shape))

    @property
    def names(self) -> frozenset[str]:
        """The names of parameters, outputs and dimensions."""
        return frozenset((*(parameter.name for parameter in (*self.parameters, *self.outputs)), *self.dimensions))

    def error(self, at: Parameter, reason: str, hint: str) -> SignatureError:
        """An error about one of its parameters, at which it points."""
        text = self.text or str(self)
        return SignatureError(reason, text=text, column=min(at.column, len(text)), hint=hint)

    def __str__(self) -> str:
        left = ", ".join(str(parameter) for parameter in self.parameters)
        return left + (" -> " + ", ".join(str(output) for output in self.outputs) if self.outputs else "")


def words_of(dimension: Dimension) -> tuple[str, ...]:
    """The names in a dimension."""
    if isinstance(dimension, Size):
        return dimension.words
    return (dimension,) if isinstance(dimension, str) and dimension != ELLIPSIS else ()
