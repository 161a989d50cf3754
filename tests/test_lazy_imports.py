"""Importing kjit and `kjit --help` are fast, import nothing heavy, and have no effects."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kjit

HEAVY = ("torch", "tvm_ffi", "triton", "jinja2", "numpy", "pandas")


def imported_by(script: str) -> set[str]:
    """The modules that are loaded after `script` ran in a fresh interpreter."""
    script += "\nimport sys\nprint('\\nmodules:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.rsplit("modules:", 1)[1].split())


@pytest.mark.parametrize(
    "script",
    [
        "import kjit",
        "import kjit; kjit.Spec; kjit.Target; kjit.UsageError; kjit.make_cpp_args; kjit.cache_once",
        "import kjit; kjit.load_jit; kjit.jit; kjit.module; kjit.product; kjit.DeclaredModule",
        "import kjit.engine.pool, kjit.engine.cache.store",
    ],
)
def test_kjit_imports_nothing_heavy(script: str) -> None:
    assert imported_by(script).isdisjoint(HEAVY)


def test_a_declared_op_is_declared_without_torch() -> None:
    script = "import kjit\n@kjit.module(variants=kjit.product(n=[1, 2]))\ndef op(n):\n    pass"
    assert imported_by(script).isdisjoint(HEAVY)


def test_every_public_name_is_there() -> None:
    for name in kjit.__all__:
        assert getattr(kjit, name) is not None


@pytest.mark.parametrize("name", kjit.__all__)
def test_a_public_name_is_found_again_by_threads_that_ask_at_once(name: str) -> None:
    # Two threads may both find the name missing: the second asks for it when the first one's imports are done.
    assert kjit.__getattr__(name) == kjit.__getattr__(name)


def test_no_name_of_a_package_is_that_of_a_module_in_it() -> None:
    """An import of the module would replace what has the name, depending on what was imported before."""
    for init in Path(kjit.__file__).parent.rglob("__init__.py"):
        modules = {path.stem for path in init.parent.iterdir()} - {"__init__"}
        body = ast.parse(init.read_text(encoding="utf-8")).body
        defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert not modules & defined, init


def test_importing_changes_neither_the_disk_nor_the_environment_nor_the_logging(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    script = f"""
import logging, os
os.environ["KJIT_CACHE_DIR"] = {str(cache)!r}
os.environ["KJIT_LOG"] = "debug"
before = dict(os.environ), logging.getLogger("kjit").handlers[:], logging.root.handlers[:]
import kjit
for name in kjit.__all__:
    if name not in ("benchmark", "testing"):
        getattr(kjit, name)
import kjit.engine.pool
assert before == (dict(os.environ), logging.getLogger("kjit").handlers, logging.root.handlers)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert not cache.exists()
