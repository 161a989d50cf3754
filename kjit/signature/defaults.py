"""Default values of numbers and texts, and the words of choices, read from the tokens of a signature."""

from __future__ import annotations

import keyword
import math
import re
import sys

from kjit.signature.names import CPP_KEYWORDS
from kjit.signature.signature import ScalarKind
from kjit.signature.sizes import INT64
from kjit.signature.tokens import Reader, Token


def read_default(reader: Reader, name: Token, kind: ScalarKind, *, constant: bool) -> float | int | bool | str:
    start = reader.token
    declared = f"{name.text}: {'const ' if constant else ''}{kind}"
    if start.text == "None":
        raise reader.error(
            start,
            f"'{name.text}' is required: its default cannot be None.",
            f"{declared} without a default, or {name.text}: Optional {kind} = None"
            if not constant
            else f"{declared} without a default",
        )
    if kind == "str":
        token = reader.expect("string", "a text in quotes", f'{declared} = "text"')
        text = token.text[1:-1]
        if not (text.isascii() and text.isprintable()) or any(mark in text for mark in "\"'\\"):
            raise reader.error(
                token,
                "a default text has plain ASCII letters, without quotes and backslashes.",
                f"{declared} without a default: a caller may pass it",
            )
        return text
    if kind == "bool":
        token = reader.take()
        if token.text not in ("True", "False"):
            hint = "True" if token.text.lower() in ("true", "1", "yes", "on") else "False"
            raise reader.error(
                start, f"expected True or False, found {token.text or 'the end'}.", f"{declared} = {hint}"
            )
        return token.text == "True"
    sign = "-" if reader.takes("-") else ""
    if not sign:
        reader.takes("+")
    what = "a whole number" if kind == "int" else "a number"
    if reader.token.text.lower() in ("inf", "infinity", "nan") or reader.token.text in ("True", "False"):
        is_bool = reader.token.text in ("True", "False")
        raise reader.error(
            reader.token,
            f"expected {what}, found '{reader.token.text}'.",
            f"{name.text}: {'const ' if constant else ''}bool = {reader.token.text}"
            if is_bool
            else f"{declared} without a default: a caller may pass it",
        )
    example = f"{declared} = {'1' if kind == 'int' else '1e-6'}"
    number = reader.expect("number", what, example)
    if kind == "float":
        value = float(sign + number.text)
        if math.isinf(value):
            raise reader.error(start, f"{number.text} is too large for a float.", example)
        is_zero = not re.search("[1-9]", number.text.lower().partition("e")[0])
        if abs(value) < sys.float_info.min and not is_zero:
            least = f"{sign}{sys.float_info.min!r}"
            raise reader.error(
                start,
                f"{sign}{number.text} is too close to 0: PyTorch cannot read it as a default.",
                f"{declared} = 0.0, or {least}, the closest that it reads",
            )
        return value
    if not number.text.isdecimal():
        value = float(sign + number.text)
        # The nearest float to 2**63 is that itself, which does not fit.
        whole = [f"{declared} = {int(value)}"] if abs(value) < 2**63 else []
        real = [f"{name.text}: float = {value!r}"] if math.isfinite(value) else []
        raise reader.error(
            start, f"expected {what}, found {sign}{number.text}.", ", or ".join([*whole, *real]) or example
        )
    integer = int(sign + number.text)
    if integer not in INT64:
        raise reader.error(start, f"{integer} does not fit in 64 bits.", "the largest is 9223372036854775807")
    return integer


def read_choice(reader: Reader) -> str:
    token = reader.take()
    word = token.text[1:-1]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word) or "__" in word or word in CPP_KEYWORDS or keyword.iskeyword(word):
        plain = re.sub(r"\W+", "_", word).strip("_").lower()
        raise reader.error(
            token,
            f"{token.text} is not a valid choice: it becomes an enumerator in C++.",
            f'lower case letters, digits and underscores, and no keyword: "{plain or "sum"}_"',
        )
    return word
