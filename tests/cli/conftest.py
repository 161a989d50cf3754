"""What the tests of the commands share: a small project, and running the command in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.spec import Spec

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]

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


@pytest.fixture
def kjit(project: Path) -> Kjit:
    """A function that runs `kjit` in the project."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kjit", *map(str, arguments)],
            cwd=project,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def add_op(root: Path, answer_op: Callable[..., Spec], name: str) -> None:
    answer_op(root, name)
    (root / "kernels").mkdir(exist_ok=True)
    (root / "kernels" / f"{name}.py").write_text(_WRAPPER.format(name=name))
