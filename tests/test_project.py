"""kjit.project: the places of a user's files, and errors about `pyproject.toml`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kjit.errors import KjitError, UsageError
from kjit.project import Project, find_project, find_pyproject


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """Forget the modules that a test imports from its project."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, text: str = "[tool.kjit]\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def add_wrapper(project: Project, op: str, text: str = "") -> Path:
    project.package_dir.mkdir(parents=True, exist_ok=True)
    path = project.wrapper_path(op)
    path.write_text(text)
    return path


def test_every_key_has_a_default(tmp_path: Path) -> None:
    project = find_project(write(tmp_path))
    assert project == Project(
        root=tmp_path,
        import_root=tmp_path,
        package="kernels",
        package_dir=tmp_path / "kernels",
        csrc_dir=tmp_path / "kernels" / "csrc",
        include_dir=tmp_path / "kernels" / "include",
        tests_dir=tmp_path / "tests",
        benchmarks_dir=tmp_path / "benchmarks",
    )


def test_the_keys_say_where_things_are(tmp_path: Path) -> None:
    write(tmp_path, '[tool.kjit]\npackage = "a.b"\ncsrc = "c"\ninclude = "i"\ntests = "t"\nbenchmarks = "m"\n')
    project = find_project(tmp_path)
    assert project.package_dir == tmp_path / "a" / "b"
    folders = (project.csrc_dir, project.include_dir, project.tests_dir, project.benchmarks_dir)
    assert folders == tuple(tmp_path / name for name in "citm")


@pytest.mark.parametrize("folder", ["src", "python", "lib"])
def test_the_package_is_searched_for_in_the_folders_of_the_project(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder / "mini" / "kernel").mkdir(parents=True)
    # A folder of that name beside it which has no such package, as that of its C++ sources.
    (tmp_path / "mini").mkdir()
    project = find_project(write(tmp_path, '[tool.kjit]\npackage = "mini.kernel"\n'))
    assert (project.import_root, project.package_dir) == (tmp_path / folder, tmp_path / folder / "mini" / "kernel")
    assert project.csrc_dir == tmp_path / folder / "mini" / "kernel" / "csrc"


def test_a_package_that_is_not_there_is_an_error_that_names_its_folder(tmp_path: Path) -> None:
    project = find_project(write(tmp_path, '[tool.kjit]\npackage = "mini.kernel"\n'))
    for ops in ([], ["scale"]):
        with pytest.raises(UsageError, match=r"there is no folder mini/kernel in .* package 'mini\.kernel'"):
            project.check_ops(ops)


def test_the_nearest_table_goes_before_a_nearer_file_without_one(tmp_path: Path) -> None:
    write(tmp_path)
    inner = write(tmp_path / "inner", '[project]\nname = "x"\n')
    assert find_project(inner).root == tmp_path


def test_no_pyproject_is_an_error_that_names_kjit_init(tmp_path: Path) -> None:
    assert find_pyproject(tmp_path) is None
    with pytest.raises(UsageError, match=r"no project here(.|\n)*kjit init"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[tool.kjit]\npackage = \n", r"pyproject\.toml is not valid TOML: Invalid value \(at line 2"),
        (b"# \xff\n", "not UTF-8 text"),
        (b"[tool]\nkjit = 3\n", "not a table"),
        (b"[tool.kjit]\npackages = 1\n", r"toml: .* no key 'packages'(.|\n)*mean package\?"),
        (b"[tool.kjit]\npackage = 3\n", "package must be a string"),
        (b'[tool.kjit]\ntests = ""\n', "tests must be a string that is not empty"),
        (b'[tool.kjit]\npackage = "my-kernels"\n', "'my-kernels' is not the name of a Python package"),
        (b'[tool.kjit]\ncsrc = "../elsewhere"\n', "outside of the project"),
    ],
)
def test_a_pyproject_that_cannot_be_used_is_an_error(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text)
    with pytest.raises(UsageError, match=message):
        find_project(tmp_path)


def test_a_wrapper_is_imported_from_the_project(tmp_path: Path) -> None:
    project = find_project(write(tmp_path, '[tool.kjit]\npackage = "imported_kernels"\n'))
    add_wrapper(project, "answer", "VALUE = 42\n")
    module = project.import_wrapper("answer")
    assert module.VALUE == 42
    assert module.__name__ == "imported_kernels.answer"


@pytest.mark.parametrize(
    ("package", "source", "message"),
    [
        (
            "raising_kernels",
            "\n\nimport does_not_exist_at_all\n",
            r"bad\.py fails to import: ModuleNotFoundError: .* \(line 3\)",
        ),
        ("syntax_kernels", "x = 1\ndef f(:\n", r"SyntaxError at bad\.py:2"),
        # As pytest's own, which this test would pass on to pytest if it came through.
        (
            "skipping_kernels",
            "class Skipped(BaseException): ...\nraise Skipped('no GPU')\n",
            r"bad\.py fails to import: Skipped: no GPU \(line 2\)",
        ),
    ],
    ids=["raises", "syntax", "skips_itself"],
)
def test_a_wrapper_that_cannot_be_imported_is_an_error_with_its_line(
    tmp_path: Path, package: str, source: str, message: str
) -> None:
    project = find_project(write(tmp_path, f'[tool.kjit]\npackage = "{package}"\n'))
    add_wrapper(project, "bad", source)
    with pytest.raises(KjitError, match=message):
        project.import_wrapper("bad")


@pytest.mark.parametrize("taken_has_the_op", [False, True])
def test_another_package_of_the_same_name_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_has_the_op: bool
) -> None:
    name = f"taken_kernels_{taken_has_the_op}"
    other = tmp_path / "other" / name
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    if taken_has_the_op:
        (other / "scale.py").touch()
    monkeypatch.syspath_prepend(other.parent)
    __import__(name)
    project = find_project(write(tmp_path / "mine", f'[tool.kjit]\npackage = "{name}"\n'))
    add_wrapper(project, "scale")
    with pytest.raises(KjitError, match="another package has the same name"):
        project.import_wrapper("scale")


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("scales", "did you mean scale?"),
        ("benchmarks/bench_scale.py", "did you mean scale?"),
        ("SCALES", "did you mean scale?"),
        ("rms", "did you mean rms_norm?"),
        ("other", "`kjit new` makes one; an op is named as its wrapper"),
    ],
)
def test_an_op_that_is_not_there_has_a_hint_that_works(tmp_path: Path, named: str, hint: str) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    (tmp_path / "kernels").mkdir()
    for op in ("scale", "rms_norm"):
        (tmp_path / "kernels" / f"{op}.py").touch()
    with pytest.raises(UsageError, match="there is no op") as caught:
        find_project(tmp_path).check_ops([named])
    assert caught.value.hint == hint
