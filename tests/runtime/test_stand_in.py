"""kjit.runtime.stand_in: wrappers' declarations, collected without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import forks
from typer.testing import CliRunner

from kjit.cli import app
from kjit.scaffold.patterns import PATTERNS

Run = Callable[[str], "subprocess.CompletedProcess[str]"]
Collected = Callable[[str], "dict[str, list[str] | bool]"]

HEAD = """
import kjit
import torch

@kjit.module(variants=kjit.product(dtype=[torch.float32, torch.bfloat16]))
def _op(dtype: torch.dtype) -> kjit.Spec:
    args = kjit.make_cpp_args(dtype)
    return kjit.Spec("op", *args, cpp_files=["/op.cpp"], cpp_wrappers=[("op", f"Op<{args}>::run")])
"""
OP = """
@kjit.torch_op({})
def f(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor: ...
"""
COLLECT = """
import json, sys
from kjit.planning import wrappers
from kjit.project import find_project

collected = wrappers.collect(find_project())
print(json.dumps({
    "labels": [spec.label for spec in collected.specs()],
    "failures": [error.message for _, error in collected.failures],
    "has_torch": hasattr(sys.modules.get("torch"), "nn"),
    "left": [name for name in sys.modules if name.startswith(("kernels", "beside", "torch", "kjit.ops."))],
}))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """A function that runs a script in a Python without torch, unless the script imports it."""
    with forks("import kjit.cli, kjit.planning.wrappers, kjit.project") as started:
        yield lambda script: started.run(script, cwd=Path.cwd())


@pytest.fixture
def collected(project: Path, run: Run) -> Collected:
    """A function that returns what is collected where a wrapper is the only one."""

    def collect(wrapper: str) -> dict[str, list[str] | bool]:
        (project / "kernels" / "op.py").write_text(wrapper)
        done = run(COLLECT)
        assert done.returncode == 0, done.stderr
        found: dict[str, list[str] | bool] = json.loads(done.stdout)
        return found

    return collect


LABELS = ["op<fp32_t>", "op<bf16_t>"]


@pytest.mark.parametrize(
    "more",
    [
        "",
        "from beside import LARGE",
        "from kjit.ops import add_constant",
        "def f(x: torch.Tensor | None, *y: 'torch.nn.Module') -> torch.Tensor: ...",
        "NAMES = {torch.float16: 'half', torch.int8: str(torch.int8)}\nassert torch.int8 in NAMES",
        "import copy\nassert copy.deepcopy({torch.half: torch.float}) == {torch.float16: torch.float32}",
        "from pathlib import Path\nassert (Path(torch.__file__).parent / '_C').parent.is_dir()",
        "import importlib.metadata\nassert importlib.metadata.version('torch') >= '2'",
        OP.format("outputs=lambda x: torch.empty_like(x)") + "f.register_autograd(lambda ctx, grad: grad)",
    ],
)
def test_a_wrapper_that_only_names_types_is_asked_without_torch(more: str, project: Path, collected: Collected) -> None:
    (project / "beside.py").write_text("import torch\nLARGE = torch.float64\n")
    found = collected(HEAD + more)
    assert found == {"labels": LABELS, "failures": [], "has_torch": False, "left": []}


@pytest.mark.parametrize(
    "more",
    [
        "HAS_GPU = torch.cuda.is_available()",
        "from torch import nn as layers, Tensor",
        # Its modules are imported again, too.
        "from kjit.ops import norm\nHAS_GPU = torch.cuda.is_available()\nassert torch.float16 in norm.FLOATS",
        OP.format("outputs=torch.empty_like"),
        "try:\n    torch.cuda\nexcept BaseException:\n    pass",
        "import numpy",
    ],
)
def test_a_wrapper_that_needs_more_is_imported_with_torch(more: str, collected: Collected) -> None:
    found = collected(HEAD + more)
    assert found["labels"] == LABELS
    assert found["failures"] == []
    assert found["has_torch"]


@pytest.mark.parametrize(
    "mistake",
    ["raise SystemExit(3)", "torch.no_such_name"],
)
def test_what_fails_to_import_fails_with_the_real_error(mistake: str, collected: Collected, run: Run) -> None:
    found = collected(HEAD + mistake)
    as_built = run(COLLECT.replace("collect", "collect"))
    assert found["failures"]
    assert found["failures"] == json.loads(as_built.stdout)["failures"]


@pytest.mark.parametrize(
    "op",
    [
        OP.format("'no name', outputs=lambda x: x"),
        "@kjit.torch_op(mutates_args=['y'])\ndef f(x: torch.Tensor) -> None: ...",
        OP.format("'stand_in_test::f', outputs=lambda x: x")
        + OP.format("'stand_in_test::f', outputs=lambda x: x").replace("def f", "def g"),
    ],
)
def test_an_op_that_cannot_be_is_an_error_here_too(op: str, collected: Collected) -> None:
    (failure,) = collected(HEAD + op)["failures"]  # type: ignore[misc]
    assert "op 'f'" in failure or "op 'stand_in_test::f' is already taken" in failure


def test_what_is_installed_in_an_environment_in_the_projects_folder_is_not_the_projects(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = project / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed.py").write_text("import torch\nIS_ENOUGH = True\n")
    monkeypatch.setenv("PYTHONPATH", str(packages), prepend=os.pathsep)
    (project / "kernels" / "op.py").write_text(HEAD + "import installed")
    # Not forked: Python reads the variable as it starts.
    done = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["has_torch"]


def test_torch_that_is_imported_already_is_taken(project: Path, run: Run) -> None:
    (project / "kernels" / "op.py").write_text(HEAD)
    done = run(f"import torch\n{COLLECT}")
    assert '"has_torch": true' in done.stdout, done.stderr
    assert "kernels.op" in done.stdout


@pytest.mark.usefixtures("project")
def test_what_kjit_new_writes_is_asked_without_torch(run: Run) -> None:
    for pattern in PATTERNS:
        done = CliRunner().invoke(app, ["new", f"an_{pattern}", "--pattern", pattern, "--device", "cuda,cpu"])
        assert done.exit_code == 0, done.output
    dry = run(
        "import sys\nfrom kjit.cli import main\nsys.argv = ['kjit', 'build', '--dry-run', '--target', 'cpu']\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    assert "an_gather<bf16_t>" in dry.stdout, dry.stderr
    assert dry.stderr.splitlines()[-1] == "False"
