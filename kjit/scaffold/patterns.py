"""Patterns: the signatures that each one serves, and the role of each tensor.

The language can express more than one pattern can implement. A signature is never changed to fit: it is served as it
stands, or refused with the reason, the parameter in question, and what to write instead or which pattern would do.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from kjit.errors import UsageError
from kjit.projects.op_names import camel, cpp_stem
from kjit.signature.names import free_name
from kjit.signature.signature import ELLIPSIS, Dimension, Signature, SignatureError, Tensor
from kjit.signature.sizes import Size

Kind = Literal["element", "halves", "column", "number", "table", "index", "whole"]
"""The role of a tensor: it has an element for each element of the main tensor, two of them in the halves of its
rows, one for each column, one for each row; it is a table of rows, or an index of them; or its role is not
known."""

Kinds = Mapping[str, Kind]
"""The role of every tensor of a signature, by name."""


@dataclass(frozen=True)
class Pattern:
    """A kind of kernel that can be scaffolded.

    Args:
        name: as in `--pattern`; that of its header and template, too.
        help: when to choose it.
        signature: the default for an op.
        place: the kind of every tensor; raises a `SignatureError` where the pattern cannot serve the signature.
        manner: how an op works, for its docstring.
        sums: whether it reduces rows.
        is_library: its kernels are in kjit's headers, for all devices; an op has only the math.
    """

    name: str
    help: str
    signature: str
    place: Callable[[Signature, str], Kinds]
    manner: str = "element by element"
    sums: bool = False
    is_library: bool = False


@dataclass(frozen=True)
class Placed:
    """A signature in a pattern that serves it.

    Args:
        signature: of the op.
        kinds: the roles of its tensors.
        sums: whether the kernel reduces rows.
    """

    signature: Signature
    kinds: Kinds
    sums: bool

    def kind(self, tensor: Tensor) -> Kind:
        """The role of a tensor."""
        return self.kinds[tensor.name]

    def keeps_dim(self, tensor: Tensor) -> bool:
        """Whether a tensor with an element for each row has a last dimension of 1: `T[B, 1]`, for rows `T[B, D]`."""
        return self.kind(tensor) == "number" and len(tensor.shape) == len(self.main.shape)

    def inputs(self, *kinds: Kind) -> list[Tensor]:
        """The inputs with these roles."""
        return [tensor for tensor in self.signature.inputs if self.kind(tensor) in kinds]

    def replaceable(self, output: Tensor) -> list[Tensor]:
        """The inputs that `output` may be: each element is read before the one in its place is written."""
        return [
            tensor
            for tensor in self.inputs("element")
            if self.kind(output) == "element"
            and (tensor.dtype, tensor.shape) == (output.dtype, output.shape)
            and not (tensor.mutable or tensor.optional)
        ]

    @property
    def main(self) -> Tensor:
        """The tensor whose shape determines the amount of work, and all other shapes."""
        return next(t for t in self.signature.tensors if self.kind(t) == "element" and not t.optional)

    @property
    def index(self) -> Tensor | None:
        """The indices of the chosen rows."""
        return next(iter(self.inputs("index")), None)

    @property
    def row_rank(self) -> int:
        """The number of dimensions of a row; 0 if there are no rows, or rows of one element."""
        if self.index is not None:
            return len(self.main.shape) - len(self.index.shape)
        return int(self.sums or self.has_halves)

    @property
    def has_halves(self) -> bool:
        return "halves" in self.kinds.values()

    @property
    def leading(self) -> tuple[Dimension, ...]:
        """The dimensions of the main tensor before those of a row."""
        return self.main.shape[: len(self.main.shape) - self.row_rank]

    @property
    def row(self) -> tuple[Dimension, ...]:
        """The dimensions of a row."""
        return self.main.shape[len(self.leading) :]


def find_pattern(name: str) -> Pattern:
    """The pattern of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in PATTERNS:
        near = difflib.get_close_matches(name, list(PATTERNS), n=1)
        *others, last = PATTERNS
        raise UsageError(
            f"there is no pattern '{name}'; the patterns are {', '.join(others)} and {last}.",
            hint=f"did you mean {near[0]}?" if near else f"--pattern {CUSTOM_PATTERN}, with a kernel of your own",
        )
    return PATTERNS[name]


def check_signature(signature: Signature, pattern: Pattern, op: str) -> Placed:
    """The roles of a signature's tensors in a pattern.

    Raises:
        SignatureError: the pattern cannot serve it; the hint names a form or a pattern that would.
    """
    _check_names(signature, pattern, op)
    _check_parameters(signature, pattern)
    try:
        _check_plain(signature, pattern)
        return Placed(signature, pattern.place(signature, pattern.name), pattern.sums)
    except SignatureError as error:
        for other in PATTERNS.values():
            try:
                _check_plain(signature, other)
                other.place(signature, other.name)
            except SignatureError:
                continue
            hint = f"--pattern {other.name} serves this signature"
            if other.name == CUSTOM_PATTERN:  # it serves everything, and may not be what was meant
                hint = f"--pattern {other.name}, which serves any signature, with a kernel of your own"
                hint = f"{error.hint}; or {hint}" if error.hint else hint
            elif pattern.name != DEFAULT_PATTERN:  # it may not have been chosen
                hint += f"; or {error.hint}" if error.hint else ""
            raise SignatureError(error.reason, text=error.text, column=error.column, hint=hint) from error
        raise


def _check_names(signature: Signature, pattern: Pattern, op: str) -> None:
    """Refuse parameters and dimensions with a name that the code of an op has for something else."""
    made = dict.fromkeys([op] if pattern.is_library else [op, f"{cpp_stem(op)}_kernel"], op)
    if not pattern.is_library and pattern.name != CUSTOM_PATTERN:
        made |= {f"{tensor.name}_ptr": tensor.name for tensor in signature.tensors}
    made |= {f"{tensor.name}_count": tensor.name for tensor in signature.inputs if tensor.listed}
    made |= {f"{tensor.name}_strides": tensor.name for tensor in signature.inputs if tensor.strided}
    made |= {f"has_{scalar.name}": scalar.name for scalar in signature.scalars if scalar.optional}
    if pattern.name == "elementwise":
        made |= {f"{tensor.name}_{side}": tensor.name for tensor in signature.sized for side in ("left", "right")}
    for parameter in (*signature.parameters, *signature.outputs):
        if parameter.name in made:
            reason = f"'{parameter.name}' is a name that the code derives from '{made[parameter.name]}'."
            near = free_name(parameter.name, signature.names, suffix="_in")
            raise signature.error(parameter, reason, f"give one of them another name, such as {near}")
    for name in (*signature.dimensions, *signature.variables):
        if name in (camel(op), f"{camel(op)}Params"):
            reason = f"'{name}' is also a C++ name of op '{op}'."
            raise signature.error(signature.tensors[0], reason, "choose another name for the op, a longer one")


def _check_parameters(signature: Signature, pattern: Pattern) -> None:
    for t in signature.inputs:
        if t.optional and t.mutable and pattern.name != CUSTOM_PATTERN:
            reason = f"'{t.name}' is optional and changed in place, which pattern {pattern.name} does not serve."
            serves = f"--pattern {CUSTOM_PATTERN} serves it, with a kernel of your own"
            raise signature.error(t, reason, f"{serves}; or write {t.name}: mut {t.type}")
    for t in signature.tensors:
        if ELLIPSIS in t.shape[1:]:
            reason = f"'...' stands for the leading dimensions, and in '{t.name}' it follows another."
            free = next(name for name in "NSLPQ" if name not in (*signature.dimensions, *signature.variables))
            shape = tuple(free if d == ELLIPSIS else d for d in t.shape)
            flat = f"{t.name}.flatten({len(shape) - 1})" if t.shape[-1] == ELLIPSIS else "several as one"
            raise signature.error(t, reason, f"write {t.name}: {_typed(t, shape)}, and pass {flat}")
    for c in signature.constants:
        if c.kind == "int" and c.default is None:
            reason = f"'{c.name}' has no default, so that there is no value to build and test the op for."
            raise signature.error(c, reason, f"{c.name}: const int = 1")


def _typed(tensor: Tensor, shape: tuple[Dimension, ...]) -> str:
    """The type of a tensor in a signature, with another shape: `mut T[B, D]`."""
    return str(replace(tensor, shape=shape)).removeprefix(f"{tensor.name}: ")


def _check_plain(signature: Signature, pattern: Pattern) -> None:
    """Refuse types and sizes that only pattern custom serves."""
    if pattern.name == CUSTOM_PATTERN:
        return
    constants = {constant.name for constant in signature.constants}
    sizes, contiguous = "takes sizes that are names and numbers", "takes contiguous tensors"
    for t in signature.tensors:
        if t in signature.sized and not (pattern.name == "elementwise" and _is_halved(signature, t)):
            raise signature.error(t, f"pattern {pattern.name} {sizes}, and '{t.name}' is {t.type}.", "")
        if t.strided:
            hint = f"write {replace(t, strided=False)}"
            raise signature.error(t, f"pattern {pattern.name} {contiguous}, and '{t.name}' is strided.", hint)
        if t.listed:
            reason = f"pattern {pattern.name} takes one tensor for each parameter, and '{t.name}' is a list."
            raise signature.error(t, reason, "")
        if constants & set(map(str, t.shape)):
            reason = f"pattern {pattern.name} takes sizes that tensors have, and one of '{t.name}' is a parameter."
            raise signature.error(t, reason, "")
    for s in (*signature.scalars, *signature.constants):
        what = "is optional" if s.optional else {"choice": "is a choice", "str": "is a string"}.get(s.kind)
        if what is not None:
            reason = f"pattern {pattern.name} takes required numbers, and '{s.name}' {what}."
            raise signature.error(s, reason, "")


def _whole(signature: Signature) -> Tensor:
    """The first tensor without computed sizes, else the first of all."""
    tensors = (*signature.required, *signature.outputs)
    return next((tensor for tensor in tensors if tensor not in signature.sized), tensors[0])


def _is_halved(signature: Signature, tensor: Tensor) -> bool:
    """Whether an input has rows of twice the length: `x: T[N, 2*D]`, where others are `T[N, D]`."""
    *leading, last = _whole(signature).shape or (ELLIPSIS,)
    is_read = tensor in signature.inputs and not (tensor.mutable or tensor.optional)
    return is_read and isinstance(last, str) and tensor.shape == (*leading, Size((last,), 2))


def _place_elements(signature: Signature, pattern: str) -> Kinds:
    """All tensors have one shape, and an element of a result is computed from the elements at its place; if rows are
    twice as long, from the two at its place in the halves of the row."""
    first = _whole(signature)
    if not first.shape:
        raise signature.error(
            first,
            f"'{first.name}' has no dimension: there is one element only, and nothing to do in parallel.",
            f"write {first.dtype}[...] for tensors of any shape; a number is a parameter of type float or int",
        )
    kinds: dict[str, Kind] = {}
    for tensor in signature.tensors:
        is_halved = _is_halved(signature, tensor)
        kinds[tensor.name] = "halves" if is_halved else "element"
        if tensor.shape != first.shape and not is_halved:
            raise signature.error(
                tensor,
                f"pattern {pattern} works element by element on tensors of one shape: '{first.name}' is {first.type}"
                f" and '{tensor.name}' is {tensor.type}.",
                f"write {tensor.name}: {_typed(tensor, first.shape)}",
            )
    return kinds


def _place_rows(signature: Signature, pattern: str) -> Kinds:
    """Rows are the last dimension of the first input with the most dimensions. Others have the same shape, or an
    element for each column, or for each row."""
    main = max(signature.required, key=lambda tensor: len(tensor.shape))
    if len(main.shape) < 2 or main.shape[-1] == ELLIPSIS:
        last = next((d for d in reversed(main.shape) if d != ELLIPSIS), "D")
        raise signature.error(
            main,
            f"pattern {pattern} takes rows, which lie along the last dimension of a tensor with several, and"
            f" '{main.name}' is {main.type}.",
            f"write {main.name}: {_typed(main, (ELLIPSIS, last))} for any number of leading dimensions",
        )
    *leading, columns = main.shape
    shapes: dict[tuple[Dimension, ...], Kind] = {main.shape: "element", tuple(leading): "number", (columns,): "column"}
    shapes.setdefault((*leading, 1), "number")
    kinds: dict[str, Kind] = {}
    for tensor in signature.tensors:
        kind = shapes.get(tensor.shape)
        if tensor.shape == tuple(leading) == (columns,):
            raise signature.error(
                tensor,
                f"'{tensor.name}: {tensor.type}' may be a number for each row of '{main.name}' or for each column.",
                f"give the dimensions of '{main.name}' two names",
            )
        is_written = tensor.mutable or tensor in signature.outputs
        if kind is None or (kind == "column" and is_written):
            possible = [shape for shape, k in shapes.items() if k != "column" or not is_written]
            *first, last = [_typed(tensor, shape) for shape in possible if shape != (*leading, 1)]
            raise signature.error(
                tensor,
                f"pattern {pattern} takes tensors like '{main.name}', which is {main.type}, with an element for each of"
                f" its rows or, if they are read, for each of its columns; '{tensor.name}' is {tensor.type}.",
                f"write {tensor.name}: {', '.join(first)}{' or ' if first else ''}{last}",
            )
        if not isinstance(tensor.dtype, str) and tensor.dtype.kind == "bool" and tensor not in signature.outputs:
            raise signature.error(
                tensor,
                f"pattern {pattern} computes a mean over each row, and '{tensor.name}' has bools.",
                f"write {tensor.name}: {_typed(tensor, tensor.shape).replace('bool', 'uint8', 1)}",
            )
        kinds[tensor.name] = kind
    return kinds


def _indices(signature: Signature, pattern: str) -> list[Tensor]:
    """The inputs that may be an index, by their dtype; at least one."""
    found = [t for t in signature.inputs if not isinstance(t.dtype, str) and t.dtype.name in ("int32", "int64")]
    if not found:
        raise signature.error(
            signature.required[0],
            f"pattern {pattern} moves rows by an index, and no input is an int64 or int32 tensor.",
            f"for example: {find_pattern(pattern).signature}",
        )
    return found


def _may_choose(index: Tensor) -> bool:
    return bool(index.shape) and not (index.optional or index.mutable)


def _place_gather(signature: Signature, pattern: str) -> Kinds:
    """An index chooses rows of a table, and there is a result for each number in the index."""
    results = (*signature.outputs, *signature.mutated)
    numbers = _indices(signature, pattern)
    for index in filter(_may_choose, numbers):
        for result in results:
            row = result.shape[len(index.shape) :]
            tables = [
                tensor
                for tensor in signature.inputs
                if tensor.shape[:1] not in ((), (ELLIPSIS,), *((size,) for size in index.shape))
                and tensor.shape[1:] == row
                and not (tensor.optional or tensor.mutable)
                and tensor is not index
            ]
            if result.shape[: len(index.shape)] == index.shape and tables:
                return _placed_rows(signature, index, tables[0], f"pattern {pattern} makes a row")
    index = numbers[0]
    leads = ", ".join(map(str, index.shape)) or "N"
    raise signature.error(
        results[0],
        f"pattern {pattern} makes a row of '{results[0].name}' for each number in '{index.name}', which is"
        f" {index.type}, and a table to take the rows from is not found.",
        f"for example: src: T[M, D], {index.name}: {index.dtype}[{leads}] -> out: T[{leads}, D]",
    )


def _place_scatter(signature: Signature, pattern: str) -> Kinds:
    """An index chooses the rows of a table that are written."""
    numbers = _indices(signature, pattern)
    if signature.outputs:
        raise signature.error(
            signature.outputs[0],
            f"pattern {pattern} writes to rows of an existing table, and '{signature.outputs[0].name}' is new.",
            f"for example: {find_pattern(pattern).signature}",
        )
    for index in filter(_may_choose, numbers):
        for table in signature.mutated:
            if table.shape[:1] in ((), (ELLIPSIS,), *((size,) for size in index.shape)):
                continue
            others = (tensor for tensor in signature.inputs if tensor is not index and not tensor.optional)
            if any(tensor.shape == (*index.shape, *table.shape[1:]) for tensor in others):
                return _placed_in_tables(signature, pattern, index, table)
    index = numbers[0]
    leads = ", ".join(map(str, index.shape)) or "N"
    raise signature.error(
        index,
        f"pattern {pattern} takes a row for each number in '{index.name}', which is {index.type}, and a table that is"
        " changed in place, and they are not found.",
        f"for example: table: mut T[M, D], {index.name}: {index.dtype}[{leads}], x: T[{leads}, D]",
    )


def _placed_in_tables(signature: Signature, pattern: str, index: Tensor, table: Tensor) -> Kinds:
    if isinstance(table.shape[0], int):
        raise signature.error(
            table,
            f"pattern {pattern} takes tables of any length, and '{table.name}' has {table.shape[0]} rows.",
            f"write {table.name}: {_typed(table, ('M', *table.shape[1:]))}",
        )
    for tensor in signature.mutated:
        if tensor is not index and tensor.shape != table.shape:
            raise signature.error(
                tensor,
                f"pattern {pattern} writes to tables of one shape: '{table.name}' is {table.type} and '{tensor.name}'"
                f" is {tensor.type}.",
                f"write {tensor.name}: {_typed(tensor, table.shape)}",
            )
    return _placed_rows(signature, index, table, f"pattern {pattern} writes a row")


def _placed_rows(signature: Signature, index: Tensor, table: Tensor, does: str) -> Kinds:
    """The roles of tensors if `index` chooses rows of `table`; `does` begins the error about a tensor without
    one."""
    kinds: dict[str, Kind] = {}
    row = table.shape[1:]
    main = (*index.shape, *row)
    for tensor in signature.tensors:
        is_input = tensor in signature.inputs
        is_read = is_input and not tensor.mutable
        if tensor is index:
            kinds[tensor.name] = "index"
        elif is_input and (tensor.shape, tensor.mutable, tensor.optional) == (table.shape, table.mutable, False):
            kinds[tensor.name] = "table"
        elif tensor.shape == main:
            kinds[tensor.name] = "element"
        elif tensor.shape == index.shape == row:
            raise signature.error(
                tensor,
                f"'{tensor.name}: {tensor.type}' may be a number for each row that is moved or for each column.",
                f"give the dimensions of '{table.name}' other names than those of '{index.name}'",
            )
        elif tensor.shape == index.shape and is_read:
            kinds[tensor.name] = "number"
        elif row and tensor.shape == row and is_read:
            kinds[tensor.name] = "column"
        else:
            possible = dict.fromkeys((main, index.shape, row) if row and is_read else (main,))
            shapes = [_typed(tensor, shape) for shape in possible]
            raise signature.error(
                tensor,
                f"{does} {replace(table, shape=row).type} for each number in '{index.name}', which is {index.type};"
                f" '{tensor.name}' is {'' if is_read else 'written to and is '}{tensor.type}.",
                f"write {tensor.name}: {' or '.join(shapes)}",
            )
    return kinds


def _place_anything(signature: Signature, pattern: str) -> Kinds:
    """Any signature: the author's kernel gets whole tensors."""
    del pattern
    return dict.fromkeys((tensor.name for tensor in signature.tensors), "whole")


PATTERNS = {
    pattern.name: pattern
    for pattern in (
        Pattern(
            "elementwise",
            "each element independently",
            "x: T[...], alpha: float = 2.0 -> out: T[...]",
            _place_elements,
            is_library=True,
        ),
        Pattern(
            "rowwise",
            "reductions of rows, as in norms and softmax",
            "x: T[..., D], weight: T[D], eps: float = 1e-6 -> out: T[..., D]",
            _place_rows,
            "row by row",
            sums=True,
            is_library=True,
        ),
        Pattern(
            "gather",
            "rows read by an index",
            "src: T[M, D], index: int64[N] -> out: T[N, D]",
            _place_gather,
            "for the rows that an index chooses",
            is_library=True,
        ),
        Pattern(
            "scatter",
            "rows written by an index",
            "table: mut T[M, D], index: int64[N], x: T[N, D]",
            _place_scatter,
            "into the rows that an index chooses",
            is_library=True,
        ),
        Pattern(
            "custom",
            "any signature, with your own kernel",
            "x: T[M, K], w: T[K, N] -> out: T[M, N]",
            _place_anything,
            "",
        ),
        Pattern(
            "minimal",
            "a short kernel with its checks, configuration and launch",
            "x: T[...], alpha: float = 2.0 -> out: T[...]",
            _place_elements,
        ),
    )
}
DEFAULT_PATTERN = "elementwise"
CUSTOM_PATTERN = "custom"
