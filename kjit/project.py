"""Projects: the files of a user's project, configured by `[tool.kjit]` in `pyproject.toml`, with defaults.

The project is the nearest folder, from the start upwards, whose `pyproject.toml` has a `[tool.kjit]` table; otherwise
the nearest with a `pyproject.toml`, with the defaults. So kjit works in an existing project without configuration, and
a sub-project of a larger tree still finds the table above it. The trade-off: a stray `pyproject.toml` in a parent
folder is taken for the project, which is visible in the paths that the commands print.

The package is looked for in `src`, in `python`, beside `pyproject.toml` and in the other folders there, whatever the
build backend is.

    [tool.kjit]
    package = "kernels"              # dotted name of the package that holds the wrappers
    csrc = "kernels/csrc"            # kernels; by default <package>/csrc
    include = "kernels/include"      # headers shared by this project's kernels; by default <package>/include
    tests = "tests"
    benchmarks = "benchmarks"
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import keyword
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from kjit.errors import KjitError, UsageError

if TYPE_CHECKING:
    from kjit.spec import Spec

DEFAULT_PACKAGE = "kernels"
KEYS = ("package", "csrc", "include", "tests", "benchmarks")

_SOURCES = (".cuh", ".cu", ".cpp", ".cc", ".h", ".hpp")

T = TypeVar("T")

PYTHON_C = "import sys; sys.path[:] = filter(None, sys.path);"
"""The beginning of code for `python -c`: it removes the current folder from sys.path, where a file may have the name of
a module of Python."""


@contextlib.contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr for code of the project, as its output is not part of a command's result (`--json`)."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


@dataclass(frozen=True)
class Raised:
    """The exception raised by code of the project."""

    error: BaseException


def run_of_project(code: Callable[[], T]) -> T | Raised:
    """Run code of the project; the value or exception, including those of `sys.exit` and `pytest.skip`.

    Its output goes to stderr.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    try:
        with prints_to_stderr():
            return code()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (whatever the user's code raises is what there is to report)
        return Raised(error)


@dataclass(frozen=True)
class Project:
    """The folders of a project. All paths are absolute; none needs to exist.

    Args:
        root: the folder of `pyproject.toml`.
        import_root: what must be on `sys.path` for `package` to import: `root`, or the folder of its packages (`src`).
        package: the dotted name of the package of the wrappers.
        package_dir: its folder.
        csrc_dir: the kernels.
        include_dir: headers shared by this project's kernels.
        tests_dir: the tests of the ops.
        benchmarks_dir: their benchmarks.
    """

    root: Path
    import_root: Path
    package: str
    package_dir: Path
    csrc_dir: Path
    include_dir: Path
    tests_dir: Path
    benchmarks_dir: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders with files of its ops."""
        return self.package_dir, self.csrc_dir, self.include_dir, self.tests_dir, self.benchmarks_dir

    def ops(self) -> list[str]:
        """The names of the ops, sorted: the package's modules that do not start with an underscore."""
        try:
            entries = sorted(os.listdir(self.package_dir))
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = [name.removesuffix(".py") for name in entries if name.endswith(".py")]
        return [name for name in names if name.isidentifier() and not name.startswith("_")]

    def module_name(self, op: str) -> str:
        """The dotted name under which the wrapper of `op` imports."""
        return f"{self.package}.{op}"

    def wrapper_path(self, op: str) -> Path:
        return self.package_dir / f"{op}.py"

    def test_path(self, op: str) -> Path:
        return self.tests_dir / f"test_{op}.py"

    def benchmark_path(self, op: str) -> Path:
        return self.benchmarks_dir / f"bench_{op}.py"

    def files_of(self, op: str, specs: Iterable[Spec] = ()) -> list[Path]:
        """The files of an op that exist: wrapper, sources, test, benchmark.

        Sources are those with the op's name, and those of `specs` inside the project.
        """
        own = sorted(path for path in self.csrc_dir.glob(f"{op}.*") if path.suffix in _SOURCES)
        named = [Path(name) for spec in specs for name in (*spec.cuda_files, *spec.cpp_files)]
        named = [path for path in named if path.is_relative_to(self.root)]
        every = (self.wrapper_path(op), *own, *named, self.test_path(op), self.benchmark_path(op))
        return [path for path in dict.fromkeys(every) if path.is_file()]

    def display(self, path: Path) -> str:
        """`path` for display: relative to the root if it is inside."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def check_ops(self, ops: list[str]) -> list[str]:
        """`ops`, or all ops of the project if it is empty.

        Raises:
            UsageError: an op has no wrapper, or there is no package.
        """
        if not self.package_dir.is_dir():
            first = ops[0] if ops and ops[0].isidentifier() else "my_op"
            raise UsageError(
                f"there is no folder {self.display(self.package_dir)} in {self.root}, which would be the package"
                f" '{self.package}' of the ops.",
                hint=f"`kjit new {first}` makes it with its first op; where the ops are elsewhere, name their package"
                ' in [tool.kjit], as in package = "mylib.kernels"',
            )
        known = self.ops()
        for op in ops:
            if op not in known:
                # The argument may be a file of the intended op.
                stem = Path(op).stem.lower().removeprefix("test_").removeprefix("bench_")
                near = difflib.get_close_matches(stem, known, n=1) or [
                    name for name in known if stem in name.split("_")
                ]
                listed = ", ".join(known) or "none yet"
                raise UsageError(
                    f"there is no op '{op}' in {self.display(self.package_dir)} (ops: {listed}).",
                    hint=f"did you mean {near[0]}?" if near else "`kjit new` makes one; an op is named as its wrapper",
                )
        return list(dict.fromkeys(ops)) or known

    def import_wrapper(self, op: str) -> ModuleType:
        """Import the wrapper of `op`, with the project first on `sys.path` (where it stays: wrappers may import late).

        Its output goes to stderr.

        Raises:
            UsageError: there is no such wrapper.
            KjitError: it fails to import, or another package of that name is already loaded.
        """
        path = self.wrapper_path(op)
        if not path.is_file():
            self.check_ops([op])
        entry = str(self.import_root)
        if entry not in sys.path:
            sys.path.insert(0, entry)
            importlib.invalidate_caches()
        module = run_of_project(lambda: importlib.import_module(self.module_name(op)))
        loaded = sys.modules.get(self.package)
        folders = [os.path.realpath(folder) for folder in getattr(loaded, "__path__", ())]
        if loaded is not None and os.path.realpath(self.package_dir) not in folders:
            raise KjitError(
                f"Python takes '{self.package}' from {next(iter(folders), loaded.__file__)}, not from"
                f" {self.display(self.package_dir)}.",
                hint="another package has the same name: uninstall it, or give yours another name in [tool.kjit]"
                " package",
            )
        if isinstance(module, Raised):
            raise KjitError(
                f"the wrapper {self.display(path)} fails to import: {describe_error(module.error, path)}",
                hint=f'see all of it with: cd "{self.import_root}" && python -c "import {self.module_name(op)}"',
            ) from module.error
        return module


def keep_folder(project: Project, name: str) -> Path:
    """The folder `.kjit/<name>` of a project, for reports; created if missing, and ignored by git."""
    folder = project.root / ".kjit" / name
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return folder


def find_project(start: Path | str = ".") -> Project:
    """The project of `start`, a folder or a file.

    Raises:
        UsageError: neither `start` nor a parent folder has a `pyproject.toml`, or it is invalid.
    """
    pyproject = find_pyproject(start)
    if pyproject is None:
        raise UsageError(
            f"there is no project here: neither {os.path.abspath(start)} nor a folder above it has a pyproject.toml.",
            hint="`kjit init` makes a project in this folder",
        )
    return read_project(pyproject)


def find_pyproject(start: Path | str = ".") -> Path | None:
    """The `pyproject.toml` for `start`: the nearest with `[tool.kjit]`, else the nearest, else None.

    Raises:
        UsageError: a `pyproject.toml` on the way is not valid TOML.
    """
    here = Path(os.path.abspath(start))
    found = [path for folder in (here, *here.parents) if (path := folder / "pyproject.toml").is_file()]
    return next((path for path in found if _kjit_table(path) is not None), next(iter(found), None))


def read_project(pyproject: Path) -> Project:
    """The project of a `pyproject.toml`.

    Raises:
        UsageError: it is not valid TOML, or `[tool.kjit]` has an unknown key or an invalid value.
    """
    table = _kjit_table(pyproject)
    if table is None:
        table = {}
    if not isinstance(table, dict):
        raise UsageError(
            f"{pyproject}: [tool.kjit] is not a table.", hint='write [tool.kjit], then package = "kernels"'
        )
    for key, value in table.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            raise UsageError(
                f"{pyproject}: [tool.kjit] has no key '{key}'.",
                hint=f"did you mean {near[0]}?" if near else f"the keys are {', '.join(KEYS)}",
            )
        if not isinstance(value, str) or not value:
            raise UsageError(f"{pyproject}: [tool.kjit] {key} must be a string that is not empty.")
    project = plan_project(pyproject.parent, table)
    if not is_module_name(project.package):
        raise UsageError(
            f"{pyproject}: '{project.package}' is not the name of a Python package.",
            hint='write it as in an import statement: package = "kernels" or package = "mylib.kernels"',
        )
    for folder in project.folders:
        if not folder.is_relative_to(project.root):
            raise UsageError(
                f"{pyproject}: a folder in [tool.kjit] is outside of the project: {folder}.",
                hint=f"give a folder relative to {project.root}",
            )
    return project


def plan_project(root: Path, table: Mapping[str, str] | None = None) -> Project:
    """The project in `root` with these settings, by default none."""
    table = table or {}
    package = table.get("package", DEFAULT_PACKAGE)
    import_root = _import_root(root, package)
    package_dir = import_root.joinpath(*package.split("."))

    def folder(key: str, default: Path) -> Path:
        # In Python's encoding of file names, which differs from TOML's in a locale without UTF-8.
        return Path(os.path.normpath(root / os.fsdecode(table[key].encode()))) if key in table else default

    return Project(
        root=root,
        import_root=import_root,
        package=package,
        package_dir=package_dir,
        csrc_dir=folder("csrc", package_dir / "csrc"),
        include_dir=folder("include", package_dir / "include"),
        tests_dir=folder("tests", root / "tests"),
        benchmarks_dir=folder("benchmarks", root / "benchmarks"),
    )


def _import_root(root: Path, package: str) -> Path:
    """The folder from which `package` is imported: `src`, `python`, the root or another folder in it that has the
    package, else one that has the package around it, else the root."""
    if not root.is_dir():
        return root
    first, *inner = package.split(".")
    subfolders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    folders = (root / "src", root / "python", root, *subfolders)
    for parts in ((first, *inner, "__init__.py"), (first, *inner), (first,)):
        for folder in folders:
            if folder.joinpath(*parts).exists():
                return folder
    return root


def is_module_name(text: str) -> bool:
    """Whether `import <text>` is valid."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in text.split("."))


def load_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file.

    Raises:
        UsageError: it is not TOML, or not UTF-8; the message names file and line.
    """
    try:
        return parse_toml(path.read_bytes().decode(), path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}).", hint="save it as UTF-8") from None


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parsed TOML; `path` is for the message.

    Raises:
        UsageError: it is not TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", hint="fix that line and try again") from None


def _kjit_table(pyproject: Path) -> Any:
    tool = load_toml(pyproject).get("tool")
    return tool.get("kjit") if isinstance(tool, dict) else None


def describe_error(error: BaseException, path: Path) -> str:
    """An error in one line, with the line of `path`; the message of kjit's own."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno is not None:
        return f"{type(error).__name__} at {Path(error.filename).name}:{error.lineno}: {error.msg}"
    if isinstance(error, KjitError):
        text = error.message
    else:
        first, *rest = str(error).splitlines() or [""]
        text = f"{type(error).__name__}: {first}{' ...' if rest else ''}" if first else type(error).__name__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f"{text} (line {lines[-1]})" if lines else text
