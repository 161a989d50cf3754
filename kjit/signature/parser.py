"""The signature language: an op's inputs and outputs, read into a `Signature`.

    x: T[B, D], weight: T[D], bias: Optional T[D] = None, eps: float = 1e-6, fast: const bool = True -> out: T[B, D]

    signature := [parameter {"," parameter}] ["->" output {"," output}]
    parameter := NAME ":" type ["=" default]
    type      := ["Optional"] ("float" | "int" | "bool" | "str") | "const" ("int" | "bool") | STRING {"|" STRING}
               | ["mut"] ["Optional"] tensor ["strided"] | ["mut"] "list" "[" tensor "]"
    output    := NAME ":" tensor
    tensor    := dtype "[" [dimension {"," dimension}] "]"
    dtype     := a capital letter with or without a digit (a dtype variable) | a dtype's name
    dimension := "..." | term {("+" | "-") term}
    term      := (NAME | NUMBER) {"*" (NAME | NUMBER)} ["/" (NAME | NUMBER)]

All that `kjit new` writes comes from this one value, so the parser is strict, and an error points at the column. Python
reads the text (`tokens.py`); here is what its expressions mean. `scaffold/patterns.py` says what a pattern serves.
"""

from __future__ import annotations

import ast
import difflib
import keyword
import math
import re
import sys
from dataclasses import replace

from kjit.dtypes import DType, find_dtype, suggest_dtype
from kjit.signature.names import CPP_KEYWORDS, VARIABLE, parameter_problem
from kjit.signature.rules import check_rules
from kjit.signature.signature import (
    BY_HAND,
    ELLIPSIS,
    SIZES,
    TYPES,
    Dimension,
    Parameter,
    Scalar,
    ScalarKind,
    Signature,
    SignatureError,
    Tensor,
)
from kjit.signature.sizes import INT64, Size
from kjit.signature.tokens import Part, read_parts

_SCALARS: dict[str, ScalarKind] = {"float": "float", "int": "int", "bool": "bool", "str": "str"}
_DEFAULTS = {"float": "a number", "int": "a whole number", "bool": "True or False", "str": "a text in quotes"}


def parse_signature(text: str) -> Signature:
    """Read a signature.

    Raises:
        SignatureError: it is not valid; the message points at the character.
    """
    parameters, outputs = read_parts(text)
    signature = Signature(tuple(map(_parameter, parameters)), tuple(map(_output, outputs)), text)
    check_rules(signature)
    return signature


def _parameter(part: Part) -> Parameter:
    words, type_, name, written = part.words, part.type, part.name, part.written(part.type)
    is_mutable = words in (["mut"], ["mut", "Optional"]) and written not in _SCALARS
    is_constant = words == ["const"] and written in ("int", "bool")
    if words not in ([], ["Optional"]) and not is_mutable and not is_constant:
        hint = f"{name}: const int = 1, {name}: mut T[N] or {name}: Optional T[N] = None"
        raise part.error(part.column, f"'{' '.join(words)}' cannot stand before '{written}'.", hint)
    if isinstance(type_, ast.Subscript):
        return _tensor(part, type_)
    choice = None if words else _choice(part)
    if choice is not None:
        return choice
    if written not in _SCALARS:
        raise _no_type(part, type_)
    is_optional = _is_optional(part, f"{name}: Optional {written} = None")
    scalar = Scalar(name, _SCALARS[written], is_constant, None, part.column, is_optional)
    if is_optional or part.default is None:
        return scalar
    return replace(scalar, default=_default(part, part.default, scalar))


def _output(part: Part) -> Tensor:
    tensor = None if part.words or part.strided or part.default is not None else _parameter(part)
    if not isinstance(tensor, Tensor) or tensor.listed:
        reason = "an output is one contiguous tensor, with no word before its type and no default."
        hint = f"{part.name}: T[N]; what is changed in place is a mut parameter, before '->'"
        raise part.error(part.default or part.type, reason, hint)
    return tensor


def _tensor(part: Part, type_: ast.Subscript) -> Tensor:
    name, inside, listed = part.name, type_, part.written(type_.value) == "list"
    if listed:
        if not isinstance(type_.slice, ast.Subscript):
            hint = f"{name}: {'mut ' * ('mut' in part.words)}list[T[...]]"
            raise part.error(type_.slice, "a tensor in a list has a dtype and a shape.", hint)
        inside = type_.slice
    dtype = _dtype(part, inside)
    shape = _shape(part, inside, dtype)
    tensor = Tensor(name, dtype, shape, "mut" in part.words, False, part.column, part.strided, listed)
    if part.strided and (listed or ELLIPSIS in shape or not shape):
        reason = f"strides belong to the named dimensions of one tensor, and '{name}' has none."
        raise part.error(type_, reason, f"for example: {name}: T[N, D] strided")
    if listed and (part.default is not None or "Optional" in part.words):
        reason = "a list of tensors is a required argument, with at least one tensor."
        raise part.error(part.default or type_, reason, str(tensor))
    # A tensor that is changed in place is required: no pattern serves another.
    optional = _is_optional(part, str(replace(tensor, optional=not tensor.mutable)))
    if part.default is not None and not optional:
        reason = f"the default of a tensor can only be None, not {part.written(part.default)}."
        raise part.error(part.default, reason, f"{tensor} without a default")
    return replace(tensor, optional=optional)


def _is_optional(part: Part, hint: str) -> bool:
    """Whether a parameter may be None, which both its type and its default have to say."""
    optional = "Optional" in part.words
    is_none = isinstance(part.default, ast.Constant) and part.default.value is None
    if optional != is_none:
        reason = "is Optional, and its default is not None" if optional else "has the default None, and is not Optional"
        raise part.error(part.default or part.column, f"'{part.name}' {reason}.", hint)
    return optional


def _dtype(part: Part, tensor: ast.Subscript) -> DType | str:
    written = part.written(tensor.value)
    found = find_dtype(written)
    if written in ("float", "int"):
        shape = part.written(tensor)[len(written) :]
        hint = f"{part.name}: {found}{shape} for a tensor, {part.name}: {written} for a number"
        raise part.error(tensor, f"the size of '{written}' elements is unspecified.", hint)
    if found is None and not VARIABLE.fullmatch(written):
        raise _no_type(part, tensor.value)
    return found or written


def _default(part: Part, node: ast.expr, scalar: Scalar) -> float | int | bool | str:
    kind, written = scalar.kind, part.written(node)
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = None
    # A bool is an int of Python.
    if type(value).__name__ != kind and not (kind == "float" and type(value) is int):
        reason = f"the default of '{part.name}' is {_DEFAULTS[kind]}, and {written} is not."
        raise part.error(node, reason, f"{scalar} without a default: a caller may pass it")
    if kind == "int" and value not in INT64:
        raise part.error(node, f"{value} does not fit in 64 bits.", "the largest is 9223372036854775807")
    if kind == "float":
        value = float("".join(written.split()))
        if math.isinf(value):
            raise part.error(node, f"{written} is too large for a float.", f"the largest is {sys.float_info.max!r}")
        if abs(value) < sys.float_info.min and re.search("[1-9]", written.lower().partition("e")[0]):
            reason = f"{written} is too close to 0: PyTorch cannot read it as a default."
            raise part.error(node, reason, f"{scalar} = 0.0, or {sys.float_info.min!r}, the closest that it reads")
    assert isinstance(value, (float, int, str))
    return value


def _choice(part: Part) -> Scalar | None:
    """A choice, or None for another type."""
    nodes = [node for _, node in _operands(part.type, ast.BitOr)]
    words = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if len(words) < len(nodes):
        return None
    for number, (word, node) in enumerate(zip(words, nodes, strict=True)):
        reason = "is the only choice" if len(words) == 1 else "is repeated" if word in words[:number] else ""
        if not re.fullmatch(r"(?!.*__)[a-z][a-z0-9_]*", word) or keyword.iskeyword(word) or word in CPP_KEYWORDS:
            reason = "is not a valid choice: lower case letters, digits and underscores, and no keyword"
        if reason:
            raise part.error(node, f"'{word}' {reason}.", f'for example: {part.name}: "sum" | "mean" = "sum"')
    choice = Scalar(part.name, "choice", True, None, part.column, choices=tuple(words))
    if part.default is None:
        return choice
    default = part.default.value if isinstance(part.default, ast.Constant) else None
    if default not in words:
        reason = f"the default {part.written(part.default)} is not one of the choices."
        raise part.error(part.default, reason, str(replace(choice, default=words[0])))
    return replace(choice, default=str(default))


def _no_type(part: Part, node: ast.expr) -> SignatureError:
    """The error about something that is not the type of a parameter, or the dtype of a tensor."""
    name, written = part.name, part.written(node)
    word = written.split(".")[-1].partition("[")[0].lower()
    near = difflib.get_close_matches(word, [*_SCALARS, "list"], n=1)
    reason = f"'{written}' is not a type."
    hint = f"did you mean {name}: {near[0].replace('list', 'list[T[N]]')}?" if near else TYPES
    if find_dtype(written) is not None or VARIABLE.fullmatch(written):
        reason = f"'{written}' is the dtype of a tensor: expected '[' and a shape after it."
        hint = f"{name}: {written}[...], of any shape; a number is a float, an int or a bool"
    elif word in ("tensor", "ndarray", "array"):
        reason, hint = f"'{written}' has no dtype.", f"{name}: T[...], where T stands for any dtype"
    elif re.search(r"\b(Optional|None)\b", written):
        hint = f"{name}: Optional T[N] = None or {name}: Optional float = None"
    elif node is not part.type:
        reason = f"'{written}' is neither a dtype nor a dtype variable (a capital letter such as T)."
        hint = hint if near == ["list"] else f"{suggest_dtype(written)} (for others, {BY_HAND})"
    return part.error(node, reason, hint)


def _shape(part: Part, tensor: ast.Subscript, dtype: DType | str) -> tuple[Dimension, ...]:
    dimensions: list[Dimension] = []
    nbytes = dtype.bytes if isinstance(dtype, DType) else 1
    for node in tensor.slice.elts if isinstance(tensor.slice, ast.Tuple) else [tensor.slice]:
        dimension = _dimension(part, node)
        if dimension == ELLIPSIS and ELLIPSIS in dimensions:
            raise part.error(node, "'...' appears twice in one shape.", "for example: T[..., D]")
        nbytes *= dimension if isinstance(dimension, int) else 1
        if nbytes not in INT64:
            reason = f"a tensor of these sizes has {nbytes} bytes or more, and {INT64[-1]} are the most."
            raise part.error(node, reason, f"leave a dimension open, by a name: {dtype}[N]")
        dimensions.append(dimension)
    return tuple(dimensions)


def _operands(node: ast.expr, *operators: type[ast.operator]) -> list[tuple[ast.operator | None, ast.expr]]:
    """The operands of `a + b - c`, each with the operator before it."""
    found: list[tuple[ast.operator | None, ast.expr]] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, operators):
        found.insert(0, (node.op, node.right))
        node = node.left
    return [(None, node), *found]


def _dimension(part: Part, node: ast.expr) -> Dimension:
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return ELLIPSIS
    terms = [(isinstance(sign, ast.Sub), _term(part, each)) for sign, each in _operands(node, ast.Add, ast.Sub)]
    plus = sum(-term if is_less else term for is_less, term in terms if isinstance(term, int))
    named = [term for _, term in terms if not isinstance(term, int)]
    if not named:
        if not 0 < plus < 2**63:
            raise _no_size(part, node)
        return plus
    # Of two terms with names, one is a single name, and is added.
    first, *others = sorted(named, key=lambda term: isinstance(term, str))
    is_negative = any(is_less and not isinstance(term, int) for is_less, term in terms)
    if is_negative or len(others) > 1 or any(not isinstance(term, str) for term in others):
        raise _no_size(part, node)
    whole = Size((first,)) if isinstance(first, str) else first
    return replace(whole, more="".join(map(str, others)), plus=plus) if others or plus else first


def _term(part: Part, node: ast.expr) -> Dimension:
    """A product, or a quotient."""
    divisor: int | str = 1
    rest = node
    if isinstance(rest, ast.BinOp) and isinstance(rest.op, (ast.Div, ast.FloorDiv)):
        divisor = _factor(part, rest.right)
        rest = rest.left
    factors = [_factor(part, each) for _, each in _operands(rest, ast.Mult)]
    names = tuple(factor for factor in factors if isinstance(factor, str))
    number = math.prod(factor for factor in factors if isinstance(factor, int))
    is_whole = names or (isinstance(divisor, int) and number % divisor == 0)
    if len(names) > 2 or number >= 2**63 or not is_whole:
        raise _no_size(part, node)
    if isinstance(divisor, int):
        common = math.gcd(number, divisor)
        number, divisor = number // common, divisor // common
    if not names:
        return number
    return names[0] if (len(names), number, divisor) == (1, 1, 1) else Size(names, number, divisor)


def _factor(part: Part, node: ast.expr) -> int | str:
    """A number or a name."""
    if isinstance(node, ast.Name):
        problem = parameter_problem(node.id, dimension=True)
        if problem is not None:
            raise part.error(node, *problem)
        return node.id
    if not isinstance(node, ast.Constant) or type(node.value) is not int or not 0 < node.value < 2**63:
        raise _no_size(part, node)
    return node.value


def _no_size(part: Part, node: ast.expr) -> SignatureError:
    """The error about something that is not a size, or none that fits in 64 bits."""
    rule = "whole numbers from 1 to 2**63 - 1 and up to two names, multiplied, with one exact division at the end, plus"
    return part.error(node, f"'{part.written(node)}' is not a size: {rule} a name or a number.", SIZES)
