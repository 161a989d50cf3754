"""Reasons and hints for text that is not a signature.

A hint is a valid form with the same meaning, or names the page for what the language cannot express. It never
changes the meaning: dropping the 128 of `D/128` would.
"""

from __future__ import annotations

import difflib
import re
import unicodedata

from kjit.dtypes import DTYPES, find_dtype
from kjit.signature.names import VARIABLE, Problem, quoted

BY_HAND = 'see "Adding a kernel by hand", docs/adding-a-kernel.md'
"""The page about ops that no scaffold serves."""

CHECK_BY_HAND = "check it in the kernel's run()"
"""The hint for sizes that the language cannot express."""

LANGUAGE = 'see "The signature", docs/commands.md'
"""The page about the language."""

EXAMPLE = "x: T[N], alpha: float = 2.0 -> out: T[N]"

_DIGITS = r"\d+(?:_\d+)*"
NUMBER = rf"(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
BRACKETS = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]"
"""The brackets of a type, also of a list."""
_QUOTES = "\"'`\u2018\u2019\u201c\u201d"
_CLOSING = {"(": ")", "<": ">", "{": "}"}
_ANY_SIZE = ("*", ":", "?", "-1", "_", "None")
_LISTS = ("list", "tuple", "sequence", "iterable", "tensorlist", "vector", "array")
_UNSIZED = ("tensor", "float", "double", "int", "shaped", "num", "array", "ndarray", "inexact", "real")
_IN_PLACE = ("inout", "ref", "mutable", "in_out", "mut")


def strange_character(text: str, column: int) -> Problem:
    """The problem with a character that has no meaning in a signature."""
    character = text[column]
    if character in _QUOTES:
        return _quoted(text, column)
    if is_in_shape(text, column) and character not in "…→" and not _closes_nothing(text, column):
        return computed_dimension(text, column)
    if text.startswith("<-", column):
        return Problem("'<-' is not an arrow.", "the outputs come last: inputs -> outputs")
    if character in "\u2014\u2013\u2212" and text.startswith(">", column + 1):
        return Problem(f"'{character}>' is not an arrow.", "an arrow is written '->'")
    if _is_in_default(text, column) and character in "()*/%<>&^|.@~!":
        return Problem("a default is a value, not an expression.", "write the value itself, such as 0.5")
    return Problem(
        f"the character {quoted(character)} has no meaning in a signature.", _meaning(text, column, character)
    )


def _meaning(text: str, column: int, character: str) -> str:
    """A hint for the probable meaning of a character."""
    before, after = text[:column].rstrip(), text[column + 1 :]
    if character in "⇒→➔⟶↦>":
        return "an arrow is written '->'"
    usual = unicodedata.normalize("NFKC", character)
    if usual != character and len(usual) == 1 and usual.isascii() and usual.isprintable():
        return f"write '{usual}'"
    if character in _CLOSING:
        return _bracket(text, column)
    if character in ")}":
        return "a shape is written in square brackets: T[N]"
    if character == ";":
        return "separate parameters with ','" if after.strip() else "leave it out"
    if character == "#":
        return "leave the comment out"
    if character in "|?":
        return _absent(text, column)
    if character in "*/" and re.search(r"(^|,)$", before) and re.match(r"\s*(,|->|$)", after):
        return "leave it out: parameters may be given by place and by name"
    if character == "*" and re.search(r"(^|[,*])$", before):
        name = re.match(r"\w+", after)
        if name is not None and not before.endswith("*"):
            return f"{name[0]}: list[T[N]], as an op has a fixed number of parameters"
        return f"an op has a fixed number of parameters; {BY_HAND}"
    if character in "*&" and (declared := re.search(r"(\w+)\s*$", before)) is not None:
        return _pointer(text, declared, after)
    if character in "&!":
        return "a tensor that is changed in place is written x: mut T[N]"
    if character == "." and before.endswith(tuple("abcdefghijklmnopqrstuvwxyz")) and re.match(r"\w", after):
        name = re.search(r"(\w+)\s*:\s*\w+$", before)
        called = name[1] if name is not None else "x"
        return no_type(called, re.match(r"\w+", after)[0], "")  # type: ignore[index]
    if character in ".…":
        return "any number of dimensions is written with three dots: T[...]"
    return f"for example: {EXAMPLE}; {LANGUAGE}"


def is_in_shape(text: str, column: int) -> bool:
    """Whether a column is between the brackets of a shape."""
    before = re.sub(r"'[^']*'|\"[^\"]*\"", "", text[:column])
    return before.count("[") > before.count("]")


def _closes_nothing(text: str, column: int) -> bool:
    """Whether a shape is closed here by the wrong bracket."""
    opened = text.rfind("[", 0, column)
    return text[column] in ")}>" and not any(mark in text[opened:column] for mark in "({<")


def _is_in_default(text: str, column: int) -> bool:
    return re.search(r"=(?![=>])[^,\[\]]*$", text[:column]) is not None and not text[:column].endswith("-")


def computed_dimension(text: str, column: int) -> Problem:
    """The problem with a dimension that is neither a name nor a number."""
    start = max(text.rfind("[", 0, column), text.rfind(",", 0, column)) + 1
    opened = text.rfind("(", start, text.find("]", column) if "]" in text[column:] else len(text))
    ends = [
        at for mark in ",]" if (at := text.find(mark, max(column, text.find(")", opened) if opened >= 0 else 0))) >= 0
    ]
    dimension = text[start : min(ends, default=len(text))].strip()
    if dimension in _ANY_SIZE:
        return Problem(
            f"'{dimension}' is not a dimension.",
            "a dimension of any size has a name: T[N, D]; any number of leading dimensions is written T[..., D]",
        )
    if re.fullmatch(r"\([\w\s.,]*\)?", dimension):
        return Problem("a shape has one pair of brackets.", "leave '(' and ')' out")
    if (fixed := re.fullmatch(r"(\w+)\s*[=:]\s*(\d+)", dimension)) is not None:
        return Problem(
            f"'{dimension}' is not a dimension.",
            f"write {fixed[2]} if that is fixed, else {fixed[1]}",
        )
    if re.fullmatch(r"\d+[A-Za-z_]\w*", dimension):
        return Problem(
            f"'{dimension}' is neither a name nor a number.",
            "a name begins with a letter; a product is written "
            + re.sub(r"(?<=\d)(?=[A-Za-z_])", "*", dimension, count=1),
        )
    return Problem(
        f"'{dimension}' is not a size: a size is a product or quotient, plus at most one name and a number.",
        f"for example 2*D, H*D, D/128, A+B or N+1; others get a name and are checked by hand: {BY_HAND}",
    )


def _quoted(text: str, column: int) -> Problem:
    plain = text.strip()
    if len(plain) > 1 and plain[0] in _QUOTES and plain[-1] in _QUOTES and text[:column].strip() == "":
        return Problem("the signature is quoted twice.", "leave them out")
    inside = re.match(rf".([^{_QUOTES}]*)", text[column:])
    word = inside[1].strip() if inside is not None else ""
    if is_in_shape(text, column) and re.search(r"\bLiteral\s*\[[^\]]*$", text[:column]) is None:
        if re.fullmatch(r"\w+", word):
            return Problem("the name of a dimension is not quoted.", f"write {word}")
        return Problem("a shape is not quoted.", f"write it after the dtype: T[{', '.join(word.split()) or 'N'}]")
    if _is_in_default(text, column) and re.fullmatch(rf"[+-]?{NUMBER}", word):
        return Problem("a number is not quoted.", f"write {word}")
    return Problem("a string is a choice, and follows a name.", 'for example: reduce: "sum" | "mean" = "sum"')


def _bracket(text: str, column: int) -> str:
    """A hint for an opening bracket other than `[`."""
    close = text.find(_CLOSING[text[column]], column)
    inside = text[column + 1 : close].strip() if close > column else ""
    before = text[:column]
    word = re.search(r"([\w.:]+)\s*$", before)
    if text[column] == "(" and (word is None or re.fullmatch(r"\s*(?:(?:def|void|auto)\s+)?\w+\s*", before)):
        if ":" in inside or word is None:
            surplus = "the brackets" if word is None else "the name and the brackets"
            return f"leave {surplus} out: {inside}{_rest(text, close)}"
        return f"for example: {EXAMPLE}; {LANGUAGE}"
    if word is not None and (find_dtype(word[1]) is not None or VARIABLE.fullmatch(word[1])) and inside:
        return f"a shape is written in square brackets: {word[1]}[{inside}]"
    if word is not None and re.split(r"[.:]+", word[1])[-1].lower() in _LISTS:
        name = re.search(r"(\w+)\s*:\s*[\w.:]+\s*$", before)
        return listed_type(name[1] if name is not None else "xs", inside).hint
    shape = inside if re.fullmatch(r"[\w, .]+", inside) else "N"
    return f"a shape is written in square brackets: T[{shape}]"


def _rest(text: str, close: int) -> str:
    rest = text[close + 1 :].strip() if close >= 0 else ""
    return f" {rest}" if rest.startswith("->") else ""


def _absent(text: str, column: int) -> str:
    """A hint for an optional parameter, as other languages write it."""
    parameter = re.search(r"(\w+)\s*:\s*(?:mut\s+)?((\w+)\s*(\[[^\]]*\])?)\s*$", text[:column])
    if parameter is not None and parameter[4]:
        return f"an optional parameter is written {parameter[1]}: Optional {parameter[2]} = None"
    if parameter is not None and parameter[3] in ("float", "int", "bool", "str"):
        return f"an optional parameter is written {parameter[1]}: Optional {parameter[3]} = None"
    return f"a parameter has one type; an optional tensor is written bias: Optional T[D] = None; else {BY_HAND}"


def _pointer(text: str, declared: re.Match[str], after: str) -> str:
    """A hint for a pointer or a reference: `float* x`, `x: T*`, `const T& x`."""
    name = re.search(r"(\w+)\s*:\s*(?:const\s+)?\w+\s*$", text[: declared.end()])
    called = name[1] if name is not None else (re.match(r"\s*(\w+)", after) or ["", "x"])[1]
    return f"a signature has no pointers and references; a tensor has a shape: {called}: {sized(declared[1])}[N]"


def sized(word: str) -> str:
    """The dtype that `word` probably means."""
    return {"float": "float32", "int": "int32"}.get(word, word)


def decimal(number: str) -> str:
    """A hint for a number such as 0x10."""
    try:
        return f"write {int(number, 0)}"
    except ValueError:
        return "for example: 16"


def no_type(name: str, word: str, rest: str) -> str:
    """A hint for `name: word`, where `word` is not a type; `rest` follows it in the text."""
    if (scoped := re.match(r"(?:\s*::\s*(\w+))+", rest)) is not None:
        word, rest = scoped[1], rest[scoped.end() :]
    lower = re.split(r"[.:]+", word)[-1].lower()
    tensor = re.match(rf"\s*((?:[A-Za-z]\w*)\s*{BRACKETS})", rest)
    if tensor is not None and lower in (*_IN_PLACE, "out"):
        return f"a tensor that is changed in place is written {name}: mut {tensor[1]}"
    if tensor is not None and lower == "optional":
        return f"{name}: Optional {tensor[1]} = None"
    if tensor is not None and lower in ("in", "input", "constexpr", "readonly"):
        return f"{name}: {tensor[1]}"
    if lower == "constexpr":
        kind = re.match(r"\s*(int|bool)\b", rest)
        is_bool = kind is not None and kind[1] == "bool"
        return f"{name}: const {'bool = True' if is_bool else 'int = 1'}, compiled into the kernel"
    if re.fullmatch(
        r"u?int(8|16|32|64|ptr)?(_t)?|s?size_t|unsigned|signed|long|short|char|integer|index|symint", lower
    ):
        return f"an integer is written {name}: int, and has 64 bits"
    if lower in ("number", "scalar", "real", "double", "fp64", "floating"):
        return f"a number is written {name}: float"
    if lower in ("boolean", "_bool"):
        return f"{name}: bool"
    if lower in _LISTS[:-1]:
        return f"a list of tensors is written {name}: list[T[N]]"
    if lower in ("tensor", "ndarray", "array", "jaxarray"):
        return f"a tensor has a dtype and a shape, as in {name}: T[...]"
    if lower in ("str", "string", "string_view", "stringview", "text", "literal", "enum", "char"):
        words = re.findall(r"[\"'](\w+)[\"']", rest.partition("]")[0])
        choices = " | ".join(f'"{word}"' for word in (words if len(words) > 1 else ("one", "other")))
        if lower in ("literal", "enum"):
            return f"a choice is written {name}: {choices}"
        return f"any text is written {name}: str, and a choice {name}: {choices}"
    near = difflib.get_close_matches(lower, ["float", "int", "bool"], n=1, cutoff=0.75)
    if near:
        return f"did you mean {name}: {near[0]}?"
    types = "T[N] (a tensor), list[T[N]], float, int, bool, str, const int and const bool"
    return f"the types are {types}; for others {BY_HAND}"


def listed_type(name: str, content: str) -> Problem:
    """The problem with `name: list[content]`, where `content` is not the type of one tensor."""
    words = re.findall(r"[A-Za-z]\w*", content)
    written = "mut list" if "mut" in words else "list"
    tensors = dict.fromkeys(re.findall(r"\b([A-Za-z]\w*)\s*(\[[^\[\]]*\])", content))
    types = [f"{_variable(dtype)}{shape}" for dtype, shape in tensors]
    if len(types) > 1:
        each = ", ".join(f"{name}{number}: {type_}" for number, type_ in enumerate(types))
        return Problem("the tensors of a list have one dtype and one shape.", f"a parameter for each: {each}")
    if types:
        return Problem("the tensors of a list have one dtype and one shape.", f"{name}: {written}[{types[0]}]")
    if "str" in words:
        return Problem("a list holds tensors.", f"a kernel takes no list of strings; {BY_HAND}")
    if {"int", "float", "bool", "double", "int64_t", "int32_t"} & set(words):
        dtype = {"float": "float32", "double": "float64", "bool": "bool"}.get(words[0], "int64")
        return Problem("a list holds tensors.", f"{name}: {dtype}[N], a tensor, has numbers")
    dtype = next((word for word in words if _variable(word) == word), "T")
    return Problem("a tensor in a list has a dtype and a shape.", f"{name}: {written}[{dtype}[...]]")


def _variable(word: str) -> str:
    """A dtype, or `T` for a word that is not one."""
    known = find_dtype(sized(word)) is not None or VARIABLE.fullmatch(word) is not None
    return sized(word) if known else "T"


def no_dtype(name: str, word: str, shape: str) -> Problem | None:
    """The problem with `name: word[shape]`, where `word` is the word of another language for a tensor or a dtype."""
    lower = re.split(r"[.:]+", word)[-1].lower()
    if lower in _LISTS:
        return Problem(f"'{word}' is not a tensor.", listed_type(name, shape).hint)
    if lower in ("dict", "mapping"):
        return Problem(f"'{word}' is not a tensor.", f"pass each entry as a parameter; {BY_HAND}")
    if lower in _UNSIZED:
        first, *others = [part.strip() for part in shape.split(",")]
        dtype = first if find_dtype(first) is not None or first in ("T", "U", "V") else "T"
        sizes = others if dtype == first else [part for part in (first, *others) if re.fullmatch(r"[A-Z]\w*|\d+", part)]
        return Problem(f"'{word}' has no dtype.", f"{name}: {dtype}[{', '.join(sizes) or '...'}]")
    if lower in ("optional", "mut"):
        return Problem(f"'{word}' is not a dtype.", f"{name}: {lower.replace('opt', 'Opt')} T[{shape}]")
    if word == "t" or re.fullmatch(r"[A-Z]{2,3}|dtype|DType|scalar_t|[tT]ype|Any", word):
        return Problem(
            f"'{word}' is neither a dtype nor a dtype variable.", "a dtype variable is a capital letter: write T"
        )
    return None


def suggest_dtype(text: str) -> str:
    """A hint for a name that is not a dtype: the nearest one, or the list of them."""
    plain = text.removeprefix("torch.").lower()
    if plain.startswith(("uint16", "uint32", "uint64")):
        return f"PyTorch has no arithmetic on that dtype; use int32 or int64, or {BY_HAND}"
    if re.match(
        r"complex|float4|fp4|nvfp4|mxfp|fp6|float6|e2m1|e8m0|float8_e8m0|q?u?int[1-7]\b|u?int4|qu?int|bits|tf32", plain
    ):
        return f"no scaffold has that dtype; {BY_HAND}"
    if plain in DTYPES:
        return f"write {DTYPES[plain].name}"
    names = list(dict.fromkeys(dtype.name for dtype in DTYPES.values()))
    near = difflib.get_close_matches(plain, names, n=1) or difflib.get_close_matches(plain, list(DTYPES), n=1)
    return f"did you mean {near[0]}?" if near else f"the dtypes are {', '.join(names)}"
