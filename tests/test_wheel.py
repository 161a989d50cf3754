"""The wheel: what is in it, and that it works where nothing else of kjit is."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), cwd=ROOT)
    (path,) = folder.glob("kjit-*.whl")
    return path


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "kjit"
    wanted = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert {"kjit/py.typed", "kjit/include/kjit/ffi.h", "kjit/csrc/support/host.cpp"} <= wanted
    assert any(name.endswith(".j2") for name in wanted)
    assert wanted <= names


def test_nothing_but_the_package_is_in_the_wheel(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kjit"}


def test_installed_into_an_empty_environment_it_scaffolds_and_builds_an_op(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"), cwd=tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS))
    run(*pip, "torch", cwd=tmp_path)
    run(*pip, str(wheel), cwd=tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    kjit = str(tmp_path / "venv" / "bin" / "kjit")
    # Neither this checkout nor this environment's programs can be found from there.
    environment = {"PYTHONPATH": "", "KJIT_CACHE_DIR": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    run(kjit, "new", "scale", "--device", "cpu", cwd=project, **environment)
    run(kjit, "build", "--target", "cpu", cwd=project, **environment)
    use = (
        "import kjit, torch; from kernels.scale import scale; print(kjit.__file__, scale(torch.ones(3), 4.0).tolist())"
    )
    said = run(python, "-c", use, cwd=project, **environment)
    assert said.startswith(str(tmp_path / "venv"))
    assert said.strip().endswith("[4.0, 4.0, 4.0]")
