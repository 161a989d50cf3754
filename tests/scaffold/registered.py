"""Ops of `kjit new`, registered with PyTorch."""

from __future__ import annotations

from pathlib import Path

from kjit.scaffold.new import scaffold_op


def register(root: Path, text: str, pattern: str) -> None:
    """Run the wrapper of an op with this signature, so that it becomes one of PyTorch's."""
    scaffold = scaffold_op("an_op", text, pattern=pattern, start=root)
    (wrapper,) = (file for file in scaffold.files.files if file.path.name == "an_op.py")
    namespace = {"__name__": "registered.an_op", "__file__": str(wrapper.path)}
    exec(compile(wrapper.text, str(wrapper.path), "exec", dont_inherit=True), namespace)
