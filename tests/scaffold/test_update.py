"""Another signature for an op that exists: what was changed in its files stays."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kjit.errors import KjitError, UsageError
from kjit.scaffold.new import parse_devices, parse_dtypes, scaffold_op
from kjit.scaffold.patterns import PATTERNS
from kjit.scaffold.update import update_op

MORE = "x: T[...], alpha: float = 2.0, beta: float = 0.0 -> out: T[...]"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the op `scale` for both devices."""
    scaffold_op("scale", devices=parse_devices("cuda,cpu"), start=tmp_path).files.write()
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def update(root: Path, *args: str, **parts: object) -> dict[str, str]:
    """What changes, by the names of the files."""
    scaffold, _ = update_op("scale", *args, start=root, **parts)  # type: ignore[arg-type]
    return {file.path.name: file.text for file in scaffold.files.files}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_untouched_files_become_what_would_be_scaffolded(tmp_path: Path, pattern: str) -> None:
    before, after = "x: T[N], a: float -> out: T[N]", "x: T[N], w: U[N], a: float, k: const int = 3 -> out: T[N]"
    if pattern == "rowwise":
        before, after = "x: T[B, D], a: float -> out: T[B, D]", "x: T[B, D], w: T[D], a: float -> out: T[B, D]"
    if pattern == "gather":
        before = "src: T[M, D], index: int64[N] -> out: T[N, D]"
        after = "src: T[M, D], index: int32[N] -> out: T[N, D]"
    dtypes = parse_dtypes("fp32,fp64" if pattern != "rowwise" else "fp32,bf16")
    scaffold_op("scale", before, pattern=pattern, dtypes=dtypes, start=tmp_path).files.write()
    scaffold, conflicts = update_op("scale", after, start=tmp_path)
    assert conflicts == []
    scaffold.files.write()
    for file in scaffold_op("scale", after, pattern=pattern, dtypes=dtypes, start=tmp_path).files.files:
        assert file.path.read_text() == file.text


def test_what_was_changed_elsewhere_stays(project: Path) -> None:
    wrapper = project / "kernels" / "scale.py"
    change(wrapper, "DTYPES = (torch.float32,", "DTYPES = (torch.float64, torch.float32,")
    change(wrapper, "    if out is None:", "    # mine\n    if out is None:")
    change(project / "tests" / "test_scale.py", "class Test", "def test_mine() -> None: ...\n\n\nclass Test")
    scaffold, conflicts = update_op("scale", MORE, start=project)
    assert conflicts == []
    scaffold.files.write()
    text = wrapper.read_text()
    assert "torch.float64, torch.float32" in text
    assert "# mine" in text
    assert "module.scale(x, alpha, beta, out)" in text
    assert "def test_mine" in (project / "tests" / "test_scale.py").read_text()


def test_math_that_both_have_changed_is_marked_and_the_places_are_named(project: Path) -> None:
    change(project / "kernels" / "csrc" / "scale.h", "x * alpha", "alpha - x")
    change(project / "tests" / "test_scale.py", "return x * alpha", "return alpha - x")
    scaffold, conflicts = update_op("scale", MORE, start=project)
    scaffold.files.write()
    assert [place.path.name for place in conflicts] == ["scale.h", "test_scale.py"]
    for place in conflicts:
        lines = place.path.read_text().splitlines()[place.line - 1 :]
        assert lines[0] == "<<<<<<< yours"
        assert "alpha - x" in lines[1]
        assert "beta" in lines[3]
    ast.parse((project / "kernels" / "scale.py").read_text())


def test_a_kernel_for_another_device_is_added(project: Path) -> None:
    (project / "kernels" / "csrc" / "scale.cpp").unlink()
    change(project / "kernels" / "scale.py", '\n        cpp_files=[CSRC / "scale.cpp"],', "")
    changed = update(project, devices=parse_devices("cuda,cpu"))
    assert "scale.cpp" in changed
    assert "cpp_files" in changed["scale.py"]


def test_a_kernel_that_an_update_left_behind_is_named_and_is_no_part_of_the_op(project: Path) -> None:
    scaffold, _ = update_op("scale", devices=parse_devices("cpu"), start=project)
    assert scaffold.notes == ("kernels/csrc/scale.cuh is no longer part of op 'scale', and stays until you delete it",)
    scaffold.files.write()
    left = (project / "kernels" / "csrc" / "scale.cuh").read_text()
    scaffold, conflicts = update_op("scale", MORE, start=project)
    assert conflicts == []
    assert scaffold.notes == ()
    scaffold.files.write()
    assert "cuda" not in (project / "kernels" / "scale.py").read_text()
    assert (project / "kernels" / "csrc" / "scale.cuh").read_text() == left


def test_math_that_was_changed_moves_to_where_both_devices_have_it(tmp_path: Path) -> None:
    scaffold_op("scale", devices=parse_devices("cuda"), start=tmp_path).files.write()
    csrc = tmp_path / "kernels" / "csrc"
    change(csrc / "scale.cuh", "x * alpha", "alpha - x")
    scaffold, conflicts = update_op("scale", devices=parse_devices("cuda,cpu"), start=tmp_path)
    assert conflicts == []
    assert [place.path.name for place in scaffold.places] == []
    scaffold.files.write()
    assert "out = alpha - x;" in (csrc / "scale.h").read_text()
    for name in ("scale.cuh", "scale.cpp"):
        assert (csrc / name).read_text().endswith('\n#include "scale.h"\n')
    assert update(tmp_path) == {}


def test_the_command_says_where_the_math_of_a_new_kernel_is(tmp_path: Path) -> None:
    scaffold_op("scale", pattern="minimal", devices=parse_devices("cpu"), start=tmp_path).files.write()
    change(tmp_path / "kernels" / "csrc" / "scale.cpp", "x * alpha", "alpha - x")
    command = [sys.executable, "-m", "kjit", "new", "scale", "--device", "cuda,cpu", "--update"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (place,) = done.stdout.partition("Put your math in the place of the example's:")[2].split()
    file, _, line = place.partition(":")
    assert file == "kernels/csrc/scale.cuh"
    assert "x * alpha" in (tmp_path / file).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize(("before", "after"), [("cpu", "cuda,cpu"), ("cuda,cpu", "cuda")])
def test_math_that_was_changed_does_not_meet_the_names_of_the_kernels_above_it(
    tmp_path: Path, before: str, after: str
) -> None:
    scaffold_op("scale", pattern="minimal", devices=parse_devices(before), start=tmp_path).files.write()
    change(tmp_path / "tests" / "test_scale.py", "return x * alpha", "# mine\n    return alpha - x")
    scaffold, conflicts = update_op("scale", devices=parse_devices(after), start=tmp_path)
    assert conflicts == []
    scaffold.files.write()
    text = (tmp_path / "tests" / "test_scale.py").read_text()
    kernels = {"cuda": "kernels/csrc/scale.cuh", "cuda,cpu": "kernels/csrc/scale.cuh and kernels/csrc/scale.cpp"}
    assert f"    # The math, as in {kernels[after]}.\n    # mine\n    return alpha - x\n" in text


def test_the_command_says_which_kernel_is_no_longer_part_of_the_op(project: Path) -> None:
    command = [sys.executable, "-m", "kjit", "new", "scale", "--device", "cpu", "--update"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    assert "note: kernels/csrc/scale.cuh is no longer part of op 'scale'" in done.stdout + done.stderr


def test_a_kernel_that_was_left_behind_is_not_overwritten(project: Path) -> None:
    scaffold, _ = update_op("scale", devices=parse_devices("cpu"), start=project)
    scaffold.files.write()
    with pytest.raises(UsageError, match=r"kernels/csrc/scale\.cuh is there already, and is no part of op 'scale'"):
        update(project, devices=parse_devices("cuda,cpu"))


def test_a_kernel_that_is_part_of_the_op_and_was_deleted_is_written_anew(project: Path) -> None:
    (project / "kernels" / "csrc" / "scale.h").unlink()
    assert "beta" in update(project, MORE)["scale.h"]


@pytest.mark.parametrize("name", ["kernels/csrc/scale.cuh", "kernels/scale.py", "tests/test_scale.py"])
def test_a_file_that_is_not_utf_8_is_refused_with_the_line(project: Path, name: str) -> None:
    path = project / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"\xe9t\xe9\n", *lines[3:]]))
    with pytest.raises(UsageError, match=rf"{name}:4 is not UTF-8"):
        update(project, MORE)


def test_line_ends_stay_as_they_are(project: Path) -> None:
    kernel, wrapper, test = (
        project / name for name in ("kernels/csrc/scale.h", "kernels/scale.py", "tests/test_scale.py")
    )
    change(test, "return x * alpha", "return alpha - x")
    right = update(project, MORE)
    for path in (kernel, test):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    wrapper.write_bytes(wrapper.read_bytes().replace(b"DTYPES", b"MINE = 1\r\nDTYPES", 1))
    assert update(project) == {}
    scaffold, conflicts = update_op("scale", MORE, start=project)
    assert [place.path for place in conflicts] == [test]
    assert "\n-DTYPES" not in scaffold.files.diff()
    assert f"\n-{wrapper.read_text().splitlines()[0]}" not in scaffold.files.diff()
    scaffold.files.write()
    for path in (kernel, test):
        assert path.read_bytes() == right[path.name].replace("\n", "\r\n").encode()
    assert wrapper.read_bytes() == right[wrapper.name].replace("DTYPES", "MINE = 1\r\nDTYPES", 1).encode()


@pytest.mark.parametrize("name", ["kernels/csrc/scale.h", "kernels/scale.py", "tests/test_scale.py"])
def test_a_file_in_which_markers_still_stand_is_refused_with_the_line(project: Path, name: str) -> None:
    path = project / name
    lines = path.read_text().splitlines(keepends=True)
    lines[8:8] = ["<<<<<<< yours\n", "\n", "=======\n", ">>>>>>> as scaffolded now\n"]
    path.write_text("".join(lines))
    for signature in (MORE, None):
        with pytest.raises(UsageError, match=rf"{name}:9 has git's markers") as error:
            update_op("scale", signature, start=project)
        assert "remove the markers" in (error.value.hint or "")


def test_a_wrapper_that_names_no_kernel_is_refused(project: Path) -> None:
    change(project / "kernels" / "scale.py", "kjit.Spec(", "kjit.Other(")
    with pytest.raises(UsageError, match=r"no Spec with cuda_files= or cpp_files="):
        update(project, MORE)


def test_dtypes_can_be_given_anew(project: Path) -> None:
    changed = update(project, dtypes=parse_dtypes("fp64"))
    assert list(changed) == ["scale.py"]
    assert "DTYPES = (torch.float64,)" in changed["scale.py"]


@pytest.mark.parametrize(
    ("pattern", "written", "edited"),
    [
        ("rowwise", "fp32", "fp32,int32"),
        ("rowwise", "fp32", "int32,fp32"),
        ("rowwise", "fp32,bf16", "bf16,int64,fp64"),
        ("rowwise", "fp32,int8", "fp32"),
        ("elementwise", "fp16", "fp16,fp8_e5m2"),
        ("elementwise", "fp8,fp32,int8", "int8,fp32"),
        ("gather", "int8", "fp8,fp64"),
    ],
)
def test_a_dtype_of_another_kind_that_was_put_into_the_wrapper_comes_into_test_and_benchmark(
    tmp_path: Path, pattern: str, written: str, edited: str
) -> None:
    def files(dtypes: str) -> dict[Path, str]:
        scaffold = scaffold_op("scale", pattern=pattern, dtypes=parse_dtypes(dtypes), start=tmp_path)
        scaffold.files.write(force=True)
        return {file.path: file.text for file in scaffold.files.files}

    right = files(edited)
    before = files(written)
    wrapper = tmp_path / "kernels" / "scale.py"
    wrapper.write_text(right[wrapper])
    change(tmp_path / "tests" / "test_scale.py", "class Test", "def test_mine() -> None: ...\n\n\nclass Test")
    scaffold, conflicts = update_op("scale", start=tmp_path)
    assert conflicts == []
    assert {file.path for file in scaffold.files.files} == {path for path in before if before[path] != right[path]} - {
        wrapper
    }
    for file in scaffold.files.files:
        assert file.text.replace("def test_mine() -> None: ...\n\n\n", "") == right[file.path]


def test_lines_for_a_kind_of_dtypes_that_were_changed_stay_as_they_are(tmp_path: Path) -> None:
    dtypes = parse_dtypes("fp32,int32,fp8")
    scaffold_op("norm", pattern="rowwise", dtypes=dtypes, start=tmp_path).files.write()
    change(tmp_path / "tests" / "test_norm.py", "x.square().double().mean(-1", "x.double().square().mean(-1")
    assert update_op("norm", start=tmp_path)[0].files.files == []


@pytest.mark.parametrize("dtype", ["bool", "uint16"])
def test_a_dtype_for_which_no_op_is_written_stays_in_the_wrapper(project: Path, dtype: str) -> None:
    change(project / "kernels" / "scale.py", "DTYPES = (torch.float32,", f"DTYPES = (torch.float32, torch.{dtype},")
    assert f"torch.{dtype}" in update(project, MORE)["scale.py"]


def test_without_a_change_there_is_nothing_to_do(project: Path) -> None:
    change(project / "kernels" / "scale.py", "    if out is None:", "    # mine\n    if out is None:")
    assert update(project) == {}


def test_a_wrapper_that_does_not_say_what_it_was_made_from_is_refused(project: Path) -> None:
    change(project / "kernels" / "scale.py", "Pattern: ", "About: ")
    with pytest.raises(UsageError, match=r"kernels/scale\.py does not say what it was made from") as error:
        update(project, MORE)
    assert "--force --dry-run" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("alpha: float = 2.0 ->", "alpha: float = 2.0, beta: float = 0.0 ->"),
        ("alpha: float = 2.0 ->", "alpha: float = 3.0 ->"),
        ("alpha: float = 2.0 ->", "alpha: int = 2 ->"),
        (", alpha: float = 2.0 ->", " ->"),
        ("-> out: T[...]", "-> out: T[...], more: T[...]"),
    ],
)
def test_a_signature_that_was_edited_in_the_docstring_alone_is_refused(project: Path, old: str, new: str) -> None:
    change(project / "kernels" / "scale.py", old, new)
    for signature in (MORE, None):
        with pytest.raises(
            UsageError, match=r"scale\.py has another signature in its docstring, \(x.*\(x.*\)\."
        ) as error:
            update_op("scale", signature, start=project)
        assert "`kjit new scale SIGNATURE --update` changes both" in (error.value.hint or "")


def test_a_parameter_that_only_the_function_in_python_has_is_no_part_of_the_signature(project: Path) -> None:
    change(project / "kernels" / "scale.py", "alpha: float = 2.0, *,", "alpha: float = 2e0, fast: bool = True, *,")
    change(project / "kernels" / "scale.py", "out: torch.Tensor | None = None", "out: Optional[torch.Tensor] = None")
    assert update(project) == {}


def test_a_wrapper_that_is_no_python_is_named_with_its_line(project: Path) -> None:
    change(project / "kernels" / "scale.py", "import torch\n", "import\n")
    with pytest.raises(UsageError, match=r"kernels/scale\.py:\d+ is not Python"):
        update(project, MORE)


def test_an_op_that_does_not_exist_is_refused(project: Path) -> None:
    with pytest.raises(UsageError, match="there is no op 'scales'"):
        update_op("scales", start=project)


def test_a_name_that_no_op_can_have_is_refused_before_one_is_looked_for(project: Path) -> None:
    with pytest.raises(UsageError, match="an op named 'sets' would hide a name") as error:
        update_op("sets", start=project)
    assert error.value.hint == "for example: sets_op"


def test_without_git_it_is_said_that_git_is_missing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(KjitError, match="git, which merges the files, is not installed"):
        update(project, MORE)


def test_the_command_shows_a_diff_writes_the_files_and_names_what_meets(project: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kjit", "new", "scale", MORE, *options]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)

    change(project / "tests" / "test_scale.py", "return x * alpha", "return alpha - x")
    before = (project / "kernels" / "scale.py").read_text()
    dry = run("--update", "--dry-run")
    assert dry.returncode == 1
    assert "+    module.scale(x, alpha, beta, out)" in dry.stdout
    assert "tests/test_scale.py:" in dry.stdout.partition("git's markers would show both:")[2]
    assert (project / "kernels" / "scale.py").read_text() == before
    done = run("--update")
    assert done.returncode == 1
    assert "tests/test_scale.py:" in done.stdout.partition("git's markers")[2]
    assert "beta" in (project / "kernels" / "scale.py").read_text()
    both = run("--update", "--force")
    assert both.returncode == 2
    assert "--update keeps what you changed" in both.stderr
