"""Tests with the range of versions that kjit declares: each Python, with the lowest and the latest of every dependency.

    python tools/test_range.py                                    # every environment, one after the other
    python tools/test_range.py --list                             # what would be run
    python tools/test_range.py --only python=3.10,which=lowest    # some of them
    python tools/test_range.py --tables a.json b.json             # the tables of runs that wrote --json

The ranges are read from pyproject.toml: the Pythons of its classifiers, the bounds of its dependencies. For each
environment uv chooses the versions (`--resolution lowest-direct`: the lowest of kjit's own dependencies, the latest of
theirs), and kjit is installed from its wheel. Then `kjit --version`, the demo and the fast tests run, in a copy of the
checkout without `kjit/`, so that only the installed package can be imported.

A Python that is not on this machine is reported as skipped, never as passed. The exit status is 1 if anything failed,
or if nothing ran. Logs are in `.venv-range/<environment>/`. Settings for uv itself (an index, a mirror, CPU builds of
torch) are its own environment variables, such as `UV_TORCH_BACKEND=cpu`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from kjit.project import load_toml

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".venv-range"
BIN = Path(sys.executable).parent  # where uv is, as a package of this Python

WHICH = ("lowest", "latest")
RESOLUTION = {"lowest": "lowest-direct", "latest": "highest"}
STEPS = ("install", "kjit --version", "demo", "tests")

# What users may install besides, and what of the extra for development the tests need; the demo runs without.
EXTRAS = ("bench",)
TEST_TOOLS = ("hypothesis", "numpy", "pytest", "pytest-timeout", "pytest-xdist")

FAST_TESTS = ("tests/bench", "tests/cli", "tests/ops", "tests/runtime", "tests/test_*.py")
NOT_FAST = {
    "tests/test_architecture.py": "is about the checkout",
    "tests/test_collection.py": "is about the checkout",
    "tests/test_cuda_sources.py": "compiles every CUDA source there is",
    "tests/test_editor.py": "is about clangd",
    "tests/test_examples.py": "builds wheels, and needs what the checkout has",
    "tests/test_typing.py": "is about the type checker of the checkout",
    "tests/test_wheel.py": "makes an environment of its own, as is done here",
}
# What the demo and the tests are run from; without `kjit/`, which has to come from the wheel.
TREE = ("pyproject.toml", "tests", "tools")

# No step comes near it: a hang shall end, and be said.
STEP_LIMIT_S = 3600


@dataclass(frozen=True)
class Declared:
    """The versions that pyproject.toml declares."""

    pythons: tuple[str, ...]
    dependencies: tuple[Requirement, ...]
    test_tools: tuple[Requirement, ...]

    @classmethod
    def read(cls, pyproject: Path) -> Declared:
        """From the project's table: its classifiers, dependencies and extras."""
        project = load_toml(pyproject)["project"]
        matches = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in project["classifiers"])
        pythons = tuple(sorted((match[1] for match in matches if match), key=Version))
        refused = [python for python in pythons if not SpecifierSet(project["requires-python"]).contains(python)]
        if refused:
            sys.exit(f"{pyproject} names Python {', '.join(refused)}, which its own requires-python refuses.")
        extras = project["optional-dependencies"]
        tools = {canonicalize_name(each.name): each for each in map(Requirement, extras["dev"])}
        dependencies = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
        return cls(
            pythons, tuple(map(Requirement, dependencies)), tuple(tools[canonicalize_name(name)] for name in TEST_TOOLS)
        )


@dataclass
class Step:
    """The result of one step: `passed`, `FAILED`, `left out` (on request), or `not run` (an earlier step failed)."""

    name: str
    state: str = "not run"
    said: str = ""
    seconds: float = 0.0


@dataclass
class Row:
    """One environment and its result.

    Attributes:
        interpreter: the Python that it is made with; None if there is none.
        skipped: why nothing was run; empty if something was.
        versions: the version of every installed package.
    """

    python: str
    which: str
    interpreter: str | None = None
    skipped: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.python}-{self.which}"

    @property
    def failed(self) -> bool:
        return any(step.state not in ("passed", "left out") for step in self.steps)


def rows_of(declared: Declared, interpreters: dict[str, str], only: Sequence[dict[str, str]] = ()) -> list[Row]:
    """The environments, including those that cannot be made.

    Args:
        interpreters: the available ones, by version.
        only: choices; a row is included if it has all items of one of them.
    """
    rows = [Row(python, which, interpreters.get(python)) for python in declared.pythons for which in WHICH]
    for row in rows:
        if row.interpreter is None:
            row.skipped = f"there is no Python {row.python} on this machine"
    return [row for row in rows if not only or any(_fits(row, choice) for choice in only)]


def _fits(row: Row, choice: dict[str, str]) -> bool:
    return all(getattr(row, key) == value for key, value in choice.items())


def exit_status(rows: Sequence[Row]) -> int:
    """1 if something failed or nothing ran, else 0."""
    ran = [row for row in rows if not row.skipped]
    return 0 if ran and not any(row.failed for row in ran) else 1


# -- Pythons


def find_interpreters(pythons: Iterable[str], given: Sequence[str]) -> dict[str, str]:
    """A Python of each version: one of the given ones, else from PATH, else from pyenv."""
    own = {version: path for path in given if (version := _version_of(path)) is not None}
    found = {}
    for python in pythons:
        for path in (own.get(python), shutil.which(f"python{python}"), *_of_pyenv(python)):
            # A shim of pyenv is there for versions that are not switched on, and does not run.
            if path is not None and _version_of(path) == python:
                found[python] = path
                break
    return found


def _of_pyenv(python: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = sorted(root.glob(f"versions/{python}.*/"), key=lambda folder: [*map(_number, folder.name.split("."))])
    return [str(folder / "bin" / "python") for folder in reversed(folders)]


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1  # 3.14.0rc1, 3.13t


def _version_of(interpreter: str) -> str | None:
    """`3.12`; None if it is not a Python that runs."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-I", "-c", asked], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# -- one environment


class Environment:
    """A virtual environment with one resolution of the dependencies, and the steps that run in it."""

    def __init__(
        self, row: Row, declared: Declared, wheel: Path, tests: Sequence[str] = (), without: Sequence[str] = ()
    ) -> None:
        self.row = row
        self.declared = declared
        self.wheel = wheel
        self.tests = tests
        self.without = without
        self.folder = WORK / row.name
        self.venv = self.folder / "venv"
        self.tree = self.folder / "tree"
        self.python = str(self.venv / "bin" / "python")
        # What a shell says of kjit and of its own Python shall decide nothing here.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KJIT_", "PYTHON"))}
        self.environ = {
            **kept,
            "PATH": os.pathsep.join([str(self.venv / "bin"), str(BIN), os.environ["PATH"]]),
            "VIRTUAL_ENV": str(self.venv),
        }

    def run(self) -> None:
        """Run all steps; if the installation fails, the others are not run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.row.steps = [Step(name) for name in STEPS]
        for step, work in zip(self.row.steps, (self._install, self._version, self._demo, self._tests), strict=True):
            if step.name in self.without:
                step.state = "left out"
                continue
            began = time.monotonic()
            log = self.folder / f"{step.name.replace('kjit --', '')}.log"
            try:
                with log.open("w", encoding="utf-8") as self.log:
                    step.said = work()
                step.state = "passed"
            except StepError as error:
                step.state, step.said = "FAILED", str(error)
            step.seconds = round(time.monotonic() - began, 1)
            said = f" ({step.said})" if step.said else ""
            print(f"range: {self.row.name}: {step.name}: {step.state}{said}, {step.seconds:.0f} s", flush=True)
            if step.state == "FAILED":
                print(f"range: {self.row.name}: see {log}", flush=True)
                if step.name == "install":
                    break

    def clean(self) -> None:
        """Remove everything except the logs."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def _install(self) -> str:
        for name in TREE:
            path = ROOT / name
            if path.is_dir():
                shutil.copytree(path, self.tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                self.tree.mkdir(exist_ok=True)
                shutil.copy2(path, self.tree / name)
        assert self.row.interpreter is not None  # such a row is skipped
        self._call("uv", "venv", "--python", self.row.interpreter, str(self.venv), cwd=self.folder)
        # The packages that a user gets, and pytest for the demo: packages of the tests would hide missing dependencies.
        self._add(pytest for pytest in self.declared.test_tools if pytest.name == "pytest")
        return f"torch {self.row.versions['torch']}"

    def _add(self, tools: Iterable[Requirement], extras: Sequence[str] = ()) -> None:
        self._call(
            *("uv", "pip", "install", "--python", self.python),
            *("--resolution", RESOLUTION[self.row.which]),
            # The lowest version that has a wheel; versions that would have to be compiled are not tried.
            "--no-build",
            # From the file: of a package that is only a dependency of kjit, uv would not take the lowest version.
            *("-r", str(ROOT / "pyproject.toml")),
            *(part for extra in extras for part in ("--extra", extra)),
            *map(str, tools),
            *("--refresh-package", "kjit", f"kjit @ {self.wheel.as_uri()}"),
            cwd=self.folder,
        )
        listed = self._call("uv", "pip", "list", "--python", self.python, "--format", "json", cwd=self.folder)
        packages = json.loads(listed.splitlines()[-1])
        self.row.versions = {canonicalize_name(each["name"]): each["version"] for each in packages}

    def _version(self) -> str:
        said = self._call("kjit", "--version").strip()
        where = self._call("python", "-c", "import kjit; print(kjit.__file__)").strip()
        if not Path(where).is_relative_to(self.venv):
            raise StepError(f"kjit comes from {where}, and not from the wheel")
        return said

    def _demo(self) -> str:
        self._call(
            "python", str(self.tree / "tools" / "demo.py"), str(self.folder / "demo"), environ=_cache(self.folder)
        )
        return ""

    def _tests(self) -> str:
        self._add(self.declared.test_tools, EXTRAS)
        tests = self.tests or fast_tests(self.tree)
        said = _closing_line(self._call("python", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *tests))
        return f"{said} ({' '.join(self.tests)} alone)" if self.tests else said

    def _call(self, *command: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> str:
        """Run a command, log its output, and return its stdout.

        Raises:
            StepError: it failed, or did not end.
        """
        self.log.write(f"$ {' '.join(command)}\n")
        self.log.flush()
        at = self.log.tell()
        process = subprocess.Popen(
            command,
            cwd=cwd or self.tree,
            env={**self.environ, **(environ or {})},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(STEP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise StepError(f"{command[0]} did not end in {STEP_LIMIT_S} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = Path(self.log.name).read_text("utf-8", "replace")[at:]
        if status != 0:
            raise StepError(_closing_line(said) or f"exit status {status}")
        return said


class StepError(Exception):
    """Why a step failed, in a few words."""


def _cache(folder: Path) -> dict[str, str]:
    return {"KJIT_CACHE_DIR": str(folder / "cache")}


def fast_tests(tree: Path) -> list[str]:
    """The paths of the fast tests, relative to `tree`."""
    paths = [path.relative_to(tree).as_posix() for pattern in FAST_TESTS for path in sorted(tree.glob(pattern))]
    return [path for path in paths if path not in NOT_FAST]


def _closing_line(text: str) -> str:
    """The last line of an output: pytest's counts, or the error of another program."""
    lines = [line.strip("= ") for line in text.splitlines() if line.strip()]
    return re.sub(r" in [\d.]+s.*", "", lines[-1]) if lines else ""


def build_wheel(folder: Path) -> Path:
    """kjit's wheel, built from the checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the wheel cannot be built:\n{done.stdout}{done.stderr}")
    (wheel,) = folder.glob("kjit-*.whl")
    return wheel


# -- what is printed


def print_tables(rows: Sequence[Row], declared: Declared) -> None:
    print(f"{results_table(rows)}\n\n{versions_table(rows, declared)}")
    for line in untried_bounds(rows, declared):
        print(f"not tried: {line}")


def read_rows(files: Iterable[Path]) -> list[Row]:
    """Rows of earlier runs, in order; of two of the same name, one that was not skipped, and the later one."""
    found: dict[str, Row] = {}
    for file in files:
        for each in json.loads(file.read_text("utf-8"))["rows"]:
            row = Row(**{**each, "steps": [Step(**step) for step in each["steps"]]})
            if not row.skipped or row.name not in found:
                found[row.name] = row
    return sorted(found.values(), key=lambda row: (Version(row.python), WHICH.index(row.which)))


def results_table(rows: Sequence[Row]) -> str:
    """Markdown: one line per environment."""
    lines = [["Python", "dependencies", "torch", *STEPS]]
    for row in rows:
        cells = [f"skipped: {row.skipped}", "", "", ""] if row.skipped else [_cell(step) for step in row.steps]
        lines.append([row.python, row.which, row.versions.get("torch", ""), *cells])
    return _markdown(lines)


def _cell(step: Step) -> str:
    if step.state != "passed":
        return f"{step.state}: {step.said}" if step.said else step.state
    return step.said if step.name == "tests" else step.state


def versions_table(rows: Sequence[Row], declared: Declared) -> str:
    """Markdown: one line per dependency, with the installed versions."""
    lines = [["dependency", "declared", *WHICH]]
    for each in (*declared.dependencies, *declared.test_tools):
        name = canonicalize_name(each.name)
        installed = []
        for which in WHICH:
            by_version: dict[str, list[str]] = {}
            for row in rows:
                if row.which == which and name in row.versions:
                    by_version.setdefault(row.versions[name], []).append(row.python)
            several = len(by_version) > 1
            texts = (f"{v} ({', '.join(pythons)})" if several else v for v, pythons in by_version.items())
            installed.append(", ".join(texts))
        lines.append([each.name, str(each.specifier), *installed])
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    first, *others = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    ]
    return "\n".join([first, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *others])


def untried_bounds(rows: Sequence[Row], declared: Declared) -> Iterator[str]:
    """The lower bounds with which no environment ran, because a higher version was needed or the only one available."""
    lowest = [row for row in rows if row.which == "lowest" and row.versions]
    for each in declared.dependencies if lowest else ():
        installed = {row.versions[name] for row in lowest if (name := canonicalize_name(each.name)) in row.versions}
        bounds = {Version(spec.version) for spec in each.specifier if spec.operator == ">="}
        if installed and bounds and not any(_is_release_of(version, bounds) for version in installed):
            yield f"{each.name}: {each.specifier} is declared, and {', '.join(sorted(installed))} was installed"


def _is_release_of(version: str, bounds: set[Version]) -> bool:
    """Whether it is one of these, or a rebuild of it (`0.1.15.post1`)."""
    return Version(Version(version).base_version) in bounds


# -- the command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the environments, and run nothing")
    parser.add_argument("--only", action="append", default=[], metavar="python=X,which=Y", type=_choice)
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="an interpreter to use")
    parser.add_argument(
        "--tests", action="append", default=[], metavar="PATH", help="run these tests instead of the fast ones"
    )
    parser.add_argument("--without", action="append", default=[], choices=("demo", "tests"), help="leave this step out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results into this file")
    parser.add_argument(
        "--tables", type=Path, nargs="+", metavar="FILE", help="print the tables of these files, and run nothing"
    )
    parser.add_argument("--keep", action="store_true", help="keep the environments, not only their logs")
    options = parser.parse_args(arguments)

    declared = Declared.read(ROOT / "pyproject.toml")
    if options.tables:
        print_tables(read_rows(options.tables), declared)
        return 0
    rows = rows_of(declared, find_interpreters(declared.pythons, options.python), options.only)
    if not rows:
        parser.error(
            f"no environment is chosen; there are python={'|'.join(declared.pythons)}, which={'|'.join(WHICH)}"
        )
    if options.list:
        for row in rows:
            print(f"{row.name}: {row.interpreter or f'skipped: {row.skipped}'}")
        return 0
    if shutil.which("uv", path=os.pathsep.join([str(BIN), os.environ["PATH"]])) is None:
        parser.error(f"there is no uv: {sys.executable} -m pip install uv")
    wheel = build_wheel(WORK / "wheel")
    for row in rows:
        if row.skipped:
            print(f"range: {row.name}: skipped, as {row.skipped}", flush=True)
            continue
        environment = Environment(row, declared, wheel, options.tests, options.without)
        environment.run()
        if not options.keep:
            environment.clean()
    print()
    print_tables(rows, declared)
    if options.json:
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        options.json.write_text(json.dumps({"date": today, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    return exit_status(rows)


def _choice(text: str) -> dict[str, str]:
    """`python=3.10,which=lowest`."""
    choice: dict[str, Any] = dict(part.partition("=")[::2] for part in text.split(","))
    if not set(choice) <= {"python", "which"}:
        raise argparse.ArgumentTypeError(f"'{text}' is not like python=3.10,which=lowest")
    return choice


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("range: interrupted")
