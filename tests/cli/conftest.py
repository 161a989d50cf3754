"""Fixtures of the tests of commands: a small project, and a function that runs a command in it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import forks

from kjit.runtime import LAYOUT
from kjit.spec import Spec

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]

_IMPORTED = """
import kjit.cli
import kjit.bench.last, kjit.engine.bundle_writer, kjit.engine.pool, kjit.overview
import kjit.planning.targets, kjit.planning.wrappers, kjit.projects.moving, kjit.projects.rename
import kjit.scaffold.new
import jinja2, pydantic.type_adapter, rich.console, rich.live, rich.progress, rich.table
"""
"""The packages that commands import on demand, except torch and tvm-ffi."""

_MAIN = """
import sys
{first}
from kjit.cli import main
sys.argv[0] = "kjit"
sys.path.remove("")  # as a program, in whose own folder modules are looked for
main()
"""

_WRAPPER = """
from pathlib import Path

import kjit

CSRC = Path(__file__).parent.parent / "csrc"


@kjit.module(variants=kjit.product(n=[1, 2]))
def _module(n):
    return kjit.Spec("{name}", str(n), cpp_files=[CSRC / "{name}.cpp"])
"""


@pytest.fixture
def project(tmp_path: Path, cache_dir: Path, answer_op: Callable[..., Spec]) -> Path:
    """A project with one op, `answer`, of two variants for the CPU; and an empty cache."""
    del cache_dir
    root = tmp_path / "project"
    add_op(root, answer_op, "answer")
    return root


@pytest.fixture
def add(project: Path, answer_op: Callable[..., Spec]) -> Callable[[str], None]:
    """A function that adds another op to the project."""
    return lambda name: add_op(project, answer_op, name)


@pytest.fixture(scope="session")
def kjit_in() -> Iterator[Kjit]:
    """A function that runs `kjit` in a folder: in a process of its own, forked from one that has imported kjit.

    `first` is code that this process runs before the command.
    """
    with forks(_IMPORTED) as started:

        def run(
            folder: Path, *arguments: object, first: str = "", **environment: str
        ) -> subprocess.CompletedProcess[str]:
            return started.run(_MAIN.format(first=first), *arguments, cwd=folder, **environment)

        yield run


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory, kjit_in: Kjit, answer_op_once: Callable[..., Spec]) -> Path:
    """A folder with two artifacts of each of the ops `answer` and `other`, to be copied into caches: artifacts do not
    depend on where their project is."""
    root, cache = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("cache")
    for name in ("answer", "other"):
        add_op(root, answer_op_once, name)
    done = kjit_in(root, "build", KJIT_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    return cache / LAYOUT / "cpu"


@pytest.fixture
def kjit(project: Path, kjit_in: Kjit) -> Kjit:
    """A function that runs `kjit` in the project."""
    return lambda *arguments, **more: kjit_in(project, *arguments, **more)


def add_op(root: Path, answer_op: Callable[..., Spec], name: str) -> None:
    answer_op(root, name)
    (root / "kernels").mkdir(exist_ok=True)
    (root / "kernels" / f"{name}.py").write_text(_WRAPPER.format(name=name))
