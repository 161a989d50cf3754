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

All that `kjit new` writes (checks, wrapper, schema, test, byte count) comes from this one value, so the parser is
strict. It is written by hand for the sake of its errors: the column where reading
stopped, what was expected there, and the nearest form that would have been right. Which signatures a pattern can serve
is decided by the pattern (`scaffold/patterns.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kjit.dtypes import DTYPES, DType, find_dtype
from kjit.signature.defaults import read_choice, read_default
from kjit.signature.hints import (
    BRACKETS,
    BY_HAND,
    EXAMPLE,
    NUMBER,
    listed_type,
    no_dtype,
    no_type,
    sized,
    suggest_dtype,
)
from kjit.signature.names import VARIABLE, free_name, parameter_problem
from kjit.signature.rules import check_rules
from kjit.signature.shapes import read_shape
from kjit.signature.signature import ELLIPSIS, Dimension, Parameter, Scalar, ScalarKind, Signature, Tensor
from kjit.signature.tokens import Reader, Token

_SCALARS: dict[str, ScalarKind] = {"float": "float", "int": "int", "bool": "bool", "str": "str"}
# A type and a default that may follow a name without its `:`.
_UNTYPED = re.compile(
    rf"(?:(?P<type>float|int|bool)\b(?!\s*\[))?(?:\s*=\s*(?P<value>[+-]?{NUMBER}|True|False)(?=\s*(?:,|->|$)))?"
)


def parse_signature(text: str) -> Signature:
    """Read a signature.

    Raises:
        SignatureError: it is not valid; the message points at the character.
    """
    signature = _Parser(text).signature()
    check_rules(signature)
    return signature


class _Parser(Reader):
    def signature(self) -> Signature:
        parameters: list[Parameter] = []
        outputs: list[Tensor] = []
        if self.token.kind == "end":
            raise self.error(0, "the signature is empty.", f"for example: {EXAMPLE}")
        while self.token.kind not in ("arrow", "end"):
            parameters.append(self.parameter(parameters))
            if not self.takes(","):
                break
        if self.token.kind not in ("arrow", "end"):
            last = parameters[-1]
            raise self.error(
                self.token, f"expected ',' or '->' after '{last}', found {self.found()}.", self.separator_hint(last)
            )
        if self.takes("arrow"):
            if self.token.kind == "end":
                raise self.error(self.token, "expected an output after '->'.", f"-> out: {first_type(parameters)}")
            while self.token.kind != "end":
                outputs.append(self.output(parameters, outputs))
                if not self.takes(","):
                    break
            if self.token.kind != "end":
                raise self.error(
                    self.token,
                    f"expected ',' or the end after '{outputs[-1]}', found {self.found()}.",
                    "only outputs follow '->', separated by ','",
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

    def name(self, what: str, taken: Iterable[Parameter], *, example: str, before: str = "") -> Token:
        """The name of `what`; a hint suggests `example`, after `before`."""
        token = self.expect("name", f"the name of {what}", f"for example: {EXAMPLE}")
        is_type = (
            find_dtype(token.text) is not None or VARIABLE.fullmatch(token.text) is not None or token.text == "list"
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
                token,
                f"expected the name of {what} and ':' before its type '{token.text}'.",
                f"{before}{free}: {sized(token.text)}{shape}",
            )
        is_const = self.token.kind == ":" and self.tokens[self.next + 1].text == "const"
        problem = parameter_problem(token.text, dimension=is_const and VARIABLE.fullmatch(token.text) is not None)
        if problem is not None:
            raise self.error(token, *problem)
        return token

    def missing_type(self, name: Token) -> str:
        """A hint for a name without a type, from the text that follows."""
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
                name,
                "these words cannot be combined in that order.",
                f"{name.text}: const int = 1, {name.text}: mut T[N] or {name.text}: Optional T[N] = None",
            )
        if words["Optional"] and self.token.kind == "[":
            raise self.error(self.token, f"expected a type for '{name.text}', found '['.", self.optional_hint(name))
        if self.token.kind == "string" and not any(words.values()):
            return self.choice(name)
        examples = {"const": "const int = 1", "mut": "mut T[N]", "Optional": "Optional T[N] = None"}
        wanted = [examples[word] for word, is_there in words.items() if is_there] or ["T[N]", "float"]
        example = " or ".join(f"{name.text}: {written}" for written in wanted)
        type_token = self.expect("name", f"a type for '{name.text}'", example)
        if self.token.kind == "[":
            if words["const"] and type_token.text != "list":
                raise self.error(
                    type_token,
                    "a tensor cannot be const: only int and bool can be template arguments.",
                    f"{name.text}: {type_token.text}[...]; a tensor without mut is never written to",
                )
            if type_token.text == "list":
                return self.list_parameter(name, words=words)
            return self.tensor_parameter(name, type_token, mutable=mutable, optional=optional)
        return self.scalar(name, type_token, constant=words["const"], mutable=mutable, optional=optional)

    def choice(self, name: Token) -> Scalar:
        words = [read_choice(self)]
        while self.takes("or"):
            if self.token.kind != "string":
                raise self.error(
                    self.token,
                    f"expected a word in quotes after '|', found {self.found()}.",
                    f'for example: {name.text}: "{words[0]}" | "other"',
                )
            word = self.token
            words.append(read_choice(self))
            if words[-1] in words[:-1]:
                raise self.error(word, f'"{words[-1]}" is repeated.', "leave one of them out")
        if len(words) < 2:
            raise self.error(
                name, f"'{name.text}' has only one choice.", f'{name.text}: "{words[0]}" | "other" = "{words[0]}"'
            )
        default = None
        if self.takes("="):
            token = self.take()
            default = token.text[1:-1] if token.kind == "string" else token.text
            if token.kind != "string" or default not in words:
                near = difflib.get_close_matches(default, words, n=1) or words
                raise self.error(
                    token,
                    f"the default {token.text or 'at the end'} is not one of the choices.",
                    f"{Scalar(name.text, 'choice', True, near[0], choices=tuple(words))}",
                )
        return Scalar(name.text, "choice", True, default, name.column, choices=tuple(words))

    def optional_hint(self, name: Token) -> str:
        """A hint for `Optional[...]`, as Python writes it."""
        inside = re.match(r"\[\s*(?P<word>[\w.]+)\s*(?P<shape>\[[^\]]*\])?\s*\]", self.rest())
        if inside is not None and inside["word"] in _SCALARS and not inside["shape"]:
            return f"{name.text}: Optional {inside['word']} = None"
        served = f"{sized(inside['word'])}{inside['shape']}" if inside is not None and inside["shape"] else "T[...]"
        return f"{name.text}: Optional {served} = None"

    def tensor_parameter(self, name: Token, type_token: Token, *, mutable: bool, optional: bool) -> Tensor:
        dtype = self.dtype(type_token, name.text)
        shape = read_shape(self)
        strided = self.strided(name.text, shape)
        tensor = Tensor(name.text, dtype, shape, mutable, optional, name.column, strided)
        # A tensor that is changed in place is required: no pattern serves another.
        served = Tensor(name.text, dtype, shape, mutable, optional=not mutable, strided=strided)
        equals = self.token
        if not self.takes("="):
            if optional:
                raise self.error(equals, f"'{name.text}' is Optional and has no default.", str(served))
            return tensor
        none = self.take()
        if none.text != "None":
            raise self.error(
                none,
                f"the default of a tensor can only be None, found {none.text or 'the end'}.",
                f"{replace(served, optional=False)} without a default"
                + ("" if mutable else f", or {served}, which counts as zeros"),
            )
        if not optional:
            raise self.error(equals, f"'{name.text}' has the default None and is not Optional.", str(served))
        return tensor

    def list_parameter(self, name: Token, *, words: Mapping[str, bool]) -> Tensor:
        content = self.shown_as("")[1:-1]
        self.take()  # the bracket
        type_token = self.take()
        content = content if type_token.kind == "name" else ""
        explanation = listed_type(name.text, f"{'mut ' if words['mut'] else ''}{content}")
        foreign = type_token.text in ("float", "int", "str") or no_dtype(name.text, type_token.text, "") is not None
        if self.token.kind != "[" or foreign:
            raise self.error(type_token, *explanation)
        dtype = self.dtype(type_token, name.text)
        tensor = Tensor(name.text, dtype, read_shape(self), words["mut"], column=name.column, listed=True)
        if self.token.kind == ",":
            raise self.error(self.token, *explanation)
        if self.token.text != "strided":
            self.expect("]", f"']' after '{tensor.plain}'", str(tensor))
        if self.token.text == "strided":
            raise self.error(self.token, "tensors of a list are contiguous.", str(tensor))
        if words["Optional"] or words["const"] or self.token.kind == "=":
            raise self.error(
                self.token if self.token.kind == "=" else name,
                "a list of tensors is a required argument, given at run time, with at least one tensor.",
                str(tensor),
            )
        return tensor

    def strided(self, name: str, shape: tuple[Dimension, ...]) -> bool:
        column = self.token.column
        if not self.word("strided"):
            return False
        if ELLIPSIS in shape or not shape:
            reason = "has any number of dimensions" if shape else "has none"
            raise self.error(
                column, f"strides belong to dimensions, and '{name}' {reason}.", f"name them: {name}: T[N, D] strided"
            )
        return True

    def output(self, parameters: Sequence[Parameter], before: Sequence[Tensor]) -> Tensor:
        # Before a type it is a name, valid or not.
        if self.token.text.lower() in ("none", "void") and self.tokens[self.next + 1].kind != ":":
            raise self.error(
                self.token,
                f"'{self.token.text}' is not an output: an output has a name and a type.",
                f"leave '-> {self.token.text}' out: an op without outputs changes its mut tensors",
            )
        name = self.name("an output", [*parameters, *before], example="out", before="" if before else "-> ")
        example = f"{name.text}: {self.type_ahead() or first_type(parameters)}"
        self.expect(":", f"':' and a tensor type after '{name.text}'", example)
        type_token = self.expect("name", f"a tensor type for '{name.text}'", example)
        if type_token.text in ("mut", "Optional", "const"):
            raise self.error(
                type_token,
                f"an output cannot be {type_token.text}: the op always writes it.",
                f"{name.text}: {self.type_ahead() or first_type(parameters)}; what is changed in place is a mut"
                " parameter, before '->'",
            )
        if self.token.kind != "[":
            raise self.error(
                self.token,
                f"an output is a tensor: expected '[' after '{type_token.text}', found {self.found()}.",
                f"{name.text}: {_known_dtype(type_token.text, parameters)}{like(parameters)}",
            )
        if type_token.text == "list":
            listed = f"{name.text}: mut list[{first_type(parameters)}]"
            raise self.error(
                type_token,
                "an output is one tensor: the length of a list would be unknown.",
                f"the caller makes a list, and it is changed in place, before '->': {listed}",
            )
        dtype = self.dtype(type_token, name.text)
        tensor = Tensor(name.text, dtype, read_shape(self), column=name.column)
        if self.token.text == "strided":
            raise self.error(
                self.token,
                "an output is contiguous, and cannot be strided.",
                f"{tensor}; a slice is changed in place by a parameter: {replace(tensor, mutable=True)} strided",
            )
        if self.token.kind == "=":
            raise self.error(self.token, "an output has no default.", f"{tensor}; a caller may pass out=")
        return tensor

    def dtype(self, token: Token, name: str) -> DType | str:
        if token.text in ("float", "int"):
            raise self.error(
                token,
                f"the size of '{token.text}' elements is unspecified.",
                f"{name}: {self.shown_as(sized(token.text))} for a tensor, {name}: {token.text} for a number",
            )
        found = find_dtype(token.text)
        if found is not None:
            return found
        if VARIABLE.fullmatch(token.text):
            return token.text
        known = no_dtype(name, token.text, self.shown_as("")[1:-1])
        if known is not None:
            raise self.error(token, *known)
        raise self.error(
            token,
            f"'{token.text}' is neither a dtype nor a dtype variable (a capital letter such as T).",
            suggest_dtype(token.text),
        )

    def scalar(self, name: Token, type_token: Token, *, constant: bool, mutable: bool, optional: bool) -> Scalar:
        kind = type_token.text
        if kind in _SCALARS and not (constant and kind in ("float", "str")):
            if mutable:
                raise self.error(
                    type_token,
                    f"only a tensor can be mut, and '{kind}' is not one.",
                    f"{name.text}: {kind}, which is only read"
                    + ("" if kind == "str" else f"; or {name.text}: mut {sized(kind)}[1], a tensor"),
                )
            if optional:
                absent = Scalar(name.text, _SCALARS[kind], default=None, column=name.column, optional=True)
                equals = self.token
                if not self.takes("=") or self.take().text != "None":
                    raise self.error(equals, f"'{name.text}' is Optional, and its default is None.", str(absent))
                return absent
            default = read_default(self, name, _SCALARS[kind], constant=constant) if self.takes("=") else None
            return Scalar(name.text, _SCALARS[kind], constant, default, name.column)
        if constant:
            raise self.error(
                type_token,
                f"only int and bool can be const, not '{kind}'.",
                f'{name.text}: "one" | "other" for a variant of each'
                if kind == "str"
                else f"{name.text}: float, which is given at run time"
                if find_dtype(kind) is not None and DTYPES[kind.removeprefix("torch.")].kind == "float"
                else f"{name.text}: const int = 1 or {name.text}: const bool = True; for other types {BY_HAND}",
            )
        if find_dtype(kind) is not None or VARIABLE.fullmatch(kind):
            raise self.error(
                self.token,
                f"'{kind}' is the dtype of a tensor: expected '[' and a shape, found {self.found()}.",
                f"{name.text}: {kind}[...] for a tensor of any shape, {name.text}: {_number(kind)} for a number",
            )
        hint = no_type(name.text, kind, self.rest())
        if mutable:
            hint = hint.replace(": list[", ": mut list[")
        raise self.error(type_token, f"'{kind}' is not a type.", hint)


def _required(parameters: Iterable[Parameter]) -> list[Tensor]:
    return [p for p in parameters if isinstance(p, Tensor) and not p.optional]


def like(parameters: Iterable[Parameter]) -> str:
    """The shape of the first required tensor, as an example: `[B, D]`."""
    return next((t.plain.removeprefix(str(t.dtype)) for t in _required(parameters)), "[N]")


def first_type(parameters: Iterable[Parameter]) -> str:
    """The type of the first required tensor, as an example."""
    return next((tensor.plain for tensor in _required(parameters)), "T[N]")


def _known_dtype(word: str, parameters: Iterable[Parameter]) -> str:
    """`word` if it is a dtype or a variable of an input, else the dtype of the first."""
    known = [str(tensor.dtype) for tensor in _required(parameters)]
    return sized(word) if find_dtype(word) is not None or word in known else (known or ["T"])[0]


def _number(kind: str) -> str:
    """The type of a scalar that was written as a dtype."""
    dtype = find_dtype(kind)
    return "float" if dtype is None else dtype.kind
