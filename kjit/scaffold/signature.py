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

Everything that `kjit new` writes (checks, wrapper, schema, test, byte count) comes from this one value, so the parser
is strict: what it accepts is meaningful. It is written by hand, because its whole point is the error: the column where
reading stopped, what was expected there, and the nearest form that would have been right. Values in, values out: which
signatures a pattern can serve is the pattern's business (`patterns.py`).
"""

from __future__ import annotations

import difflib
import keyword
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kjit.errors import UsageError
from kjit.scaffold.dtypes import BY_HAND, DTYPES, DType, find_dtype, suggest_dtype
from kjit.scaffold.hints import (
    BRACKETS,
    EXAMPLE,
    NUMBER,
    Advice,
    computed_dimension,
    decimal,
    is_in_shape,
    listed_type,
    no_dtype,
    no_type,
    sized,
    strange_character,
)
from kjit.scaffold.names import CPP_KEYWORDS, free_name, parameter_problem
from kjit.scaffold.sizes import Size

ELLIPSIS = "..."
"""The dimension that stands for any number of dimensions."""

ScalarKind = Literal["float", "int", "bool", "str", "choice"]
Dimension = str | int | Size

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<arrow>->)"
    r"|(?P<broken>-\s+>|[=~]>|--+>)"
    r"|(?P<ellipsis>\.\.\.)"
    r"|(?P<based>0[xXoObB]\w*)"
    rf"|(?P<number>{NUMBER})"
    r"|(?P<name>(?:torch\.)?[^\W\d]\w*)"
    r"|(?P<operator>//|[*/])"
    r"|(?P<string>'[^']*'|\"[^\"]*\")"
    r"|(?P<or>\|)"
    r"|(?P<mark>[:,=\[\]+-])"
)
_VARIABLE = re.compile(r"[A-Z][0-9]?")
_SCALARS: dict[str, ScalarKind] = {"float": "float", "int": "int", "bool": "bool", "str": "str"}
# What may follow a name without its `:`.
_UNTYPED = re.compile(
    rf"(?:(?P<type>float|int|bool)\b(?!\s*\[))?(?:\s*=\s*(?P<value>[+-]?{NUMBER}|True|False)(?=\s*(?:,|->|$)))?"
)
_INT64 = range(-(2**63), 2**63)

CHECK_BY_HAND = "check it in the kernel's run()"
"""What is left to do for what a size cannot say."""

_LONGEST_NUMBER = 400
"""In characters, of which the largest float has 309."""

MAX_ARGUMENTS = 64
"""How many arguments an op of PyTorch can have. Its outputs count, as a caller may pass them."""


class SignatureError(UsageError):
    """A signature that cannot be read or served.

    Attributes:
        reason: the sentence, without the excerpt.
        text: the signature.
        column: where in it the caret points, from 0.
    """

    def __init__(self, reason: str, *, text: str, column: int, hint: str) -> None:
        # One line however the text came in, so that the caret stands where it should.
        line = re.sub(r"\s", " ", text)
        super().__init__(f"{reason}\n    {line}\n    {' ' * column}^", hint=hint)
        self.reason = reason
        self.text = text
        self.column = column


@dataclass(frozen=True)
class Tensor:
    """A tensor parameter or an output.

    Args:
        name: of the parameter.
        dtype: a fixed dtype, or the name of a dtype variable.
        shape: a name, a number, what follows from names, or `...` for each dimension.
        mutable: changed in place.
        optional: may be None.
        strided: all dimensions but the last may have any stride; the only one of a tensor, too.
        column: where it stands in the text; no part of the value.
        listed: a list of such tensors, one at least.
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
        """As in a signature: `T[B, D] strided`, `list[T[N]]`."""
        return f"list[{self.plain}]" if self.listed else f"{self.plain}{' strided' if self.strided else ''}"

    def __str__(self) -> str:
        words = ("mut " if self.mutable else "") + ("Optional " if self.optional else "")
        return f"{self.name}: {words}{self.type}{' = None' if self.optional else ''}"


@dataclass(frozen=True)
class Scalar:
    """A number, a bool, a text or a choice, passed at run time or (`constant`) as a template argument.

    `default` is None where there is none; what is `optional` may be None and has that default. `choices` are the words
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
    """What an op takes and gives. `str()` writes it in the language; `parse_signature` reads that as an equal value."""

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
        """What is passed at run time beside tensors."""
        return tuple(p for p in self.parameters if isinstance(p, Scalar) and not p.constant)

    @property
    def constants(self) -> tuple[Scalar, ...]:
        """What is passed as a template argument."""
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
    def always(self) -> tuple[Tensor, ...]:
        """The tensor parameters that are always there; lists of tensors last."""
        return tuple(sorted((tensor for tensor in self.inputs if not tensor.optional), key=lambda each: each.listed))

    def places(self, tensors: Iterable[Tensor] | None = None) -> dict[str, tuple[Tensor, int]]:
        """The tensor, and its dimension, that says how large each named dimension is: one that has the name alone, or
        from which it can be solved. By default among the inputs that are always there."""
        tensors = list(self.always if tensors is None else tensors)
        constants = {constant.name for constant in self.constants}
        places: dict[str, tuple[Tensor, int]] = {}
        for tensor in tensors:
            for at, dimension in enumerate(tensor.shape):
                if isinstance(dimension, str) and dimension not in (ELLIPSIS, *constants):
                    places.setdefault(dimension, (tensor, at))
        known = -1
        while known != len(places):
            known = len(places)
            for tensor in tensors:
                for at, dimension in enumerate(tensor.shape):
                    unknown = [word for word in words_of(dimension) if word not in places and word not in constants]
                    if len(unknown) == 1:
                        places[unknown[0]] = (tensor, at)
        return places

    @property
    def sized(self) -> tuple[Tensor, ...]:
        """The tensors with a size that follows from others."""
        return tuple(tensor for tensor in self.tensors if any(isinstance(d, Size) for d in tensor.shape))

    @property
    def names(self) -> frozenset[str]:
        """The names of parameters, outputs and dimensions."""
        return frozenset((*(parameter.name for parameter in (*self.parameters, *self.outputs)), *self.dimensions))

    def error(self, at: Parameter, reason: str, hint: str) -> SignatureError:
        """The error that says why this signature will not do, pointing at one of its parameters."""
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


def parse_signature(text: str) -> Signature:
    """Read a signature.

    Raises:
        SignatureError: it is not one; the message points at the character.
    """
    signature = _Parser(text).signature()
    _check(signature)
    return signature


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._scan()
        self.next = 0

    def error(self, reason: str, *, column: int, hint: str) -> SignatureError:
        return SignatureError(reason, text=self.text, column=column, hint=hint)

    def advise(self, advice: Advice, column: int) -> SignatureError:
        return self.error(advice.reason, column=column, hint=advice.hint)

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        column = 0
        while column < len(self.text):
            match = _TOKEN.match(self.text, column)
            if match is None or match.lastgroup is None:
                raise self.advise(strange_character(self.text, column), column)
            before = tokens[-1].kind if tokens else ""
            is_told = {
                "string": before in (":", "or") or (before == "=" and self._has_choice(tokens)),
                "or": before == "string",
                "operator": is_in_shape(self.text, column),
            }
            if not is_told.get(match.lastgroup, True):
                raise self.advise(strange_character(self.text, column), column)
            if match.lastgroup == "broken":
                raise self.error(f"'{match.group()}' is no arrow.", column=column, hint="an arrow is written '->'")
            if match.lastgroup == "number" and len(match.group()) > _LONGEST_NUMBER:
                raise self.error(
                    f"a number of {len(match.group())} characters is too long.",
                    column=column,
                    hint=f"for example: {match.group()[:3]}",
                )
            if match.lastgroup == "based":
                raise self.error(f"'{match.group()}' is no decimal number.", column=column, hint=decimal(match.group()))
            if match.lastgroup != "space":
                kind = match.group()[0] if match.lastgroup in ("mark", "operator") else match.lastgroup
                text = match.group().replace("_", "") if kind == "number" else match.group()
                tokens.append(_Token(kind, text, column))
            column = match.end()
        tokens.append(_Token("end", "", len(self.text)))
        return tokens

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def take(self) -> _Token:
        token = self.token
        self.next += token.kind != "end"
        return token

    def takes(self, kind: str) -> bool:
        """Take the next token if it is of `kind`."""
        if self.token.kind != kind:
            return False
        self.take()
        return True

    def expect(self, kind: str, expected: str, hint: str) -> _Token:
        if self.token.kind != kind:
            raise self.error(f"expected {expected}, found {self.found()}.", column=self.token.column, hint=hint)
        return self.take()

    def found(self) -> str:
        return f"'{self.token.text}'" if self.token.kind != "end" else "the end"

    @staticmethod
    def _has_choice(tokens: Sequence[_Token]) -> bool:
        """Whether a default belongs to a choice or a text."""
        return len(tokens) > 1 and (tokens[-2].kind == "string" or tokens[-2].text == "str")

    def signature(self) -> Signature:
        parameters: list[Parameter] = []
        outputs: list[Tensor] = []
        if self.token.kind == "end":
            raise self.error("the signature is empty.", column=0, hint=f"for example: {EXAMPLE}")
        while self.token.kind not in ("arrow", "end"):
            parameters.append(self.parameter(parameters))
            if not self.takes(","):
                break
        if self.token.kind not in ("arrow", "end"):
            last = parameters[-1]
            raise self.error(
                f"expected ',' or '->' after '{last}', found {self.found()}.",
                column=self.token.column,
                hint=self.separator_hint(last),
            )
        if self.takes("arrow"):
            if self.token.kind == "end":
                raise self.error(
                    "expected an output after '->'.", column=self.token.column, hint=f"-> out: {first_type(parameters)}"
                )
            while self.token.kind != "end":
                outputs.append(self.output(parameters, outputs))
                if not self.takes(","):
                    break
            if self.token.kind != "end":
                raise self.error(
                    f"expected ',' or the end after '{outputs[-1]}', found {self.found()}.",
                    column=self.token.column,
                    hint="only outputs follow '->', separated by ','",
                )
        return Signature(tuple(parameters), tuple(outputs), self.text)

    def separator_hint(self, last: Parameter) -> str:
        token = self.token
        if token.kind == "-":
            return "an arrow is written '->'"
        if token.kind == "name" and self.tokens[self.next - 1].kind == "number" and self.is_glued():
            return f"a number has no suffix: {last}"
        if token.kind == ":" and self.tokens[self.next + 1].kind == "name" and isinstance(last, Tensor):
            return f"an arrow is written '->': {last} -> {self.tokens[self.next + 1].text}: ..."
        if token.kind == "[" and isinstance(last, Tensor) and self.tokens[self.next + 1].kind == "]":
            return f"a list of tensors is written {replace(last, listed=True, strided=False)}"
        if token.kind == "[" and isinstance(last, Tensor):
            return f"a shape has one pair of brackets, with ',' in it: {last.name}: {last.dtype}[B, D]"
        if token.kind == "name" and parameter_problem(token.text) is None:
            separated = f"separate parameters with ',': {last}, {token.text}: ..."
            return f"{separated}, and outputs with '->': {last} -> {token.text}: ..."
        return f"for example: {EXAMPLE}"

    def is_glued(self) -> bool:
        """Whether nothing stands between the next token and the one before."""
        return not self.text[self.token.column - 1].isspace()

    def type_ahead(self) -> str:
        """The tensor type that comes next, or nothing."""
        if self.token.kind != "name" or self.tokens[self.next + 1].kind != "[":
            return ""
        closed = re.match(rf"\w+\s*{BRACKETS}", self.rest())
        return closed[0] if closed is not None else ""

    def name(self, what: str, taken: Iterable[Parameter], *, example: str, before: str = "") -> _Token:
        """The name of something, such as `example`, with `before` in front of it."""
        token = self.expect("name", f"the name of {what}", f"for example: {EXAMPLE}")
        is_type = (
            find_dtype(token.text) is not None or _VARIABLE.fullmatch(token.text) is not None or token.text == "list"
        )
        if is_type and self.token.kind != ":":
            names = [each.name for each in taken]
            declared = re.match(
                rf"\s*(?:(?P<type>{BRACKETS})\s*)?(?P<name>[a-z]\w*)?\s*(?P<array>\[[^\]]*\])?", self.rest()
            )
            assert declared is not None
            # As in C++: `float x[N]`, `T[N] x`.
            name = declared["name"] if declared["name"] and parameter_problem(declared["name"]) is None else example
            free = name if name not in names else free_name(name, names)
            shape = declared["type"] or (declared["array"] if declared["name"] else None) or like(taken)
            if token.text == "list" and "[" not in shape[1:]:
                shape = f"[{first_type(taken)}]"
            raise self.error(
                f"expected the name of {what} and ':' before its type '{token.text}'.",
                column=token.column,
                hint=f"{before}{free}: {sized(token.text)}{shape}",
            )
        is_const = self.token.kind == ":" and self.tokens[self.next + 1].text == "const"
        problem = parameter_problem(token.text, dimension=is_const and _VARIABLE.fullmatch(token.text) is not None)
        if problem is not None:
            raise self.error(problem.reason, column=token.column, hint=problem.hint)
        return token

    def rest(self) -> str:
        """What is not read yet."""
        return self.text[self.token.column :]

    def missing_type(self, name: _Token) -> str:
        """A hint for a name without a type: what comes next may tell it."""
        written = _UNTYPED.match(self.rest())
        if written is not None and written["type"]:
            default = f" = {written['value']}" if written["value"] else ""
            return f"{name.text}: {written['type']}{default}"
        if written is not None and (value := written["value"]):
            kind = "bool" if value in ("True", "False") else "int" if value.lstrip("+-").isdecimal() else "float"
            return f"{name.text}: {kind} = {value}"
        return f"{name.text}: {self.type_ahead()}" if self.type_ahead() else f"{name.text}: T[N] or {name.text}: float"

    def parameter(self, before: Sequence[Parameter]) -> Parameter:
        name = self.name("a parameter", before, example="x")
        self.expect(":", f"':' and a type after '{name.text}'", self.missing_type(name))
        words = {word: self.word(word) for word in ("const", "mut", "Optional")}
        mutable, optional = words["mut"], words["Optional"]
        if (optional and self.word("mut")) or (words["const"] and (mutable or optional)):
            raise self.error(
                "these words do not go together in that order.",
                column=name.column,
                hint=f"{name.text}: const int = 1, {name.text}: mut T[N] or {name.text}: Optional T[N] = None",
            )
        if words["Optional"] and self.token.kind == "[":
            raise self.error(
                f"expected a type for '{name.text}', found '['.",
                column=self.token.column,
                hint=self.optional_hint(name),
            )
        if self.token.kind == "string" and not any(words.values()):
            return self.choice(name)
        examples = {"const": "const int = 1", "mut": "mut T[N]", "Optional": "Optional T[N] = None"}
        wanted = [examples[word] for word, is_there in words.items() if is_there] or ["T[N]", "float"]
        example = " or ".join(f"{name.text}: {written}" for written in wanted)
        type_token = self.expect("name", f"a type for '{name.text}'", example)
        if self.token.kind == "[":
            if words["const"] and type_token.text != "list":
                raise self.error(
                    "a tensor cannot be const: only int and bool can be template arguments.",
                    column=type_token.column,
                    hint=f"{name.text}: {type_token.text}[...]; a tensor without mut is never written to",
                )
            if type_token.text == "list":
                return self.list_parameter(name, words=words)
            return self.tensor_parameter(name, type_token, mutable=mutable, optional=optional)
        return self.scalar(name, type_token, constant=words["const"], mutable=mutable, optional=optional)

    def choice(self, name: _Token) -> Scalar:
        words = [self.choice_word()]
        while self.takes("or"):
            if self.token.kind != "string":
                raise self.error(
                    f"expected a word in quotes after '|', found {self.found()}.",
                    column=self.token.column,
                    hint=f'for example: {name.text}: "{words[0]}" | "other"',
                )
            word = self.token
            words.append(self.choice_word())
            if words[-1] in words[:-1]:
                raise self.error(f'"{words[-1]}" is a choice twice.', column=word.column, hint="leave one of them out")
        if len(words) < 2:
            raise self.error(
                f"'{name.text}' has no choice but one.",
                column=name.column,
                hint=f'{name.text}: "{words[0]}" | "other" = "{words[0]}"',
            )
        default = None
        if self.takes("="):
            token = self.take()
            default = token.text[1:-1] if token.kind == "string" else token.text
            if token.kind != "string" or default not in words:
                near = difflib.get_close_matches(default, words, n=1) or words
                raise self.error(
                    f"the default {token.text or 'at the end'} is none of the choices.",
                    column=token.column,
                    hint=f"{Scalar(name.text, 'choice', True, near[0], choices=tuple(words))}",
                )
        return Scalar(name.text, "choice", True, default, name.column, choices=tuple(words))

    def choice_word(self) -> str:
        token = self.take()
        word = token.text[1:-1]
        if (
            not re.fullmatch(r"[a-z][a-z0-9_]*", word)
            or "__" in word
            or word in CPP_KEYWORDS
            or keyword.iskeyword(word)
        ):
            plain = re.sub(r"\W+", "_", word).strip("_").lower()
            raise self.error(
                f"{token.text} is no name of a choice: it becomes one of an enum in C++.",
                column=token.column,
                hint=f'lower case letters, digits and underscores, and no keyword: "{plain or "sum"}_"',
            )
        return word

    def optional_hint(self, name: _Token) -> str:
        """A hint for `Optional[...]`, as Python writes it."""
        inside = re.match(r"\[\s*(?P<word>[\w.]+)\s*(?P<shape>\[[^\]]*\])?\s*\]", self.rest())
        if inside is not None and inside["word"] in _SCALARS and not inside["shape"]:
            return f"{name.text}: Optional {inside['word']} = None"
        served = f"{sized(inside['word'])}{inside['shape']}" if inside is not None and inside["shape"] else "T[...]"
        return f"{name.text}: Optional {served} = None"

    def word(self, word: str) -> bool:
        if self.token.kind == "name" and self.token.text == word:
            self.take()
            return True
        return False

    def tensor_parameter(self, name: _Token, type_token: _Token, *, mutable: bool, optional: bool) -> Tensor:
        dtype = self.dtype(type_token, name.text)
        shape = self.shape()
        strided = self.strided(name.text, shape)
        tensor = Tensor(name.text, dtype, shape, mutable, optional, name.column, strided)
        # What is changed in place is always there: no pattern serves another.
        served = Tensor(name.text, dtype, shape, mutable, optional=not mutable, strided=strided)
        equals = self.token
        if not self.takes("="):
            if optional:
                raise self.error(
                    f"'{name.text}' is Optional and has no default.", column=equals.column, hint=str(served)
                )
            return tensor
        none = self.take()
        if none.text != "None":
            raise self.error(
                f"the default of a tensor can only be None, found {none.text or 'the end'}.",
                column=none.column,
                hint=f"{replace(served, optional=False)} without a default"
                + ("" if mutable else f", or {served}, which counts as zeros"),
            )
        if not optional:
            raise self.error(
                f"'{name.text}' has the default None and is not Optional.", column=equals.column, hint=str(served)
            )
        return tensor

    def list_parameter(self, name: _Token, *, words: Mapping[str, bool]) -> Tensor:
        content = self.shown_as("")[1:-1]
        self.take()  # the bracket
        type_token = self.take()
        content = content if type_token.kind == "name" else ""
        advice = listed_type(name.text, f"{'mut ' if words['mut'] else ''}{content}")
        foreign = type_token.text in ("float", "int", "str") or no_dtype(name.text, type_token.text, "") is not None
        if self.token.kind != "[" or foreign:
            raise self.advise(advice, type_token.column)
        dtype = self.dtype(type_token, name.text)
        tensor = Tensor(name.text, dtype, self.shape(), words["mut"], column=name.column, listed=True)
        if self.token.kind == ",":
            raise self.advise(advice, self.token.column)
        if self.token.text != "strided":
            self.expect("]", f"']' after '{tensor.plain}'", str(tensor))
        if self.token.text == "strided":
            raise self.error("tensors of a list are contiguous.", column=self.token.column, hint=str(tensor))
        if words["Optional"] or words["const"] or self.token.kind == "=":
            raise self.error(
                "a list of tensors is given at run time, is always there, and has one at least.",
                column=self.token.column if self.token.kind == "=" else name.column,
                hint=str(tensor),
            )
        return tensor

    def strided(self, name: str, shape: tuple[Dimension, ...]) -> bool:
        column = self.token.column
        if not self.word("strided"):
            return False
        if ELLIPSIS in shape or not shape:
            reason = "has any number of dimensions" if shape else "has none"
            raise self.error(
                f"strides belong to dimensions, and '{name}' {reason}.",
                column=column,
                hint=f"name them: {name}: T[N, D] strided",
            )
        return True

    def output(self, parameters: Sequence[Parameter], before: Sequence[Tensor]) -> Tensor:
        # Before a type it is a name, good or bad: to leave it away would lose the output.
        if self.token.text.lower() in ("none", "void") and self.tokens[self.next + 1].kind != ":":
            raise self.error(
                f"'{self.token.text}' is no output: an output has a name and a type.",
                column=self.token.column,
                hint=f"leave '-> {self.token.text}' away: an op may change its mut tensors only",
            )
        name = self.name("an output", [*parameters, *before], example="out", before="" if before else "-> ")
        example = f"{name.text}: {self.type_ahead() or first_type(parameters)}"
        self.expect(":", f"':' and a tensor type after '{name.text}'", example)
        type_token = self.expect("name", f"a tensor type for '{name.text}'", example)
        if type_token.text in ("mut", "Optional", "const"):
            raise self.error(
                f"an output cannot be {type_token.text}: it is always written, and always there.",
                column=type_token.column,
                hint=f"{name.text}: {self.type_ahead() or first_type(parameters)}; what is changed in place is a mut"
                " parameter, before '->'",
            )
        if self.token.kind != "[":
            raise self.error(
                f"an output is a tensor: expected '[' after '{type_token.text}', found {self.found()}.",
                column=self.token.column,
                hint=f"{name.text}: {_known_dtype(type_token.text, parameters)}{like(parameters)}",
            )
        if type_token.text == "list":
            listed = f"{name.text}: mut list[{first_type(parameters)}]"
            raise self.error(
                "an output is one tensor: how many a list has, nothing tells.",
                column=type_token.column,
                hint=f"the caller makes a list, and it is changed in place, before '->': {listed}",
            )
        dtype = self.dtype(type_token, name.text)
        tensor = Tensor(name.text, dtype, self.shape(), column=name.column)
        if self.token.text == "strided":
            raise self.error(
                "an output is contiguous, and cannot be strided.",
                column=self.token.column,
                hint=f"{tensor}; a slice is changed in place by a parameter: {replace(tensor, mutable=True)} strided",
            )
        if self.token.kind == "=":
            raise self.error(
                "an output has no default.", column=self.token.column, hint=f"{tensor}; a caller may pass out="
            )
        return tensor

    def dtype(self, token: _Token, name: str) -> DType | str:
        if token.text in ("float", "int"):
            raise self.error(
                f"the size of '{token.text}' elements is not said.",
                column=token.column,
                hint=f"{name}: {self.shown_as(sized(token.text))} for a tensor, {name}: {token.text} for a number",
            )
        found = find_dtype(token.text)
        if found is not None:
            return found
        if _VARIABLE.fullmatch(token.text):
            return token.text
        known = no_dtype(name, token.text, self.shown_as("")[1:-1])
        if known is not None:
            raise self.advise(known, token.column)
        raise self.error(
            f"'{token.text}' is neither a dtype nor a dtype variable (a capital letter such as T).",
            column=token.column,
            hint=suggest_dtype(token.text),
        )

    def shown_as(self, dtype: str) -> str:
        """A dtype with the shape that comes next."""
        depth = 0
        for at, character in enumerate(self.rest()):
            depth += (character == "[") - (character == "]")
            if depth == 0:
                return f"{dtype}{self.rest()[: at + 1]}"
        return f"{dtype}[N]"

    def shape(self) -> tuple[Dimension, ...]:
        dtype = self.tokens[self.next - 1].text
        self.take()  # the bracket, which every caller has seen
        dimensions: list[Dimension] = []
        while self.token.kind != "]":
            column = self.token.column
            dimensions.append(self.dimension(dimensions))
            self.check_size(dtype, dimensions, column)
            if not self.takes(","):
                break
        token, after = self.token, self.tokens[min(self.next + 1, len(self.tokens) - 1)]
        is_next = token.kind in ("name", "number", "ellipsis") and token.text != "strided"
        is_fixed = token.kind in (":", "=") and after.kind == "number"
        if token.kind in "+-*/" or is_fixed or (is_next and dimensions and self.is_glued()):
            raise self.advise(computed_dimension(self.text, token.column), token.column)
        written = f"{dtype}[{', '.join([*map(str, dimensions), *([token.text] if is_next else [])])}]"
        if is_next:
            written = f"separate dimensions with ','{f': {written}' if after.kind == ']' else ''}"
        self.expect("]", "',' or ']' after a dimension", written)
        return tuple(dimensions)

    def check_size(self, dtype: str, dimensions: list[Dimension], column: int) -> None:
        """Refuse what no memory has room for: the bytes of a tensor are counted in 64 bits."""
        known = find_dtype(dtype)
        nbytes = math.prod((d for d in dimensions if isinstance(d, int)), start=1 if known is None else known.bytes)
        if nbytes not in _INT64:
            names = (f"N{number or ''}" for number in range(len(dimensions) + 1))
            shown = [*map(str, dimensions[:-1]), next(name for name in names if name not in dimensions)]
            raise self.error(
                f"a tensor of these sizes has {nbytes} bytes or more, and 9223372036854775807 are the most.",
                column=column,
                hint=f"leave a dimension open: {dtype}[{', '.join(shown)}]",
            )

    def dimension(self, before: list[Dimension]) -> Dimension:
        if self.token.kind in ("name", "number"):
            return self.size()
        token = self.take()
        if token.kind == "ellipsis":
            if ELLIPSIS in before:
                raise self.error("'...' stands twice in one shape.", column=token.column, hint="for example: T[..., D]")
            return ELLIPSIS
        if token.kind in (":", "-", "+", "*", "/"):
            raise self.advise(computed_dimension(self.text, token.column), token.column)
        raise self.error(
            f"expected a dimension (a name, a number or '...'), found '{token.text}'."
            if token.kind != "end"
            else "expected a dimension or ']', found the end.",
            column=token.column,
            hint="for example: T[B, D], T[N, 8] or T[...]",
        )

    def size(self) -> Dimension:
        """A dimension that is no `...`."""
        column = self.token.column
        terms = [(1, self.term())]
        while self.token.kind in ("+", "-"):
            sign = 1 if self.take().kind == "+" else -1
            terms.append((sign, self.term()))
        plus = sum(sign * term for sign, term in terms if isinstance(term, int))
        named = [(sign, term) for sign, term in terms if not isinstance(term, int)]
        if not named:
            if not 0 < plus < 2**63:
                raise self.error(
                    f"a dimension is a whole number from 1 that fits in 64 bits, not {plus}.",
                    column=column,
                    hint="for example: T[N, 8]",
                )
            return plus
        # One of two names stands alone, and is added.
        first, *others = sorted((term for _, term in named), key=lambda term: isinstance(term, str))
        if any(sign < 0 for sign, _ in named) or len(others) > 1 or any(not isinstance(term, str) for term in others):
            raise self.error(
                "a size is a product or quotient, plus at most one name and a number.",
                column=column,
                hint=f"for example 2*D, D/128, H*D, A+B or N+1; give this one a name of its own, and {CHECK_BY_HAND}",
            )
        more = str(others[0]) if others else ""
        if isinstance(first, str):
            return Size((first,), more=more, plus=plus) if more or plus else first
        return replace(first, more=more, plus=plus)

    def term(self) -> Dimension:
        """A product, or a quotient."""
        column, factor, names = self.token.column, 1, list[str]()
        while True:
            factor, name = self.factor(factor)
            names += [name] if name else []
            if not self.takes("*"):
                break
        divisor: int | str = 1
        if self.takes("/"):
            if self.token.text == "0":
                raise self.error("a size is divided by 0.", column=self.token.column, hint="for example: D/128")
            number, name = self.factor(1)
            divisor = name or number
            if self.token.kind in ("*", "/"):
                raise self.error(
                    "a size is divided once, and last.", column=self.token.column, hint="for example: T[N, 2*D/128]"
                )
        if not names:
            if isinstance(divisor, str) or factor % divisor:
                raise self.error(f"{factor} is not divided by {divisor} without a rest.", column=column, hint="T[N, 8]")
            return factor // divisor
        if len(names) > 2:
            raise self.error(
                f"a size is a product of at most two names, and this has {len(names)}.",
                column=column,
                hint=f"give it a name of its own, and {CHECK_BY_HAND}",
            )
        if isinstance(divisor, int):
            common = math.gcd(factor, divisor)
            factor, divisor = factor // common, divisor // common
        return names[0] if (len(names), factor, divisor) == (1, 1, 1) else Size(tuple(names), factor, divisor)

    def factor(self, product: int) -> tuple[int, str]:
        """The product with the next number, or the next name."""
        token = self.take()
        if token.kind == "number":
            if not token.text.isdecimal() or not 0 < product * int(token.text) < 2**63:
                whole = f"{product} * " if product > 1 and token.text != "0" else ""
                raise self.error(
                    f"a dimension is a whole number from 1 that fits in 64 bits, not {whole}{token.text}.",
                    column=token.column,
                    hint="for example: T[N, 8]",
                )
            return product * int(token.text), ""
        if token.kind == "name":
            problem = parameter_problem(token.text, dimension=True)
            if problem is not None:
                raise self.error(problem.reason, column=token.column, hint=problem.hint)
            return product, token.text
        raise self.advise(computed_dimension(self.text, token.column), token.column)

    def scalar(self, name: _Token, type_token: _Token, *, constant: bool, mutable: bool, optional: bool) -> Scalar:
        kind = type_token.text
        if kind in _SCALARS and not (constant and kind in ("float", "str")):
            if mutable:
                raise self.error(
                    f"only a tensor can be mut, and '{kind}' is none.",
                    column=type_token.column,
                    hint=f"{name.text}: {kind}, which is only read"
                    + ("" if kind == "str" else f"; or {name.text}: mut {_sized(kind)}[1], a tensor"),
                )
            if optional:
                absent = Scalar(name.text, _SCALARS[kind], default=None, column=name.column, optional=True)
                equals = self.token
                if not self.takes("=") or self.take().text != "None":
                    raise self.error(
                        f"'{name.text}' is Optional, and its default is None.", column=equals.column, hint=str(absent)
                    )
                return absent
            default = self.default(name, _SCALARS[kind], constant=constant) if self.takes("=") else None
            return Scalar(name.text, _SCALARS[kind], constant, default, name.column)
        if constant:
            raise self.error(
                f"only int and bool can be const, not '{kind}'.",
                column=type_token.column,
                hint=f'{name.text}: "one" | "other" for a variant of each'
                if kind == "str"
                else f"{name.text}: float, which is given at run time"
                if find_dtype(kind) is not None and DTYPES[kind.removeprefix("torch.")].kind == "float"
                else f"{name.text}: const int = 1 or {name.text}: const bool = True; for other types {BY_HAND}",
            )
        if find_dtype(kind) is not None or _VARIABLE.fullmatch(kind):
            raise self.error(
                f"'{kind}' is the dtype of a tensor: expected '[' and a shape, found {self.found()}.",
                column=self.token.column,
                hint=f"{name.text}: {kind}[...] for a tensor of any shape, {name.text}: {_number(kind)} for a number",
            )
        hint = no_type(name.text, kind, self.rest())
        if mutable:
            hint = hint.replace(": list[", ": mut list[")
        raise self.error(f"'{kind}' is not a type.", column=type_token.column, hint=hint)

    def default(self, name: _Token, kind: ScalarKind, *, constant: bool) -> float | int | bool | str:
        start = self.token
        declared = f"{name.text}: {'const ' if constant else ''}{kind}"
        if start.text == "None":
            raise self.error(
                f"'{name.text}' is no tensor and is always there: its default cannot be None.",
                column=start.column,
                hint=f"{declared} without a default, or {name.text}: Optional {kind} = None"
                if not constant
                else f"{declared} without a default",
            )
        if kind == "str":
            token = self.expect("string", "a text in quotes", f'{declared} = "text"')
            text = token.text[1:-1]
            if not (text.isascii() and text.isprintable()) or any(mark in text for mark in "\"'\\"):
                raise self.error(
                    "a default text has plain ASCII letters, without quotes and backslashes.",
                    column=token.column,
                    hint=f"{declared} without a default: a caller may pass it",
                )
            return text
        if kind == "bool":
            token = self.take()
            if token.text not in ("True", "False"):
                hint = "True" if token.text.lower() in ("true", "1", "yes", "on") else "False"
                raise self.error(
                    f"expected True or False, found {token.text or 'the end'}.",
                    column=start.column,
                    hint=f"{declared} = {hint}",
                )
            return token.text == "True"
        sign = "-" if self.takes("-") else ""
        if not sign:
            self.takes("+")
        what = "a whole number" if kind == "int" else "a number"
        if self.token.text.lower() in ("inf", "infinity", "nan") or self.token.text in ("True", "False"):
            is_bool = self.token.text in ("True", "False")
            raise self.error(
                f"expected {what}, found '{self.token.text}'.",
                column=self.token.column,
                hint=f"{name.text}: {'const ' if constant else ''}bool = {self.token.text}"
                if is_bool
                else f"{declared} without a default: a caller may pass it",
            )
        example = f"{declared} = {'1' if kind == 'int' else '1e-6'}"
        number = self.expect("number", what, example)
        if kind == "float":
            value = float(sign + number.text)
            if math.isinf(value):
                raise self.error(f"{number.text} is too large for a float.", column=start.column, hint=example)
            is_zero = not re.search("[1-9]", number.text.lower().partition("e")[0])
            if abs(value) < sys.float_info.min and not is_zero:
                least = f"{sign}{sys.float_info.min!r}"
                raise self.error(
                    f"{sign}{number.text} is too close to 0: PyTorch cannot read it as a default.",
                    column=start.column,
                    hint=f"{declared} = 0.0, or {least}, the closest that it reads",
                )
            return value
        if not number.text.isdecimal():
            value = float(sign + number.text)
            # The nearest float to 2**63 is that itself, which does not fit.
            whole = [f"{declared} = {int(value)}"] if abs(value) < 2**63 else []
            real = [f"{name.text}: float = {value!r}"] if math.isfinite(value) else []
            raise self.error(
                f"expected {what}, found {sign}{number.text}.",
                column=start.column,
                hint=", or ".join([*whole, *real]) or example,
            )
        integer = int(sign + number.text)
        if integer not in _INT64:
            raise self.error(
                f"{integer} does not fit in 64 bits.", column=start.column, hint="the largest is 9223372036854775807"
            )
        return integer


def _always(parameters: Iterable[Parameter]) -> list[Tensor]:
    return [p for p in parameters if isinstance(p, Tensor) and not p.optional]


def like(parameters: Iterable[Parameter]) -> str:
    """The shape of the first tensor that is always there, as an example: `[B, D]`."""
    return next((t.plain.removeprefix(str(t.dtype)) for t in _always(parameters)), "[N]")


def first_type(parameters: Iterable[Parameter]) -> str:
    """The type of the first tensor that is always there, as an example."""
    return next((tensor.plain for tensor in _always(parameters)), "T[N]")


def _known_dtype(word: str, parameters: Iterable[Parameter]) -> str:
    """`word` if it is a dtype or a variable of an input, else the dtype of the first."""
    known = [str(tensor.dtype) for tensor in _always(parameters)]
    return sized(word) if find_dtype(word) is not None or word in known else (known or ["T"])[0]


def _sized(kind: str) -> str:
    return {"float": "float32", "int": "int64"}.get(kind, kind)


def _number(kind: str) -> str:
    """The type of a number that someone wrote as a dtype."""
    dtype = find_dtype(kind)
    return "float" if dtype is None else dtype.kind


def _check(signature: Signature) -> None:
    """What the grammar cannot say: every name once, everything known when it is needed, something to do."""
    seen: dict[str, str] = {}
    for parameter in (*signature.parameters, *signature.outputs):
        if parameter.name in seen:
            hint = f"give one of them another name, such as {free_name(parameter.name, signature.names)}"
            if parameter in signature.outputs and parameter.name in {each.name for each in signature.inputs}:
                mutable = replace(signature.outputs[0], name=parameter.name, mutable=True)
                hint = f"what is changed in place is a mut parameter and no output: {mutable}; else {hint}"
            raise signature.error(parameter, f"the name '{parameter.name}' is used twice.", hint)
        seen[parameter.name] = "parameter"
    constants = {constant.name: constant for constant in signature.constants if constant.kind == "int"}
    for tensor in signature.tensors:
        names = [(word, "dimension") for d in tensor.shape for word in words_of(d) if word not in constants]
        if isinstance(tensor.dtype, str):
            names.append((tensor.dtype, "dtype variable"))
        for name, role in names:
            if seen.setdefault(name, role) != role:
                is_given = seen[name] == "parameter" and tensor in signature.outputs and role == "dimension"
                raise signature.error(
                    tensor,
                    f"'{name}' is a {role} here and a {seen[name]} elsewhere.",
                    f"an output has sizes of inputs, and of const ints: {name}: const int = 8"
                    if is_given
                    else f"give the {role} another name",
                )

    arguments = (*signature.parameters, *signature.outputs)
    if len(arguments) > MAX_ARGUMENTS:
        raise signature.error(
            arguments[MAX_ARGUMENTS],
            f"{len(arguments)} parameters and outputs are too many: an op of PyTorch has at most {MAX_ARGUMENTS}.",
            "put several into one, as further rows of a tensor, or make two ops of it",
        )

    with_default: Parameter | None = None
    for parameter in signature.parameters:
        has_default = parameter.optional or (isinstance(parameter, Scalar) and parameter.default is not None)
        if has_default:
            with_default = with_default or parameter
        elif with_default is not None:
            raise signature.error(
                parameter,
                f"'{parameter.name}' has no default and follows '{with_default.name}', which has one.",
                f"move '{parameter.name}' before '{with_default.name}', or give it a default",
            )

    first = (*signature.parameters, *signature.outputs)[0]
    if not signature.parameters:
        x = "x" if "x" not in signature.names else free_name("x", signature.names)
        raise signature.error(
            first,
            "the op takes nothing: it has an output and no input.",
            f"for example: {x}: {signature.outputs[0].type}{signature}",
        )
    always = signature.always
    if not always:
        raise signature.error(
            first,
            "the op takes no tensor that is always there, and a tensor is what tells it on which device to work.",
            f"for example: {EXAMPLE}",
        )
    if not signature.outputs and not signature.mutated:
        out = "out" if "out" not in signature.names else free_name("out", signature.names)
        raise signature.error(
            first,
            "the op changes nothing: it has no output and no mut tensor.",
            _what_is_written(signature, out, always),
        )

    _check_sizes(signature, constants)
    known_names = {*signature.places(), *(ELLIPSIS for tensor in always if ELLIPSIS in tensor.shape), *constants}
    for output in signature.outputs:
        for dimension in (word for d in output.shape for word in ((d,) if d == ELLIPSIS else words_of(d))):
            if dimension not in known_names:
                known = ", ".join(sorted(known_names)) or "none"
                raise signature.error(
                    output,
                    f"the size of dimension '{dimension}' of '{output.name}' is not known: no input that is always"
                    " there has it.",
                    f"use a dimension of an input ({known}) or a number; for sizes that follow otherwise, {BY_HAND}",
                )
    variables = {tensor.dtype for tensor in always}
    for tensor in signature.tensors:
        if isinstance(tensor.dtype, str) and tensor.dtype not in variables:
            raise signature.error(
                tensor,
                f"what '{tensor.dtype}' of '{tensor.name}' stands for is not known: no input that is always there has"
                " that dtype.",
                f"use the dtype of an input ({', '.join(sorted(map(str, variables)))}) or a fixed one such as float32;"
                f" where the caller chooses it, {BY_HAND}",
            )


def _check_sizes(signature: Signature, constants: Mapping[str, Scalar]) -> None:
    """Refuse sizes that nothing tells, and those that no value makes sense of."""
    for tensor in signature.tensors:
        sizes = [dimension for dimension in tensor.shape if isinstance(dimension, Size)]
        known = {*signature.places([*signature.always, tensor]), *constants}
        for size in sizes:
            if isinstance(size.divisor, str) and size.divisor not in constants:
                raise signature.error(
                    tensor,
                    f"'{size}' of '{tensor.name}' is divided by '{size.divisor}', which is no number and no const int.",
                    f"for example: {size.divisor.lower()}: const int = 128, and {size.names[0]}/{size.divisor.lower()}",
                )
            unknown = [word for word in dict.fromkeys(size.words) if word not in known]
            if unknown and tensor not in signature.outputs:  # of which the size of an output is an error of its own
                raise signature.error(
                    tensor,
                    f"'{size}' of '{tensor.name}' does not tell what {' and '.join(unknown)} are: no tensor that is"
                    " always there has one of them alone.",
                    f"give it a name of its own: {tensor.name}: {_renamed(tensor, size, signature)}",
                )
            for word in size.words:
                constant = constants.get(word)
                if constant is not None and isinstance(constant.default, int) and constant.default < 1:
                    raise signature.error(
                        constant,
                        f"'{word}' is part of the size '{size}', and {constant.default} is no size.",
                        f"{word}: const int = 1",
                    )


def _renamed(tensor: Tensor, size: Size, signature: Signature) -> str:
    name = next(name for name in ("N", "M", "K", "L", "P", "Q") if name not in signature.names)
    shape = tuple(name if dimension == size else dimension for dimension in tensor.shape)
    return str(replace(tensor, shape=shape)).removeprefix(f"{tensor.name}: ")


def _what_is_written(signature: Signature, out: str, always: Sequence[Tensor]) -> str:
    """A hint for an op without a result."""
    *others, last = signature.parameters
    if others and _always(others) and last in always and re.match(r"out|res|dst|dest|y$|ret", last.name):
        before = ", ".join(str(parameter) for parameter in others)
        in_place = f"{last.name}: mut {always[-1].type}, changed in place"
        return f"an arrow stands before outputs: {before} -> {last}; or {in_place}"
    changed = replace(always[0], mutable=True)
    return f"add an output ({signature} -> {out}: {always[0].plain}), or write {changed}"
