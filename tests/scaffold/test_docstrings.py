"""The claims of a scaffolded wrapper's docstring, compared with the signature."""

from __future__ import annotations

import ast
import re

import pytest
from matrix import CUSTOM, OPS
from signatures import signature_for

from kjit.dtypes import DType
from kjit.scaffold.new import DEFAULT_DTYPES, scaffold_op
from kjit.scaffold.patterns import PATTERNS, check_signature
from kjit.signature.parser import parse_signature
from kjit.signature.signature import Signature


def cases() -> list[tuple[str, str]]:
    made = [(pattern, str(signature_for(pattern, number))) for pattern in PATTERNS for number in range(60)]
    return made + [(op.pattern, op.signature or PATTERNS[op.pattern].signature) for op in [*OPS, *CUSTOM]]


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Signature, dict[str, str], str]]:
    """Pattern, signature, the sentences on each parameter, and those on what is raised."""
    found = []
    for pattern, text in cases():
        scaffold = scaffold_op("an_op", text, pattern=pattern, start=tmp_path_factory.mktemp("project"))
        (wrapper,) = (file for file in scaffold.files.files if file.path.name == "an_op.py")
        (function,) = (f for f in ast.parse(wrapper.text).body if isinstance(f, ast.FunctionDef) and f.name == "an_op")
        docstring = " ".join((ast.get_docstring(function) or "").split())
        arguments, raised = docstring.split(" Args: ")[1].split(" Raises: ")
        signature = parse_signature(text)
        names = [p.name for p in (*signature.parameters, *signature.outputs)]
        parts = re.split(rf"(?:^| )({'|'.join(names)}): ", arguments)
        assert parts[1::2] == names, text
        found.append((pattern, signature, dict(zip(names, parts[2::2], strict=True)), raised))
    return found


Documented = list[tuple[str, Signature, dict[str, str], str]]


def test_an_output_is_said_to_be_possibly_an_input_only_where_both_are_alike(documented: Documented) -> None:
    claims = 0
    for pattern, signature, sentences, _ in documented:
        placed = check_signature(signature, PATTERNS[pattern], "an_op")
        for output in signature.outputs:
            named = re.search(r"It may be (.*) itself", sentences[output.name])
            alike = [
                tensor.name
                for tensor in signature.inputs
                if (tensor.dtype, tensor.shape) == (output.dtype, output.shape)
                and placed.kind(tensor) == placed.kind(output) == "element"
                and not tensor.mutable
                and not tensor.optional
            ]
            assert (named[1].split(" or ") if named is not None else []) == alike, str(signature)
            claims += bool(alike)
    assert claims > 20


def test_what_a_number_outside_of_the_table_does_is_said_of_an_index_alone(documented: Documented) -> None:
    for pattern, signature, sentences, _ in documented:
        placed = check_signature(signature, PATTERNS[pattern], "an_op")
        for tensor in signature.inputs:
            says = "reads zeros" in sentences[tensor.name]
            skips = "is skipped; of two that are equal, either counts" in sentences[tensor.name]
            is_index = placed.kind(tensor) == "index"
            is_written = any(table.mutable for table in placed.inputs("table"))
            assert (says, skips) == (is_index and not is_written, is_index and is_written)
            assert ("the tables" in sentences[tensor.name]) == (is_index and len(placed.inputs("table")) > 1)


def test_what_may_be_absent_changes_or_is_compiled_in_is_said_of_that_alone(documented: Documented) -> None:
    for pattern, signature, sentences, _ in documented:
        absent = "may be None" if pattern == "custom" else "None counts as zeros"
        for tensor in signature.inputs:
            assert (absent in sentences[tensor.name]) == tensor.optional
            assert ("changed in place" in sentences[tensor.name]) == tensor.mutable
        for scalar in (*signature.scalars, *signature.constants):
            assert ("compiled into the kernel" in sentences[scalar.name]) == scalar.constant


def test_a_gradient_is_mentioned_where_an_input_can_have_one(documented: Documented) -> None:
    for _, signature, _, raised in documented:
        kinds = {
            dtype.kind
            for tensor in signature.inputs
            for dtype in ([tensor.dtype] if isinstance(tensor.dtype, DType) else DEFAULT_DTYPES)
        }
        assert ("gradient" in raised) == ("float" in kinds), str(signature)
        assert ("not in `DTYPES`" in raised) == bool(signature.variables)
