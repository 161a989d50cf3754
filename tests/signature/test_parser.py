"""kjit.signature.parser: signatures, errors, and the position of the caret."""

from __future__ import annotations

import re

import pytest
from drawn import signatures
from hypothesis import given
from hypothesis import strategies as st

from kjit.dtypes import DTYPES, find_dtype
from kjit.signature.hints import BRACKETS
from kjit.signature.parser import parse_signature
from kjit.signature.signature import Scalar, Signature, SignatureError, Tensor

EXAMPLES = [
    "x: T[N], alpha: float -> out: T[N]",
    "x: T[B, D], weight: T[D], eps: float = 1e-6 -> out: T[B, D]",
    "src: T[M, D], index: int64[N] -> out: T[N, D]",
    "x: mut T[N], amount: const int = 1",
    "a: T[B, D], b: T[B], c: T[D] -> out: T[B, D]",
    "x: T[N], y: U[N] -> out: T[N]",
    "q: int8[B, D], scale: float32[B] -> out: float32[B, D]",
    "x: T[N] -> low: T[N], high: T[N]",
    "x: T[B, D], bias: Optional T[D] = None -> out: T[B, D]",
    "x: T[...], causal: const bool -> out: T[...]",
    "y: T[N], x: mut Optional T[N] = None -> out: T[N]",
    "x: T[..., 128] -> out: bf16[..., 128]",
    "x: T[], n: int = -3, flag: bool = True -> out: T[]",
    "x: T[N] -> none: T[N]",
    'x: T[N], mode: "a" | "b" = "b" -> out: T[N]',
    "xs: list[T[N, D]], ys: mut list[T[N, D]], z: T[D] -> out: T[N, D]",
    "xs: list[int8[..., 8]] -> out: int8[..., 8]",
    'x: T[N], name: str, title: str = "a = b, c -> d", note: Optional str = None -> out: T[N]',
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_signature_is_read_and_written_back(text: str) -> None:
    signature = parse_signature(text)
    assert parse_signature(str(signature)) == signature


def test_a_signature_is_a_value() -> None:
    signature = parse_signature("x: mut T[B, 8], y: float16[...], a: float = 2, k: const int = 1 -> out: T[B, 8]")
    assert signature == Signature(
        parameters=(
            Tensor("x", "T", ("B", 8), mutable=True),
            Tensor("y", DTYPES["fp16"], ("...",)),
            Scalar("a", "float", default=2.0),
            Scalar("k", "int", constant=True, default=1),
        ),
        outputs=(Tensor("out", "T", ("B", 8)),),
    )
    assert signature.variables == ("T",)
    assert signature.dimensions == ("B",)
    assert [tensor.name for tensor in signature.mutated] == ["x"]
    assert [scalar.name for scalar in signature.scalars] == ["a"]
    assert [scalar.name for scalar in signature.constants] == ["k"]


@pytest.mark.parametrize("name", ["fp32", "float32", "fp32_t", "torch.float32", "f32"])
def test_a_dtype_may_be_named_as_in_torch_in_cpp_or_for_short(name: str) -> None:
    assert parse_signature(f"x: {name}[N] -> y: {name}[N]").tensors[0].dtype == DTYPES["float32"]


@pytest.mark.parametrize(("text", "value"), [("1_000", 1000), ("-1_0", -10), ("2_147_483_648", 2**31)])
def test_a_number_may_have_underscores_as_in_python(text: str, value: int) -> None:
    signature = parse_signature(f"x: T[N, 4_096], n: int = {text}, a: float = 1_0.5e1_0 -> out: T[N, 4096]")
    assert [scalar.default for scalar in signature.scalars] == [value, 10.5e10]
    assert signature.inputs[0].shape == signature.outputs[0].shape


LONG = "a_name_with_letters_up_to_28"


@pytest.mark.parametrize(
    ("text", "caret_at", "reason", "hint"),
    [
        ("", "", "empty", "for example"),
        ("   ", "", "empty", "for example"),
        ("x T[N]", "T[N]", "expected ':'", "x: T[N]"),
        ("x: -> out: T[N]", "->", "expected a type for 'x'", "x: T[N]"),
        ("x: T[N], b: Optional[T[N]] -> out: T[N]", "[T[N]]", "expected a type for 'b'", "b: Optional T[N] = None"),
        ("x: mut -> out: T[N]", "->", "expected a type for 'x'", "x: mut T[N]"),
        ("x: const -> out: T[N]", "->", "expected a type for 'x'", "x: const int = 1"),
        ("x: T -> out: T[N]", "->", "expected '['", "x: T[...] for a tensor"),
        ("x: T[N) -> out: T[N]", ") ->", "')' has no meaning", "square brackets"),
        ("x: T[N -> out: T[N]", "->", "',' or ']'", "T[N]"),
        ("x: bf16[B, D: float -> out: T[N]", ": float", "',' or ']'", "bf16[B, D]"),
        ("x: T[B D] -> out: T[B, D]", "D] -> ", "',' or ']'", "T[B, D]"),
        ("x: T[N, -> out: T[N]", "->", "expected a dimension", "T[B, D]"),
        ("x: T[0] -> out: T[N]", "0]", "at least 1", "T[N, 8]"),
        ("x: T[1.5] -> out: T[N]", "1.5]", "an integer", "T[N, 8]"),
        ("x: T[..., ...] -> out: T[...]", "...] ->", "twice", "T[..., D]"),
        ("x: flaot -> out: T[N]", "flaot", "'flaot' is not a type", "x: float"),
        ("x: bfloat[N] -> out: T[N]", "bfloat", "neither a dtype", "bfloat16"),
        ("x: uint32[N] -> out: T[N]", "uint32", "neither a dtype", "int32 or int64"),
        ("x: TT[N] -> out: TT[N]", "TT[N] ->", "neither a dtype", "write T"),
        ("x: int[N] -> out: T[N]", "int", "size of 'int' elements", "int32[N]"),
        ("x: T[N] y: T[N] -> out: T[N]", "y:", "expected ',' or '->'", "x: T[N], y: ..."),
        ("x: T[N] - > out: T[N]", "- >", "not an arrow", "'->'"),
        ("x: T[N] => out: T[N]", "=>", "not an arrow", "'->'"),
        ("x: T[N] → out: T[N]", "→", "no meaning", "'->'"),
        ("x: T[N] ->", "", "expected an output", "-> out: T[N]"),
        ("x: T[N], y: T[N] -> T[N]", "T[N]", "the name of an output and ':' before its type 'T'", "-> out: T[N]"),
        ("x: T[N], out: T[N] -> T[N]", "T[N]", "the name of an output", "-> out2: T[N]"),
        ("x: T[B, D] -> out: T[B, D], bf16[B, D]", "bf16", "the name of an output", "out2: bf16[B, D]"),
        ("x: T[N] -> T", "T", "the name of an output", "-> out: T[N]"),
        ("x: T[N] -> float[N", "float", "the name of an output", "-> out: float32[N]"),
        ("T[N] -> out: T[N]", "T[N] ->", "the name of a parameter and ':' before its type 'T'", "x: T[N]"),
        ("x: T[N], T[...] -> out: T[N]", "T[...]", "the name of a parameter", "x2: T[...]"),
        ("-> out: T[N]", "out", "takes nothing", "for example: x: T[N] -> out: T[N]"),
        ("-> x: T[B, D]", "x", "takes nothing", "for example: x2: T[B, D] -> x: T[B, D]"),
        ("x: T[N], s: float = 1/3 -> out: T[N]", "/", "not an expression", "the value itself"),
        ("x: T[N], n: int = 2**10 -> out: T[N]", "**10", "not an expression", "the value itself"),
        ('x: T[N], m: "sum" -> out: T[N]', "m:", "only one choice", 'm: "sum" | "other"'),
        ('x: T[N], m: "sum" | "for" -> out: T[N]', '"for"', "an enumerator in C++", "no keyword"),
        ('x: T[N], m: "a" | "b" = "c" -> out: T[N]', '"c"', "not one of the choices", 'm: "a" | "b" = "a"'),
        ('x: T[N], m: "a" | "b" = b -> out: T[N]', "b ->", "not one of the choices", 'm: "a" | "b" = "b"'),
        ('x: T[N], m: "a" | "a" -> out: T[N]', '"a" ->', "is repeated", "leave one"),
        ('x: T[N], m: "a" | b -> out: T[N]', "b ->", "a word in quotes after '|'", 'm: "a" | "other"'),
        ('x: T[N], m: Literal["a", "b"] -> out: T[N]', '"a", ', "a string is a choice", '"sum" | "mean"'),
        ("x: T[N], m: string -> out: T[N]", "string", "not a type", 'm: str, and a choice m: "one" | "other"'),
        ("x: T[N], m: const str -> out: T[N]", "str", "only int and bool", 'm: "one" | "other" for a variant of each'),
        ("x: T[N], m: mut str -> out: T[N]", "str", "only a tensor can be mut", "m: str, which is only read"),
        ("x: T[N], m: str = 3 -> out: T[N]", "3", "expected a text in quotes", 'm: str = "text"'),
        ("x: T[N], m: str = 'a\\n' -> out: T[N]", "'a", "plain ASCII letters", "m: str without a default"),
        ("x: T[N], m: str = 'ä' -> out: T[N]", "'ä", "plain ASCII letters", "m: str without a default"),
        ("xs: list[T] -> out: T[N]", "T] ->", "has a dtype and a shape", "xs: list[T[...]]"),
        ("xs: Tuple[T[N], T[N]] -> out: T[N]", "Tuple", "'Tuple' is not a tensor", "xs: list[T[N]]"),
        ("xs: list[] -> out: T[N]", "] ->", "has a dtype and a shape", "xs: list[T[...]]"),
        ("xs: list[T[N], T[M]] -> out: T[N]", ", T[M]", "one dtype and one shape", "xs0: T[N], xs1: T[M]"),
        ("xs: list[T[N] -> out: T[N]", "-> ", "expected ']' after 'T[N]'", "xs: list[T[N]]"),
        ("xs: list[T[N] strided] -> out: T[N]", "strided", "contiguous", "xs: list[T[N]]"),
        ("xs: list[T[N]] strided -> out: T[N]", "strided", "contiguous", "xs: list[T[N]]"),
        ("xs: list[T[N]] = None -> out: T[N]", "= None", "required argument", "xs: list[T[N]]"),
        ("xs: const list[T[N]] -> out: T[N]", "xs:", "given at run time", "xs: list[T[N]]"),
        ("x: T[N] -> out: list[T[N]]", "list", "an output is one tensor", "out: mut list[T[N]]"),
        ("xs: list[uint32[N]] -> out: T[N]", "uint32", "neither a dtype", "int32 or int64"),
        ("xs: list[T[A*B]] -> out: T[A]", "xs:", "does not determine A and B", "xs: list[T[N]]"),
        ("xs: list[T[N]]", "xs:", "changes nothing", "or write xs: mut list[T[N]]"),
        ("x: T[N], s: Optional float -> out: T[N]", "->", "its default is None", "s: Optional float = None"),
        ("x: T[N], s: Optional int = 3 -> out: T[N]", "= 3", "its default is None", "s: Optional int = None"),
        ("x: T[N], s: float | None = None -> out: T[N]", "| None", "no meaning", "s: Optional float = None"),
        ("x: T[N], s: Optional[float] = None -> out: T[N]", "[float]", "expected a type", "s: Optional float = None"),
        ("x: T[N], s: float = None -> out: T[N]", "None ->", "is required", "s: Optional float = None"),
        ("x: T[N, 4*-64] -> out: T[N, 256]", "-64", "'4*-64' is not a size", "2*D, H*D, D/128"),
        ("x: T[N, D/0] -> out: T[N, D]", "0]", "divided by 0", "D/128"),
        ("x: T[N, 9/2] -> out: T[N]", "9/2", "9 is not divisible by 2", "T[N, 8]"),
        ("x: T[4611686018427387904*2] -> out: T[N]", "2]", "fits in 64 bits, not 4611686018427387904 * 2", "T[N, 8]"),
        ("x: T[N, 3-8] -> out: T[N]", "3-8", "not -5", "T[N, 8]"),
        ("x: T[A*B] -> out: T[A]", "x:", "'A*B' of 'x' does not determine A and B", "x: T[N]"),
        ("x: T[N], y: T[A, A*N*A] -> out: T[A]", "A*N", "at most two names, and this has 3", "a name of its own"),
        ("x: T[N, D/2/2] -> out: T[N]", "/2]", "one division, at its end", "2*D/128"),
        ("x: T[N, D/2*2] -> out: T[N]", "*2]", "one division, at its end", "2*D/128"),
        ("x: T[N, D-N] -> out: T[N]", "D-N", "plus at most one name and a number", "A+B or N+1"),
        ("x: T[A, B], y: T[A*2+B*3] -> out: T[A]", "A*2", "plus at most one name", "a name of its own"),
        ("x: T[N, D], w: T[D/N] -> out: T[N]", "w:", "'D/N' of 'w' is divided by 'N'", "n: const int = 128, and D/n"),
        ("x: T[N, 2D] -> out: T[N]", "D]", "'2D' is neither a name nor a number", "2*D"),
        ("x: T[N, D], g: const int = 0 -> s: T[N, D/g]", "g:", "0 is not a size", "g: const int = 1"),
        ("x: T[N], n: int -> out: T[n]", "out:", "a dimension here and a parameter", "n: const int = 8"),
        ("x: T[N], y: Optional T[2*M*K] = None -> out: T[N]", "y:", "does not determine M and K", "y: Optional T["),
        ("x: T[N] -> out: T[M*2]", "out:", "dimension 'M' of 'out' is unknown", "(N)"),
        ("x: T[...] strided -> out: T[...]", "strided", "any number of dimensions", "x: T[N, D] strided"),
        ("x: T[] strided, y: T[N] -> out: T[N]", "strided", "'x' has none", "x: T[N, D] strided"),
        ("x: T[N] -> out: T[N] strided", "strided", "an output is contiguous", "out: mut T[N] strided"),
        ("x: T[N], s2*3: float -> out: T[N]", "*3", "no meaning", "no pointers"),
        ("x: T[N], s: int = 0x10 -> out: T[N]", "0x10", "not a decimal number", "write 16"),
        ("x: T[N, 0b1000] -> out: T[N]", "0b1000", "not a decimal number", "write 8"),
        ("x: T[N], s: int = 0xfg -> out: T[N]", "0xfg", "not a decimal number", "for example: 16"),
        ("x: T[N] -> out: float", "", "an output is a tensor", "out: float32[N]"),
        ("x: T[N] -> out: mut T[N]", "mut", "cannot be mut", "out: T[N]"),
        ("x: T[N] -> out: T[N] = None", "= None", "no default", "out="),
        ("x: T[N] -> out: T[N] z", "z", "expected ',' or the end", "separated by ','"),
        ("x: const T[N] -> out: T[N]", "T[N] ->", "cannot be const", "x: T[...]"),
        ("x: const float -> out: T[N]", "float", "only int and bool", "x: float, which is given at run time"),
        ("x: mut float -> out: T[N]", "float", "only a tensor", "x: float"),
        ("x: Optional mut T[N] = None -> out: T[N]", "x:", "in that order", "x: Optional T[N] = None"),
        ("x: T[N], b: Optional T[N] -> out: T[N]", "->", "no default", "= None"),
        ("x: T[N], b: T[N] = None -> out: T[N]", "= None", "not Optional", "Optional T[N] = None"),
        ("x: T[N] = 3 -> out: T[N]", "3", "only be None", "Optional"),
        ("x: T[N], n: int = 2.5 -> out: T[N]", "2.5", "whole number", "n: int = 2"),
        ("y: T[N], x: mut T[N] = None", "= None", "not Optional", "x: mut T[N]"),
        ("y: T[N], x: mut T[N] = 3", "3", "only be None", "x: mut T[N]"),
        ("y: T[N], x: mut Optional T[N] -> out: T[N]", "->", "no default", "x: mut T[N]"),
        ("x: mut T[N] -> None", "None", "'None' is not an output", "leave '-> None' out"),
        ("x: mut T[N] -> void", "void", "'void' is not an output", "leave '-> void' out"),
        ("x: mut T[N] -> none", "none", "'none' is not an output", "leave '-> none' out"),
        ("x: mut T[N] -> None: T[N]", "None", "keyword of Python", "for example: none"),
        ("x: T[N] -> void: T[N]", "void", "keyword of C++", "for example: void_in"),
        (
            "x: T[N], k: const int = 1e3 -> out: T[N]",
            "1e3",
            "whole number",
            "k: const int = 1000, or k: float = 1000.0",
        ),
        ("x: T[N], n: int = -1.5e3 -> out: T[N]", "-1.5e3", "whole number", "n: int = -1500, or n: float = -1500.0"),
        ("x: T[N], n: int = 1e30 -> out: T[N]", "1e30", "whole number", "n: float = 1e+30"),
        ("x: T[N], n: const int = 1e999 -> out: T[N]", "1e999", "whole number", "n: const int = 1"),
        ("x: T[N], n: const int = one -> out: T[N]", "one", "whole number", "n: const int = 1"),
        ("x: T[N], f: const bool = yes -> out: T[N]", "yes", "True or False", "f: const bool = True"),
        ("x: T[N], n: int = 1 _k -> out: T[N]", "_k", "expected ',' or '->'", "for example"),
        ("x: T[N], n: int = one -> out: T[N]", "one", "whole number", "n: int = 1"),
        ("x: T[N], f: bool = true -> out: T[N]", "true", "True or False", "True"),
        ("x: T[N], a: float = 1e999 -> out: T[N]", "1e999", "too large", "1e-6"),
        (
            "x: T[N], a: float = 1e-320 -> out: T[N]",
            "1e-320",
            "close to 0",
            "a: float = 0.0, or 2.2250738585072014e-308",
        ),
        ("x: T[N], a: float = -1e-310 -> out: T[N]", "-1e-310", "close to 0", "0.0, or -2.2250738585072014e-308"),
        ("x: T[N], a: float = 1e-999 -> out: T[N]", "1e-999", "close to 0", "0.0, or 2.2250738585072014e-308"),
        ("x: T[4294967296, 4294967296]", "4294967296]", "has 18446744073709551616 bytes", "T[4294967296, N]"),
        ("x: float64[N, 1152921504606846976]", "1152921504606846976]", "9223372036854775808 bytes", "float64[N, N1]"),
        ("x: T[N], n: int = 9223372036854775808 -> out: T[N]", "9223372036854775808", "64 bits", "9223372036854775807"),
        ("class: T[N] -> out: T[N]", "class", "keyword of Python", "class_in"),
        ("x: T[N], X: T[N] -> out: T[N]", "X:", "capital letters", "x"),
        ("x: T[N], x: T[N] -> out: T[N]", "x: T[N] ->", "used twice", "x2"),
        ("x: T[N], x2: T[N], x: T[N] -> out: T[N]", "x: T[N] ->", "used twice", "such as x3"),
        ("x: T[x2], x: T[N] -> out: T[N]", "x: T[N] ->", "used twice", "such as x3"),
        (f"{LONG}: T[N], {LONG}: T[N]", f"{LONG}: T[N]", "used twice", f"such as {LONG[:27]}2"),
        ("x: T[N], y: N[N] -> out: T[N]", "y:", "dtype variable here and a dimension elsewhere", "another name"),
        ("x: T[N], a: float = 1, y: T[N] -> out: T[N]", "y:", "no default and follows 'a'", "move 'y'"),
        ("alpha: float -> out: float32[4]", "alpha", "no required tensor", "for example"),
        ("x: Optional T[N] = None -> out: T[4]", "x:", "no required tensor", "for example"),
        ("x: T[N]", "x:", "changes nothing", "x: mut T[N]"),
        ("out: T[N]", "out:", "changes nothing", "(out: T[N] -> out2: T[N])"),
        ("x: T[out]", "x:", "changes nothing", "(x: T[out] -> out2: T[out])"),
        ("x: T[N] -> out: T[M]", "out:", "dimension 'M' of 'out' is unknown", "(N)"),
        ("x: T[N] -> out: T[...]", "out:", "dimension '...'", "(N)"),
        ("x: T[N] -> out: U[N]", "out:", "'U' of 'out'", "(T)"),
    ],
)
def test_what_is_wrong_is_said_and_pointed_at(text: str, caret_at: str, reason: str, hint: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(text)
    error = caught.value
    assert reason in error.reason
    assert hint in (error.hint or "")
    assert error.column == (text.rindex(caret_at) if caret_at else error.column)
    excerpt, caret = error.message.splitlines()[1:]
    assert (excerpt, caret) == (f"    {text}", f"    {' ' * error.column}^")


BY_HAND = 'see "Adding a kernel by hand", docs/adding-a-kernel.md'


# What authors of kernels write, and what the language cannot say.
UNSAID = [
    ("x: T[B, D] -> out: T[B, (D + 7) // 8]", "(D", "'(D + 7) // 8' is not a size"),
    ("x: T[cdiv(N, 8)] -> out: T[N]", "(N, 8)", "'cdiv(N, 8)' is not a size"),
    ("x: T[B, D % 8] -> out: T[B, D]", "% 8", "'D % 8' is not a size"),
    ("xs: dict[str, T[N]] -> out: T[N]", "dict", "'dict' is not a tensor"),
    ("xs: list[str], y: T[N] -> out: T[N]", "str", "a list holds tensors"),
    ("x: T[N], **kwargs -> out: T[N]", "**kwargs", "no meaning"),
    ("x: complex64[N] -> out: complex64[N]", "complex64[N] ->", "neither a dtype"),
    ("x: fp4[N] -> out: bf16[N]", "fp4", "neither a dtype"),
    ("x: uint32[N] -> out: T[N]", "uint32", "neither a dtype"),
    ("x: T[N], stream: cudaStream_t -> out: T[N]", "cudaStream_t", "not a type"),
    ("x: T[N], to: torch.dtype -> out: T[N]", "torch.dtype", "not a type"),
    ("x: T[B, D] -> out: T[B, M]", "out:", "'M' of 'out' is unknown"),
    ("x: T[N] -> out: U[N]", "out:", "'U' of 'out'"),
]


@pytest.mark.parametrize(("text", "caret_at", "reason"), UNSAID)
def test_what_the_language_cannot_say_ends_with_the_page_that_helps(text: str, caret_at: str, reason: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(text)
    assert reason in caught.value.reason
    assert caught.value.column == text.rindex(caret_at)
    assert (caught.value.hint or "").endswith(BY_HAND)


# What authors write of sizes, and how it is shown.
COMPUTED = [
    ("x: T[B, 2 * D] -> out: T[B, D]", "x: T[B, 2*D] -> out: T[B, D]"),
    ("x: T[B, D*2] -> out: T[B, D]", "x: T[B, 2*D] -> out: T[B, D]"),
    ("x: bf16[B, D] -> q: fp8[B, D], s: float32[B, D // 128]", None),
    ("x: T[B, D], G: const int = 128 -> s: float32[B, D/G]", None),
    ("x: T[N, 4*64] -> out: T[N, 256]", "x: T[N, 256] -> out: T[N, 256]"),
    ("x: T[N, 4*D/2] -> out: T[N, D]", "x: T[N, 2*D] -> out: T[N, D]"),
    ("x: T[N, 1+D] -> out: T[N, D]", "x: T[N, D+1] -> out: T[N, D]"),
    ("a: T[N, A], b: T[N, B] -> out: T[N, A + B]", None),
    ("x: T[H, D], y: T[3+D+H*2-1] -> out: T[D]", "x: T[H, D], y: T[2*H+D+2] -> out: T[D]"),
    ("q: mut T[N, H, D] strided, k: mut T[N, K, D] strided", None),
    ("x: T[B, D-1] -> out: T[B, D]", None),
    ("x: T[N], how: 'sum'|'mean' = 'mean' -> out: T[N]", 'x: T[N], how: "sum" | "mean" = "mean" -> out: T[N]'),
    ("x: T[N], scale: Optional float = None, k: Optional int = None -> out: T[N]", None),
]


@pytest.mark.parametrize(("text", "shown"), COMPUTED)
def test_sizes_that_follow_from_others_are_read(text: str, shown: str | None) -> None:
    signature = parse_signature(text)
    assert parse_signature(str(signature)) == signature
    if shown is not None:
        assert str(signature) == str(parse_signature(shown)) == shown


# What authors write in other languages' words, and what of it is meant: each hint, followed, says just that.
MEANT = [
    ("x: T[N], b: T[N] | None = None -> out: T[N]", "x: T[N], b: Optional T[N] = None -> out: T[N]"),
    ("x: T[N], b: Optional[T[B, D]] = None -> out: T[N]", "x: T[N], b: Optional T[B, D] = None -> out: T[N]"),
    ("x: T[N], b: Optional[Tensor] -> out: T[N]", "x: T[N], b: Optional T[...] = None -> out: T[N]"),
    ("x: T[N], b: bf16[D]? -> out: T[N]", "x: T[N], b: Optional bf16[D] = None -> out: T[N]"),
    ("x: T[N], b: optional T[D] -> out: T[N]", "x: T[N], b: Optional T[D] = None -> out: T[N]"),
    ("xs: List[T[B, D]] -> out: T[B, D]", "xs: list[T[B, D]] -> out: T[B, D]"),
    ("xs: list[torch.Tensor] -> out: T[...]", "xs: list[T[...]] -> out: T[...]"),
    ("xs: std::vector<Tensor> -> out: T[...]", "xs: list[T[...]] -> out: T[...]"),
    ("x: std::vector<float> -> out: float32[N]", "x: float32[N] -> out: float32[N]"),
    ("xs: list[int], y: T[N] -> out: T[N]", "xs: int64[N], y: T[N] -> out: T[N]"),
    ("xs: list[float[N]] -> out: float32[N]", "xs: list[float32[N]] -> out: float32[N]"),
    ("xs: mut list[T], y: T[N]", "xs: mut list[T[...]], y: T[N]"),
    ("xs: list[mut T[N]]", "xs: mut list[T[N]]"),
    ("xs: inout list[T[N]]", "xs: mut list[T[N]]"),
    ("xs: list[list[T[N]]] -> out: T[N]", "xs: list[T[N]] -> out: T[N]"),
    ("xs: T[N][] -> out: T[N]", "xs: list[T[N]] -> out: T[N]"),
    ("xs: list -> out: T[N]", "xs: list[T[N]] -> out: T[N]"),
    ("*xs -> out: T[N]", "xs: list[T[N]] -> out: T[N]"),
    ("list[T[N]] xs -> out: T[N]", "xs: list[T[N]] -> out: T[N]"),
    ("y: T[N], xs list[T[N]] -> out: T[N]", "y: T[N], xs: list[T[N]] -> out: T[N]"),
    ("x: T[N], m: std::string_view -> out: T[N]", "x: T[N], m: str -> out: T[N]"),
    ("x: T[N], m: str | None = None -> out: T[N]", "x: T[N], m: Optional str = None -> out: T[N]"),
    ("x: torch.Tensor, a: float -> out: T[...]", "x: T[...], a: float -> out: T[...]"),
    ("x: Tensor[float32] -> out: float32[...]", "x: float32[...] -> out: float32[...]"),
    ("x: Tensor[bf16, B, D] -> out: bf16[B, D]", "x: bf16[B, D] -> out: bf16[B, D]"),
    ("x: Tensor[B, 64] -> out: T[B, 64]", "x: T[B, 64] -> out: T[B, 64]"),
    ("x: float[B, D] -> out: float32[B, D]", "x: float32[B, D] -> out: float32[B, D]"),
    ("x: inout T[B, D]", "x: mut T[B, D]"),
    ("x: Mut bf16[N]", "x: mut bf16[N]"),
    ("x: T[N], n: size_t -> out: T[N]", "x: T[N], n: int -> out: T[N]"),
    ("x: T[N], n: uint64_t -> out: T[N]", "x: T[N], n: int -> out: T[N]"),
    ("x: T[N], a: flaot -> out: T[N]", "x: T[N], a: float -> out: T[N]"),
    ("x: T[N], f: boolean -> out: T[N]", "x: T[N], f: bool -> out: T[N]"),
    ("x: T[N], a = 2.0 -> out: T[N]", "x: T[N], a: float = 2.0 -> out: T[N]"),
    ("x: T[N], n = 2 -> out: T[N]", "x: T[N], n: int = 2 -> out: T[N]"),
    ("x: T[N], f = True -> out: T[N]", "x: T[N], f: bool = True -> out: T[N]"),
    ("x: T[N], a float -> out: T[N]", "x: T[N], a: float -> out: T[N]"),
    ("x: T[B, D], y T[B, D] -> out: T[B, D]", "x: T[B, D], y: T[B, D] -> out: T[B, D]"),
    ("x: T[N], a: float = True -> out: T[N]", "x: T[N], a: bool = True -> out: T[N]"),
    ("x: T[N], e: const float -> out: T[N]", "x: T[N], e: float -> out: T[N]"),
    ("x: T[N], k: tl.constexpr -> out: T[N]", "x: T[N], k: const int = 1 -> out: T[N]"),
    ("x: T[B, D] -> out: float32", "x: T[B, D] -> out: float32[B, D]"),
    ("x: T[B, D] -> out", "x: T[B, D] -> out: T[B, D]"),
    ("x: T[B, D] -> T", "x: T[B, D] -> out: T[B, D]"),
    ("x: T[B, D] -> out: mut T[B, D]", "x: T[B, D] -> out: T[B, D]"),
    ("float32 x[N] -> out: float32[N]", "x: float32[N] -> out: float32[N]"),
    ("T[B, D] x -> out: T[B, D]", "x: T[B, D] -> out: T[B, D]"),
    ("x: T[N], y: T[N] = zeros -> out: T[N]", "x: T[N], y: T[N] -> out: T[N]"),
    ("x: T[N], a: float = inf -> out: T[N]", "x: T[N], a: float -> out: T[N]"),
    ("x: T[N], a float = 2.0 -> out: T[N]", "x: T[N], a: float = 2.0 -> out: T[N]"),
    ("x: T[N], n = -2 -> out: T[N]", "x: T[N], n: int = -2 -> out: T[N]"),
    ("x: T[N], a = -2.5e+3 -> out: T[N]", "x: T[N], a: float = -2.5e+3 -> out: T[N]"),
    ("x: T[N], m bool[N] -> out: T[N]", "x: T[N], m: bool[N] -> out: T[N]"),
    ("x: T[N], m: Optional[bool[N]] = None -> out: T[N]", "x: T[N], m: Optional bool[N] = None -> out: T[N]"),
    ("x: T[N], m: Optional[float[N]] = None -> out: T[N]", "x: T[N], m: Optional float32[N] = None -> out: T[N]"),
]


@pytest.mark.parametrize(("text", "meant"), MEANT)
def test_a_form_that_a_hint_offers_is_read_and_says_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(text)
    assert followed(text, caught.value) == parse_signature(meant)


OFFER = re.compile(
    rf"[a-z]\w*: (?:mut |Optional |const )*(?!a\b)[A-Za-z]\w*(?:{BRACKETS})?(?: = (?:[\w.+-]+|\"[^\"]*\"))?"
)


def followed(text: str, error: SignatureError) -> Signature:
    """The signature after the part at the caret is replaced by the first form in the hint."""
    parts = re.split(r"(, (?![^\[]*\])| -> )", text)
    starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
    at = max(number for number, start in enumerate(starts[::2]) if start <= error.column) * 2
    offer = OFFER.search(error.hint or "")
    assert offer is not None, error.hint
    return parse_signature("".join([*parts[:at], offer[0], *parts[at + 1 :]]))


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("(x: T[N]) -> out: T[N]", "'('", "leave the brackets out: x: T[N] -> out: T[N]"),
        ("silu(x: T[N]) -> out: T[N]", "'('", "leave the name and the brackets out: x: T[N] -> out: T[N]"),
        ("x: T(B, D) -> out: T[B, D]", "'('", "square brackets: T[B, D]"),
        ("x: T<N> -> out: T[N]", "'<'", "square brackets: T[N]"),
        ("x: T[(B, D)] -> out: T[B, D]", "one pair of brackets", "leave '(' and ')' out"),
        ("x: T[B][D] -> out: T[B]", "expected ','", "x: T[B, D]"),
        ("x: T[*, D] -> out: T[*, D]", "'*' is not a dimension", "T[..., D]"),
        ("x: T[:, D] -> out: T[:, D]", "':' is not a dimension", "T[..., D]"),
        ("x: T[-1, D] -> out: T[-1, D]", "'-1' is not a dimension", "T[..., D]"),
        ("x: T[N = 128] -> out: T[N]", "'N = 128' is not a dimension", "write 128"),
        ('x: T["N"] -> out: T["N"]', "not quoted", "write N"),
        ('"x: T[N] -> out: T[N]"', "quoted twice", "leave them out"),
        ("x: T[B x D] -> out: T[B, D]", "',' or ']'", "separate dimensions with ','"),
        ("x: T[B, 2*D strided -> out: T[B, D]", "found 'strided'", "T[B, 2*D]"),
        ("x: T[N], a: float = 1.0f -> out: T[N]", "found 'f'", "no suffix: a: float = 1.0"),
        ("x: T[N], a: float = math.pi -> out: T[N]", "not an expression", "the value itself"),
        ('x: T[N], a: float = "1" -> out: T[N]', "not quoted", "write 1"),
        ("x: T[N], *, a: float -> out: T[N]", "'*'", "leave it out"),
        ("const float* x, int n", "'*'", "no pointers and references; a tensor has a shape: x: float32[N]"),
        ("x: const T& -> out: T[N]", "'&'", "x: T[N]"),
        ("x: T[N] : out: T[N]", "found ':'", "x: T[N] -> out: ..."),
        ("x: T[N] out: T[N]", "found 'out'", "x: T[N] -> out: ..."),
        ("x: T[N], out: T[N]", "changes nothing", "x: T[N] -> out: T[N]; or out: mut T[N]"),
        ("x: T[N] -> x: T[N]", "used twice", "x: mut T[N]"),
        ("x: T[N] \u2014> out: T[N]", "not an arrow", "'->'"),
        ("x: T[N] \u21d2 out: T[N]", "no meaning", "'->'"),
        ("out: T[N] <- x: T[N]", "not an arrow", "inputs -> outputs"),
        ("x\uff1a T[N] -> out: T[N]", "no meaning", "write ':'"),
        ("x: T[N] -> out: T[N];", "';'", "leave it out"),
        ("x: T[N] -> out: T[N]  # rms", "'#'", "leave the comment out"),
        ("x: t[N] -> out: t[N]", "neither a dtype", "write T"),
        ("x: T[N], \u03b1: float -> out: T[N]", "plain ASCII", "for example: alpha"),
        ("x: T[\u00d1] -> out: T[N]", "plain ASCII", "for example: N"),
        ("x: T[N], dtype: int -> out: T[N]", "would hide", "for example: in_dtype"),
    ],
)
def test_a_spelling_of_another_language_has_a_hint_how_to_write_it_here(text: str, reason: str, hint: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(text)
    assert reason in caught.value.reason
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("before", ["n: int = ", "a: float = ", "y: T[N, "])
def test_a_number_that_python_would_not_read_is_refused_in_one_place(before: str) -> None:
    with pytest.raises(SignatureError, match="a number of 5000 characters is too long") as caught:
        parse_signature(f"x: T[N], {before}{'9' * 5000}")
    assert caught.value.column == len(f"x: T[N], {before}")


def test_a_caret_stands_right_below_a_signature_of_several_lines() -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature("x: T[N],\n\ty: T[N} -> out: T[N]")
    excerpt, caret = caught.value.message.splitlines()[1:]
    assert excerpt[caret.index("^")] == "}"


@given(signatures())
def test_every_signature_survives_being_written_and_read(signature: Signature) -> None:
    assert parse_signature(str(signature)) == signature


# How other languages write a parameter that is written as the first form here.
FOREIGN = [
    (r"(\w+): mut (.+)", r"\1: inout \2"),
    (r"(\w+): mut (.+)", r"\1: Mut \2"),
    (r"(\w+): Optional (.+) = None", r"\1: \2 | None = None"),
    (r"(\w+): Optional (.+) = None", r"\1: \2?"),
    (r"(\w+): Optional (.+) = None", r"\1: optional \2"),
    (r"(\w+): Optional (.+) = None", r"\1: Optional[\2] = None"),
    (r"(\w+): (?:float|int|bool) = (.+)", r"\1 = \2"),
    (r"(\w+): (float|int|bool)( = .+)", r"\1 \2\3"),
    (r"(\w+): (\w+\[.*\])", r"\2 \1"),
    (r"(\w+): (\w+\[.*\])", r"\1 \2"),
    (r"(\w+): (?!list\b)(\w+)\[(.+)\]", r"\1: Tensor[\2, \3]"),
    (r"(\w+): list\[(.*)\]", r"\1: List[\2]"),
    (r"(\w+): list\[(.*)\]", r"\1: \2[]"),
]


@given(signatures(), st.integers(0, 99), st.sampled_from(FOREIGN))
def test_a_hint_for_a_foreign_form_gives_the_signature_that_was_meant(
    signature: Signature, number: int, form: tuple[str, str]
) -> None:
    pattern, foreign = form
    parts = re.split(r"(, (?![^\[]*\])| -> )", str(signature))
    fitting = [at for at in range(0, len(parts), 2) if re.fullmatch(pattern, parts[at])]
    # A name that is a dtype's too is one, without a ':'.
    fitting = [at for at in fitting if find_dtype(parts[at].partition(":")[0]) is None]
    if not fitting:
        return
    at = fitting[number % len(fitting)]
    text = "".join([*parts[:at], re.sub(pattern, foreign, parts[at]), *parts[at + 1 :]])
    try:
        parsed = parse_signature(text)
    except SignatureError as error:
        assert followed(text, error) == signature, (text, error.hint)
    else:
        assert parsed == signature


@given(signatures(), st.data())
def test_a_damaged_signature_is_read_or_refused_with_a_place_and_a_hint(
    signature: Signature, data: st.DataObject
) -> None:
    text = str(signature)
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 3))
    damaged = text[:at] + data.draw(st.text(alphabet=":,=[]->. xTN1é", max_size=3)) + text[at + cut :]
    try:
        parsed = parse_signature(damaged)
    except SignatureError as error:
        assert 0 <= error.column <= len(damaged)
        assert error.reason.endswith(".")
        assert error.hint
    else:
        assert parse_signature(str(parsed)) == parsed


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_signature(text)
    except SignatureError as error:
        assert error.hint
