"""A pytest plugin for `tools/peers.py --tests`: FlashInfer's tests, with its engine or with kjit."""

from __future__ import annotations

import ast
import importlib
import os
import sys
import types
from pathlib import Path
from typing import Any

from peers import load_with_kjit, parts_of, prepare_flashinfer


def _import_on_demand(root: Path) -> None:
    """Make FlashInfer importable without the imports of its `__init__`: a part is imported when a test names it."""
    folder = root / "flashinfer" / "flashinfer"
    package = types.ModuleType("flashinfer")
    package.__path__ = [str(folder)]
    sys.modules["flashinfer"] = package
    names = {}
    for node in ast.walk(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module is not None:
            names.update({alias.asname or alias.name: (node.module, alias.name) for alias in node.names})

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in names:
            return importlib.import_module(f"flashinfer.{name}")
        module, attribute = names[name]
        return getattr(importlib.import_module(f"flashinfer.{module}"), attribute)

    package.__dict__["__getattr__"] = get


def _put_kjit_underneath() -> None:
    jit = importlib.import_module("flashinfer.jit")
    core = importlib.import_module("flashinfer.jit.core")

    def build_and_load(spec: Any) -> Any:
        return load_with_kjit(parts_of(spec))

    def build_jit_specs(specs: list[Any], **_: object) -> None:
        for spec in specs:
            build_and_load(spec)

    core.JitSpecNvcc.build_and_load = build_and_load
    jit.__dict__["build_jit_specs"] = build_jit_specs


prepare_flashinfer()
_import_on_demand(Path(os.environ["KJIT_PEERS_ROOT"]))
if os.environ["KJIT_PEERS_SIDE"] == "kjit":
    _put_kjit_underneath()
