"""The wheel, built from the source distribution: its contents, and that it works without a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kjit.project import load_toml

pytestmark = pytest.mark.needs("build", "check_wheel_contents", "hatchling", "hatch_vcs", "twine")
ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("kjit-*.whl")
    return path


def test_the_wheel_of_a_source_distribution_has_its_version(dist: Path, wheel: Path) -> None:
    (source,) = dist.glob("kjit-*.tar.gz")
    version = wheel.name.split("-")[1]
    assert source.name == f"kjit-{version}.tar.gz"
    written = zipfile.ZipFile(wheel).read("kjit/_version.py").decode()
    assert written == f'__version__ = "{version}"\n'


def test_a_checkout_without_tags_has_the_fallback_version_everywhere(tmp_path: Path) -> None:
    fallback = load_toml(ROOT / "pyproject.toml")["tool"]["hatch"]["version"]["raw-options"]["fallback_version"]
    package = tmp_path / "kjit"
    package.mkdir()
    for name in ("pyproject.toml", "kjit/__init__.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    here = {"PYTHONPATH": str(tmp_path)}
    assert run(sys.executable, "-m", "hatchling", "version", cwd=tmp_path).strip() == fallback
    assert run(sys.executable, "-c", "import kjit; print(kjit.__version__)", cwd=tmp_path, **here).strip() == fallback


def test_both_distributions_are_fit_for_an_index(dist: Path, wheel: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir()), cwd=ROOT)
    run(sys.executable, "-m", "check_wheel_contents", str(wheel), cwd=ROOT)


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


@pytest.mark.nightly
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
