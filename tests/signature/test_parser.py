"""kjit.signature.parser: signatures, errors, and the position of the caret."""

from __future__ import annotations

import pytest
from drawn import signatures
from hypothesis import given
from hypothesis import strategies as st

from kjit.dtypes import DTYPES
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


@pytest.mark.parametrize(
    "text",
    [
        "x: T[N,], -> out: T[N],",
        "  x:T[N]\n->\tout:T[N]  ",
        "match: T[N], strided: T[N] -> out: T[N]",
        "x: T[N, strided] strided -> out: T[N]",
        "x: T[ ], a: float = -  1.5, b: float = +.5, c: float = 1.e5, d: float = 1e-06, e: int = 00 -> out: T[]",
        "x: T[N], G: const int = 2 -> out: T[N, G]",
        "xs: list[T[A, B]], x: T[A*B, A+B] -> out: T[A, B]",
    ],
)
def test_spaces_commas_and_words_are_free_where_python_leaves_them_free(text: str) -> None:
    signature = parse_signature(text)
    assert parse_signature(str(signature)) == signature
    assert [text[each.column :].startswith(each.name) for each in signature.parameters] == [True] * len(
        signature.parameters
    )


@pytest.mark.parametrize(
    ("text", "caret_at", "cause"),
    [
        # Characters and marks.
        ("", "", "expected a parameter, found the end"),
        ("x: T[N] -> y: T[N] -> z: T[N]", "-> z", "one '->'"),
        ("x: T[N) -> out: T[N]", ") ->", "')' has no meaning in a size"),
        ("x: T[N -> out: T[N]", "[N ->", "this '[' is not closed"),
        ("xs: list[list[T[N]]] -> out: T[N]", "[N]]]", "'[' is out of place"),
        ("x: T[B D] -> out: T[B, D]", "D] -> ", "expected ',' or ']' between 'B' and 'D'"),
        ("x T[N]", "T[N]", "between 'x' and 'T'"),
        ("x: T[\u00d1] -> out: T[N]", "\u00d1", "'\u00d1' is not plain ASCII"),
        ('x: T[N], name: str = "a', '"a', "has no meaning here"),
        ("x: T[N], m: str = 'a\\n' -> out: T[N]", "'a", "two quotes"),
        # Numbers.
        ("x: T[N], s: int = 0x10 -> out: T[N]", "0x10", "not a decimal number"),
        ("x: T[N, 2D] -> out: T[N]", "2D]", "'2D' is not a decimal number"),
        # Parts that Python reads otherwise, or not.
        ("x: -> out: T[N]", " ->", "'x: ...' is incomplete"),
        ("x: T[N], n: int = -> out: T[N]", "= ->", "'=' is out of place in 'n: ...'"),
        ("T[N] -> out: T[N]", "T[N] ->", "the name of a parameter, ':' and a type, found 'T[N]'"),
        ("x: T[N] -> T[N]", "T[N]", "the name of an output, ':' and a type, found 'T[N]'"),
        ("x: mut T[N] -> None: T[N]", "None", "keyword of Python"),
        ("x: T[N], X: T[N] -> out: T[N]", "X:", "capital letters"),
        ("x: T[N], dtype: int -> out: T[N]", "dtype", "would hide"),
        # Types.
        ("x: mut -> out: T[N]", "mut", "'mut' is not a type"),
        ("x: T[N], b: Optional[T[N]] = None -> out: T[N]", "Optional", "'Optional' is not a type"),
        ("x: T -> out: T[N]", "T ->", "'T' is the dtype of a tensor: expected '[' and a shape"),
        ("x: const T[N] -> out: T[N]", "x: const", "'const' cannot stand before 'T[N]'"),
        ("x: Optional mut T[N] = None -> out: T[N]", "x:", "'Optional mut' cannot stand"),
        ("x: T[...] strided -> out: T[...]", "T[...] strided", "named dimensions of one tensor, and 'x' has none"),
        ("xs: list[T[N], T[M]] -> out: T[N]", "T[N], T[M]", "a tensor in a list has a dtype and a shape"),
        ("xs: list[T[N]] = None -> out: T[N]", "None", "a list of tensors is a required argument"),
        ("x: T[N] -> out: list[T[N]]", "list", "an output is one contiguous tensor"),
        # Choices.
        ('x: T[N], m: "sum" -> out: T[N]', '"sum"', "'sum' is the only choice"),
        ('x: T[N], m: "a" | "a__b" -> out: T[N]', '"a__b"', "'a__b' is not a valid choice"),
        ('x: T[N], m: "a" | "a" -> out: T[N]', '"a" ->', "'a' is repeated"),
        ('x: T[N], m: "a" | "b" = "c" -> out: T[N]', '"c"', "not one of the choices"),
        # Defaults.
        ("x: T[N], b: Optional T[N] -> out: T[N]", "b:", "'b' is Optional, and its default is not None"),
        ("x: T[N], b: T[N] = None -> out: T[N]", "None", "'b' has the default None, and is not Optional"),
        ("x: T[N] = 3 -> out: T[N]", "3", "the default of a tensor can only be None, not 3"),
        ("x: T[N], f: bool = true -> out: T[N]", "true", "'f' is True or False, and true is not"),
        ("x: T[N], a: float = -1e-310 -> out: T[N]", "-1e-310", "too close to 0"),
        ("x: T[N], a: float = True -> out: T[N]", "True", "'a' is a number, and True is not"),
        ("x: T[N], n: int = 9223372036854775808 -> out: T[N]", "9223372036854775808", "64 bits"),
        # Sizes.
        ("x: T[0] -> out: T[N]", "0]", "'0' is not a size"),
        ("x: T[..., ...] -> out: T[...]", "...] ->", "twice"),
        ("x: T[B, D % 8] -> out: T[B, D]", "%", "'%' has no meaning in a size"),
        ("x: T[N, 9/2] -> out: T[N]", "9/2", "'9/2' is not a size"),
        ("x: T[N], y: T[A, A*N*A] -> out: T[A]", "A*N", "'A*N*A' is not a size"),
        ("x: T[N, D-N] -> out: T[N]", "D-N", "'D-N' is not a size"),
        # Rules.
        ("x: T[A*B] -> out: T[A]", "x:", "'A*B' of 'x' is unknown: no required input has A and B"),
        ("x: T[N, D], w: T[D/N] -> out: T[N]", "w:", "'D/N' of 'w' is divided by 'N'"),
        ("x: T[N, D], g: const int = 0 -> s: T[N, D/g]", "g:", "0 is not a size"),
        ("x: T[N], n: int -> out: T[n]", "out:", "'n' is used twice, for a dimension and for a parameter"),
        ("x: T[N] -> out: T[...]", "out:", "'...' of 'out' is unknown"),
        ("x: T[N], x: T[N] -> out: T[N]", "x: T[N] ->", "'x' is used twice"),
        ("x: T[N], a: float = 1, y: T[N] -> out: T[N]", "y:", "no default and follows 'a'"),
        ("-> out: T[N]", "out", "no required tensor"),
        ("x: T[N], out: T[N]", "x:", "changes nothing"),
    ],
)
def test_the_cause_comes_first_and_the_caret_is_at_its_place(text: str, caret_at: str, cause: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(text)
    error = caught.value
    assert cause in error.reason
    assert error.column == (text.rindex(caret_at) if caret_at else len(text))
    assert error.hint
    excerpt, caret = error.message.splitlines()[1:]
    assert (excerpt, caret) == (f"    {text}".replace("\t", " ").replace("\n", " "), f"    {' ' * error.column}^")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x: Tensor, a: float -> out: T[...]", "x: T[...]"),
        ("x: torch.Tensor[B, D] -> out: T[...]", "x: T[...]"),
        ("xs: mut list[torch.Tensor], y: T[N]", "xs: mut list[T[...]]"),
        ("xs: list -> out: T[N]", "xs: list[T[N]]"),
        ("const float* x, int n", "x: float32[N]"),
        ("x: float[B, D] -> out: T[B]", "x: float32[B, D] for a tensor, x: float for a number"),
        ("x: T[N] => out: T[N]", "an arrow is written '->'"),
        ("x: T[N] \u2192 out: T[N]", "an arrow is written '->'"),
        ("x: bfloat[N] -> out: T[N]", "did you mean bfloat16?"),
        ("x: T[N], n: int = 2.5 -> out: T[N]", "n: int without a default"),
        ("x: T[N], b: T[D] | None = None -> out: T[N]", "b: Optional T[N] = None"),
        ("x: T[N], s: Optional float -> out: T[N]", "s: Optional float = None"),
        ("x: mut T[N], y: mut T[N] = None", "y: mut T[N]"),
        ("x: mut T[N] -> None", "leave '-> None' out"),
        ("x: T[N] -> out: T[M*2]", "what inputs have: N"),
        ("x: i8[4, 5] -> out: f32[N]", "give an input this size"),
        ("x: T[N] -> out: U[N]", "the dtype of an input (T)"),
        ("x: T[N]", "x: mut T[N]"),
        ("x: T[cdiv(N, 8)] -> out: T[N]", 'see "Adding a kernel by hand"'),
    ],
)
def test_a_hint_shows_how_it_is_written(text: str, hint: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(text)
    assert hint in (caught.value.hint or "")


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


def test_a_caret_stands_right_below_a_signature_of_several_lines() -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature("x: T[N],\n\ty: T[N} -> out: T[N]")
    excerpt, caret = caught.value.message.splitlines()[1:]
    assert excerpt[caret.index("^")] == "}"


@pytest.mark.parametrize("size", ["1+" * 20000 + "1", "-" * 20000 + "1", "1*" * 20000 + "1"])
def test_a_very_long_size_is_read_or_refused(size: str) -> None:
    try:
        parse_signature(f"x: T[{size}] -> out: T[1]")
    except SignatureError as error:
        assert error.column <= len(size) + 6


@given(signatures())
def test_every_signature_survives_being_written_and_read(signature: Signature) -> None:
    assert parse_signature(str(signature)) == signature


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
