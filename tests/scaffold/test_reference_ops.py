"""kjit's own ops are the output of `kjit new`: if one needs something more, the templates get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.scaffold.new import parse_devices, parse_dtypes, scaffold_op

REPOSITORY = Path(__file__).resolve().parents[2]

OPS = {
    "add_constant": ("x: T[...], constant: const int = 1 -> out: T[...]", "cuda,cpu", "int32,fp32,fp16,bf16"),
}


@pytest.mark.parametrize("op", OPS)
def test_a_reference_op_is_as_scaffolded(op: str) -> None:
    signature, devices, dtypes = OPS[op]
    scaffold = scaffold_op(op, signature, devices=parse_devices(devices), dtypes=parse_dtypes(dtypes), start=REPOSITORY)
    assert scaffold.notes == ()
    for file in scaffold.files.files:
        assert file.path.read_text() == file.text, f"kjit new {op} '{signature}' --device {devices} --dtypes {dtypes}"
