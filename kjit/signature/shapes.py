"""Shapes of a signature: `[B, 2*D]`, read from its tokens."""

from __future__ import annotations

import math
from dataclasses import replace

from kjit.dtypes import find_dtype
from kjit.signature.hints import CHECK_BY_HAND, computed_dimension
from kjit.signature.names import parameter_problem
from kjit.signature.signature import ELLIPSIS, Dimension
from kjit.signature.sizes import INT64, Size
from kjit.signature.tokens import Reader


def read_shape(reader: Reader) -> tuple[Dimension, ...]:
    """Read a shape, brackets included.

    Raises:
        SignatureError: it is not a shape, or too large for any memory.
    """
    dtype = reader.tokens[reader.next - 1].text
    reader.take()  # the bracket
    dimensions: list[Dimension] = []
    while reader.token.kind != "]":
        column = reader.token.column
        dimensions.append(_dimension(reader, dimensions))
        _check_size(reader, dtype, dimensions, column)
        if not reader.takes(","):
            break
    token, after = reader.token, reader.tokens[min(reader.next + 1, len(reader.tokens) - 1)]
    is_next = token.kind in ("name", "number", "ellipsis") and token.text != "strided"
    is_fixed = token.kind in (":", "=") and after.kind == "number"
    if token.kind in "+-*/" or is_fixed or (is_next and dimensions and reader.is_glued()):
        raise reader.error(token, *computed_dimension(reader.text, token.column))
    written = f"{dtype}[{', '.join([*map(str, dimensions), *([token.text] if is_next else [])])}]"
    if is_next:
        written = f"separate dimensions with ','{f': {written}' if after.kind == ']' else ''}"
    reader.expect("]", "',' or ']' after a dimension", written)
    return tuple(dimensions)


def _check_size(reader: Reader, dtype: str, dimensions: list[Dimension], column: int) -> None:
    """Refuse sizes whose bytes do not fit in 64 bits."""
    known = find_dtype(dtype)
    nbytes = math.prod((d for d in dimensions if isinstance(d, int)), start=1 if known is None else known.bytes)
    if nbytes not in INT64:
        names = (f"N{number or ''}" for number in range(len(dimensions) + 1))
        shown = [*map(str, dimensions[:-1]), next(name for name in names if name not in dimensions)]
        raise reader.error(
            column,
            f"a tensor of these sizes has {nbytes} bytes or more, and 9223372036854775807 are the most.",
            f"leave a dimension open: {dtype}[{', '.join(shown)}]",
        )


def _dimension(reader: Reader, before: list[Dimension]) -> Dimension:
    if reader.token.kind in ("name", "number"):
        return _size(reader)
    token = reader.take()
    if token.kind == "ellipsis":
        if ELLIPSIS in before:
            raise reader.error(token, "'...' appears twice in one shape.", "for example: T[..., D]")
        return ELLIPSIS
    if token.kind in (":", "-", "+", "*", "/"):
        raise reader.error(token, *computed_dimension(reader.text, token.column))
    raise reader.error(
        token,
        f"expected a dimension (a name, a number or '...'), found '{token.text}'."
        if token.kind != "end"
        else "expected a dimension or ']', found the end.",
        "for example: T[B, D], T[N, 8] or T[...]",
    )


def _size(reader: Reader) -> Dimension:
    """A dimension other than `...`."""
    column = reader.token.column
    terms = [(1, _term(reader))]
    while reader.token.kind in ("+", "-"):
        sign = 1 if reader.take().kind == "+" else -1
        terms.append((sign, _term(reader)))
    plus = sum(sign * term for sign, term in terms if isinstance(term, int))
    named = [(sign, term) for sign, term in terms if not isinstance(term, int)]
    if not named:
        if not 0 < plus < 2**63:
            raise reader.error(
                column,
                f"a dimension is an integer of at least 1 that fits in 64 bits, not {plus}.",
                "for example: T[N, 8]",
            )
        return plus
    # Of two terms with names, one is a single name, and is added.
    first, *others = sorted((term for _, term in named), key=lambda term: isinstance(term, str))
    if any(sign < 0 for sign, _ in named) or len(others) > 1 or any(not isinstance(term, str) for term in others):
        raise reader.error(
            column,
            "a size is a product or quotient, plus at most one name and a number.",
            f"for example 2*D, D/128, H*D, A+B or N+1; give this one a name of its own, and {CHECK_BY_HAND}",
        )
    more = str(others[0]) if others else ""
    if isinstance(first, str):
        return Size((first,), more=more, plus=plus) if more or plus else first
    return replace(first, more=more, plus=plus)


def _term(reader: Reader) -> Dimension:
    """A product, or a quotient."""
    column, factor, names = reader.token.column, 1, list[str]()
    while True:
        factor, name = _factor(reader, factor)
        names += [name] if name else []
        if not reader.takes("*"):
            break
    divisor: int | str = 1
    if reader.takes("/"):
        if reader.token.text == "0":
            raise reader.error(reader.token, "a size is divided by 0.", "for example: D/128")
        number, name = _factor(reader, 1)
        divisor = name or number
        if reader.token.kind in ("*", "/"):
            raise reader.error(reader.token, "a size has one division, at its end.", "for example: T[N, 2*D/128]")
    if not names:
        if isinstance(divisor, str) or factor % divisor:
            raise reader.error(column, f"{factor} is not divisible by {divisor}.", "T[N, 8]")
        return factor // divisor
    if len(names) > 2:
        raise reader.error(
            column,
            f"a size is a product of at most two names, and this has {len(names)}.",
            f"give it a name of its own, and {CHECK_BY_HAND}",
        )
    if isinstance(divisor, int):
        common = math.gcd(factor, divisor)
        factor, divisor = factor // common, divisor // common
    return names[0] if (len(names), factor, divisor) == (1, 1, 1) else Size(tuple(names), factor, divisor)


def _factor(reader: Reader, product: int) -> tuple[int, str]:
    """The product with the next number, or the next name."""
    token = reader.take()
    if token.kind == "number":
        if not token.text.isdecimal() or not 0 < product * int(token.text) < 2**63:
            whole = f"{product} * " if product > 1 and token.text != "0" else ""
            raise reader.error(
                token,
                f"a dimension is an integer of at least 1 that fits in 64 bits, not {whole}{token.text}.",
                "for example: T[N, 8]",
            )
        return product * int(token.text), ""
    if token.kind == "name":
        problem = parameter_problem(token.text, dimension=True)
        if problem is not None:
            raise reader.error(token, *problem)
        return product, token.text
    raise reader.error(token, *computed_dimension(reader.text, token.column))
