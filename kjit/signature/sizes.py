"""Computed sizes: `2*D`, `H*D`, `D/128`, `A+B`, as immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Size:
    """`factor * names / divisor + more + plus`; the division has no remainder.

    Args:
        names: one or two, of dimensions or of `const int` parameters.
        divisor: a number, or the name of a `const int` parameter.
        more: a name that is added.
    """

    names: tuple[str, ...]
    factor: int = 1
    divisor: int | str = 1
    more: str = ""
    plus: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """All names in it."""
        return (*self.names, *([self.divisor] if isinstance(self.divisor, str) else []), *filter(None, [self.more]))

    def __str__(self) -> str:
        return self._text({}, "*", "/", "")

    def cpp(self, values: Mapping[str, str] | None = None) -> str:
        """The size in C++: with the symbols of a matcher, or with an expression for each name."""
        return self._text(values or {}, " * ", " / ", " ")

    def python(self, values: Mapping[str, str]) -> str:
        """The size in Python, with an expression for each name: an atom, or one in brackets.

        Impossible values are no error here: a matcher refuses them later, and names the argument.
        """
        return self._text({**values, **self._divisor_from_1(values)}, " * ", " // ", " ")

    def _divisor_from_1(self, values: Mapping[str, str]) -> dict[str, str]:
        """An expression for a divisor that is a name, unless its value is known."""
        if not isinstance(self.divisor, str):
            return {}
        divisor = values.get(self.divisor, self.divisor)
        return {self.divisor: divisor if divisor.isdecimal() else f"max({divisor}, 1)"}

    def _text(self, values: Mapping[str, str], times: str, by: str, space: str) -> str:
        text = times.join([*([str(self.factor)] if self.factor != 1 else []), *(values.get(n, n) for n in self.names)])
        if self.divisor != 1:
            text += f"{by}{values.get(str(self.divisor), self.divisor)}"
        if self.more:
            text += f"{space}+{space}{values.get(self.more, self.more)}"
        if self.plus:
            text += f"{space}{'+' if self.plus > 0 else '-'}{space}{abs(self.plus)}"
        return text

    def solved(self, name: str, whole: str, values: Mapping[str, str]) -> str:
        """The value of `name` in Python, where the size is `whole` and the other names are `values`.

        As in a matcher, it is 0 if every value would fit, as others are 0.
        """
        rest = f"{whole} + {-self.plus}" if self.plus < 0 else whole
        less = [str(self.plus)] if self.plus > 0 else []
        if name == self.more:
            others = Size(self.names, self.factor, self.divisor).python(values)
            return " - ".join([rest, *less, f"({others})" if " " in others else others])
        rest = " - ".join([rest, *less, *([values[self.more]] if self.more else [])])
        known = [*([str(self.factor)] if self.factor != 1 else []), *(values[n] for n in self.names if n != name)]
        if " " in rest and (self.divisor != 1 or known):
            rest = f"({rest})"
        if self.divisor != 1:
            rest = f"{rest} * {values.get(str(self.divisor), self.divisor)}"
        if known:
            product = " * ".join(known)
            rest = f"{rest} // {product if product.isdecimal() else f'max({product}, 1)'}"
        return rest
