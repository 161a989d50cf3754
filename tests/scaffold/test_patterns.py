"""kjit.scaffold.patterns: the signatures that a pattern serves, and the suggestions for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from drawn import SHAPES, signatures
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from registered import register
from signatures import signature_for

from kjit.scaffold.new import scaffold_op
from kjit.scaffold.patterns import PATTERNS, check_signature
from kjit.signature.parser import parse_signature
from kjit.signature.signature import ELLIPSIS, Signature, SignatureError


@pytest.mark.parametrize(
    "text",
    [
        "k: T[N, H], cache: mut T[S, 2, H], slots: int64[N]",
        "x: T[M, K], w: T[K, N] -> out: T[M, N]",
        "x: T[B, H, S, D], y: T[B, D] -> out: float32[]",
    ],
)
@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if pattern != "custom"])
def test_what_no_other_pattern_serves_is_offered_a_kernel_of_its_own(text: str, pattern: str) -> None:
    with pytest.raises(SignatureError) as caught:
        check_signature(parse_signature(text), PATTERNS[pattern], "an_op")
    offer = "; or --pattern custom, which serves any signature, with a kernel of your own"
    assert (caught.value.hint or "").endswith(offer)
    check_signature(parse_signature(text), PATTERNS["custom"], "an_op")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(signature=signatures())
def test_a_pattern_serves_a_signature_or_says_why_not_and_what_would_do(tmp_path: Path, signature: Signature) -> None:
    for pattern in PATTERNS:
        try:
            scaffold = scaffold_op("an_op", str(signature), pattern=pattern, devices=("cuda", "cpu"), start=tmp_path)
        except SignatureError as error:
            assert 0 <= error.column < len(str(signature))
            assert error.hint
        else:
            for file in scaffold.files.files:
                if file.path.suffix == ".py":
                    compile(file.text, str(file.path), "exec")
            register(tmp_path, str(signature), pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_serves_every_signature_that_is_made_for_it(tmp_path: Path, pattern: str) -> None:
    for number in range(25):
        signature = signature_for(pattern, number)
        assert parse_signature(str(signature)) == signature
        scaffold = scaffold_op("an_op", str(signature), pattern=pattern, devices=("cuda", "cpu"), start=tmp_path)
        for file in scaffold.files.files:
            if file.path.suffix == ".py":
                compile(file.text, str(file.path), "exec")


@given(st.sampled_from(list(PATTERNS)), st.integers(0, 10**6), st.data())
def test_a_signature_with_one_shape_changed_is_served_or_refused_at_a_tensor_with_a_form_that_is_served(
    pattern: str, number: int, data: st.DataObject
) -> None:
    signature = signature_for(pattern, number)
    changed = data.draw(st.sampled_from(signature.tensors))
    shape = data.draw(SHAPES)
    strides = {"strided": False} if changed.strided and (ELLIPSIS in shape or not shape) else {}
    parameters = tuple(replace(p, shape=shape, **strides) if p is changed else p for p in signature.parameters)
    outputs = tuple(replace(t, shape=shape) if t is changed else t for t in signature.outputs)
    text = str(Signature(parameters, outputs))
    try:
        check_signature(parse_signature(text), PATTERNS[pattern], "an_op")
    except SignatureError as error:
        names = [tensor.name for tensor in signature.tensors]
        pointed_at = text[error.column :]
        assert pointed_at.startswith(tuple(f"{name}:" for name in names))
        assert error.hint
