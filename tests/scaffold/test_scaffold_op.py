"""kjit.scaffold.new: the files of an op, and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matrix import HUGE, LONG, OPS, PLANES, RARE, Op

from kjit.errors import UsageError
from kjit.project import find_project
from kjit.scaffold.new import parse_devices, parse_dtypes, scaffold_op
from kjit.scaffold.patterns import PATTERNS
from kjit.signature.signature import SignatureError

LIBRARY = [name for name, pattern in PATTERNS.items() if pattern.is_library]
"""The patterns whose kernels are those of kjit's headers."""


def written(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_bare_folder_becomes_a_project_with_an_op(tmp_path: Path) -> None:
    scaffold = scaffold_op("scale", start=tmp_path, devices=("cuda", "cpu"))
    scaffold.files.write()
    assert "there was no project here" in scaffold.notes[0]
    assert written(tmp_path) == {
        ".clang-format",
        ".gitignore",
        "pyproject.toml",
        "kernels/__init__.py",
        "kernels/scale.py",
        "kernels/csrc/scale.h",
        "kernels/csrc/scale.cuh",
        "kernels/csrc/scale.cpp",
        "tests/test_scale.py",
        "benchmarks/bench_scale.py",
    }
    assert find_project(tmp_path).ops() == ["scale"]


def kernels(pattern: str, devices: str, root: Path) -> dict[str, str]:
    """The text of each C++ file of an op, by its suffix."""
    scaffold = scaffold_op("take", start=root, devices=parse_devices(devices), pattern=pattern)
    return {file.path.suffix: file.text for file in scaffold.files.files if file.path.parent.name == "csrc"}


def test_where_kernels_are_the_library_s_the_files_of_two_devices_include_one_with_the_op(tmp_path: Path) -> None:
    texts = kernels("elementwise", "cuda,cpu", tmp_path)
    assert texts.keys() == {".h", ".cuh", ".cpp"}
    assert texts[".h"].count("struct Take {") == texts[".h"].count("#pragma once") == 1
    for suffix in (".cuh", ".cpp"):
        assert [line for line in texts[suffix].splitlines() if line[:2] != "//"] == ["", '#include "take.h"']


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_an_op_for_one_device_is_one_file_with_the_same_text(tmp_path: Path, device: str) -> None:
    (text,) = kernels("elementwise", device, tmp_path).values()
    assert text == kernels("elementwise", "cuda,cpu", tmp_path)[".h"].replace("#pragma once\n\n", "")


SHORT = [op for op in (*OPS, *LONG, *HUGE, *PLANES, *RARE) if op.pattern in LIBRARY]


@pytest.mark.parametrize("op", SHORT, ids=lambda op: op.name)
def test_an_op_whose_kernels_are_the_library_s_is_short(tmp_path: Path, op: Op) -> None:
    op.write(tmp_path)
    most = 80 if op.signature else 60
    for path in (*(tmp_path / "kernels" / "csrc").iterdir(), tmp_path / "tests" / f"test_{op.name}.py"):
        assert len(path.read_text().splitlines()) <= most, path


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("devices", ["cuda", "cpu", "cuda,cpu"])
def test_the_places_to_change_are_the_math(tmp_path: Path, pattern: str, devices: str) -> None:
    scaffold = scaffold_op("take", start=tmp_path, devices=parse_devices(devices), pattern=pattern)
    texts = {file.path: file.text.splitlines() for file in scaffold.files.files}
    *kernels, reference = [texts[place.path][place.line - 1].strip() for place in scaffold.places]
    assert len(kernels) >= (1 if pattern in LIBRARY else len(devices.split(",")))
    assert all(re.match(r"return |(?:const )?[\w<> ]+ = |for |if ", line) for line in kernels)
    assert re.match(r"return |\w+(?:\[\w+\])? = |raise kjit.testing.UnwrittenError", reference)


# What the kernels of ops take for the number of rows, and for the size of one.
SIZES = [
    ("rowwise", "x: uint8[65536, 65536, D] -> out: uint8[65536, 65536, D]", "4294967296", "D.unwrap()"),
    ("rowwise", "x: T[2, N, 3, D] -> out: T[2, N, 3, D]", "N.unwrap() * 6", "D.unwrap()"),
    ("gather", "x: T[M, 65536, 65536], idx: int64[N] -> out: T[N, 65536, 65536]", "N.unwrap()", "4294967296"),
    ("gather", "x: T[M, H, 4, 4], idx: int64[...] -> out: T[..., H, 4, 4]", "shape.numel()", "H.unwrap() * 16"),
    ("gather", "x: T[M], idx: int64[N] -> out: T[N]", "N.unwrap()", "1"),
]


@pytest.mark.parametrize(("pattern", "signature", "num_rows", "row_size"), SIZES)
def test_sizes_that_are_numbers_are_multiplied_in_the_scaffold(
    tmp_path: Path, pattern: str, signature: str, num_rows: str, row_size: str
) -> None:
    # In C++ the product of two would be an int.
    scaffold = scaffold_op("take", signature, start=tmp_path, devices=("cuda", "cpu"), pattern=pattern)
    texts = [file.text for file in scaffold.files.files if file.path.suffix in (".h", ".cuh", ".cpp")]
    texts = [text for text in texts if "#include <kjit/" in text]
    assert len(texts) == (1 if pattern in LIBRARY else 2)
    for text in texts:
        assert re.findall(r"(?:\.|int64_t )num_rows = (.*?)[;,}]", text) == [num_rows]
        assert re.findall(r"(?:\.|int64_t )row_size = (.*?)[;,}]", text) == [row_size]


def test_an_op_goes_where_the_project_says(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.kjit]\npackage = "a.b"\ncsrc = "native"\ntests = "t"\nbenchmarks = "m/n"\n'
        '[tool.pytest.ini_options]\npythonpath = ["."]\n'
    )
    scaffold = scaffold_op("scale", start=tmp_path)
    scaffold.files.write()
    assert scaffold.notes == ()
    assert {"a/__init__.py", "a/b/__init__.py", "a/b/scale.py", "native/scale.cuh", "t/test_scale.py"} <= written(
        tmp_path
    )
    assert 'CSRC = Path(__file__).parents[2] / "native"' in (tmp_path / "a/b/scale.py").read_text()
    assert 'TESTS = Path(__file__).parents[2] / "t"' in (tmp_path / "m/n/bench_scale.py").read_text()
    assert "from a.b.scale import" in (tmp_path / "t/test_scale.py").read_text()


def test_variants_are_the_dtypes_and_the_constants(tmp_path: Path) -> None:
    signature = "x: T[N], fast: const bool, n: const int = 4 -> out: T[N]"
    scaffold = scaffold_op("variants", signature, start=tmp_path, dtypes=parse_dtypes("bf16,int32"))
    wrapper = next(file.text for file in scaffold.files.files if file.path.name == "variants.py")
    assert "DTYPES = (torch.bfloat16, torch.int32)" in wrapper
    assert "kjit.product(dtype=DTYPES, fast=[False, True], n=[4])" in wrapper


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("fp32,fp16,bf16", ["float32", "float16", "bfloat16"]),
        ("float16, half,fp16_t,torch.float16", ["float16"]),
        ("int32_t,double,fp8", ["int32", "float64", "float8_e4m3fn"]),
    ],
)
def test_dtypes_may_be_named_in_any_way(text: str, names: list[str]) -> None:
    assert [dtype.name for dtype in parse_dtypes(text)] == names


@pytest.mark.parametrize(("text", "hint"), [("fp31", "fp32|float32"), ("FP16", "float16"), ("", "the dtypes are")])
def test_an_unknown_dtype_is_refused_with_a_suggestion(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"is not a dtype(.|\n)*({hint})"):
        parse_dtypes(text)


@pytest.mark.parametrize(("text", "hint"), [("gpu", "cuda"), ("tpu", "cuda,cpu"), ("", "cuda,cpu")])
def test_an_unknown_device_is_refused_with_a_suggestion(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"--device(.|\n)*{hint}"):
        parse_devices(text)


def test_dtypes_that_nothing_stands_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no dtype variable"):
        scaffold_op("f", "x: bf16[N] -> out: bf16[N]", start=tmp_path, dtypes=parse_dtypes("fp32"))


@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if pattern != "custom"])
def test_what_may_be_absent_and_changes_needs_a_kernel_of_its_own(tmp_path: Path, pattern: str) -> None:
    signature = "y: T[N], x: mut Optional T[N] = None -> out: T[N]"
    with pytest.raises(SignatureError, match="'x' is optional and changed in place") as caught:
        scaffold_op("f", signature, start=tmp_path, pattern=pattern)
    assert (caught.value.hint or "").startswith("--pattern custom serves it")
    assert (caught.value.hint or "").endswith("write x: mut T[N]")
    assert scaffold_op("f", signature, start=tmp_path, pattern="custom").places


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    ("signature", "reason", "hint"),
    [
        (
            "x: T[B, ...], y: T[B] -> out: T[B, ...]",
            "'...' stands for the leading dimensions",
            "x: T[B, N], and pass x.flatten(1)",
        ),
        ("x: T[N], n: const int -> out: T[N]", "'n' has no default", "n: const int = 1"),
        ("x: T[N], f: T[N] -> out: T[N]", "'f' is a name that the code derives from", "f_in"),
        (
            "x: T[N, C, ...] -> out: T[N]",
            "'...' stands for the leading dimensions",
            "x: T[N, C, S], and pass x.flatten(2)",
        ),
        ("x: T[F] -> out: T[F]", "'F' is also a C++ name", "a longer one"),
    ],
)
def test_a_signature_that_no_pattern_serves_is_refused_with_its_reason(
    tmp_path: Path, pattern: str, signature: str, reason: str, hint: str
) -> None:
    with pytest.raises(SignatureError, match=re.escape(reason)) as caught:
        scaffold_op("f", signature, start=tmp_path, pattern=pattern)
    assert hint in (caught.value.hint or "")
    assert written(tmp_path) == set()


@pytest.mark.parametrize(
    ("signature", "name", "owner"),
    [
        ("xs: mut list[T[N]], xs_count: int", "xs_count", "xs"),
        ("x: mut T[N, D] strided, x_strides: T[N]", "x_strides", "x"),
        ("x: mut T[N], has_a: int, a: Optional float = None", "has_a", "a"),
    ],
)
def test_a_parameter_named_like_what_the_kernel_is_given_besides_is_refused(
    tmp_path: Path, signature: str, name: str, owner: str
) -> None:
    with pytest.raises(SignatureError, match=f"'{name}' is a name that the code derives from '{owner}'") as caught:
        scaffold_op("f", signature, start=tmp_path, pattern="custom")
    assert caught.value.text[caught.value.column :].startswith(f"{name}:")
    scaffold_op("f", signature.replace(name, f"{name}2"), start=tmp_path, pattern="custom")


@pytest.mark.parametrize(
    ("signature", "is_served"),
    [
        ("x: T[N, 2*D] -> out: T[N, D]", True),
        ("x: T[..., 2*D], y: T[..., D] -> out: float32[..., D]", True),
        ("x: T[2*N] -> out: T[N]", True),
        ("x: T[N, 2*D], y: mut T[N, D]", True),
        ("x: T[2*N, D] -> out: T[N, D]", False),
        ("x: T[N, 3*D] -> out: T[N, D]", False),
        ("x: T[N, D] -> out: T[N, 2*D]", False),
        ("x: T[N, D], y: mut T[N, 2*D]", False),
        ("y: T[N, D], x: Optional T[N, 2*D] = None -> out: T[N, D]", False),
    ],
)
def test_the_halves_of_a_row_are_elements_too(tmp_path: Path, signature: str, is_served: bool) -> None:
    if is_served:
        files = scaffold_op("f", signature, start=tmp_path).files.files
        kernel = next(file.text for file in files if file.path.name == "f.cuh")
        assert "element(compute_t<T> x_left, compute_t<T> x_right," in kernel
        assert "left_half(In<T>(x), sizes), right_half(In<T>(x), sizes)" in " ".join(kernel.split())
    else:
        with pytest.raises(SignatureError, match="takes sizes that are names and numbers") as caught:
            scaffold_op("f", signature, start=tmp_path)
        assert (caught.value.hint or "").startswith("--pattern custom")


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        ("y: list[T[N]]", "takes one tensor for each parameter, and 'y' is a list"),
        ("y: T[N] strided", "takes contiguous tensors, and 'y' is strided"),
        ("y: str", "takes required numbers, and 'y' is a string"),
        ('y: "a" | "b"', "takes required numbers, and 'y' is a choice"),
        ("y: Optional int = None", "takes required numbers, and 'y' is optional"),
    ],
)
@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if pattern != "custom"])
def test_what_only_a_kernel_of_one_s_own_takes_is_refused_with_its_name(
    tmp_path: Path, pattern: str, parameter: str, reason: str
) -> None:
    text = f"x: T[N], {parameter} -> out: T[N]"
    with pytest.raises(SignatureError, match=re.escape(reason)) as caught:
        scaffold_op("f", text, start=tmp_path, pattern=pattern)
    assert caught.value.text[caught.value.column :].startswith("y:")
    assert "--pattern custom" in (caught.value.hint or "")
    scaffold_op("f", text, start=tmp_path, pattern="custom")


@pytest.mark.parametrize("lists", [1, 3, 4, 9])
def test_the_lists_of_an_op_fit_into_the_parameters_of_a_kernel(tmp_path: Path, lists: int) -> None:
    signature = ", ".join(f"x{number}: mut list[T[N]]" for number in range(lists))
    files = scaffold_op("f", signature, start=tmp_path, pattern="custom").files.files
    kernel, wrapper = (next(f.text for f in files if f.path.name == name) for name in ("f.cuh", "f.py"))
    (most,) = re.findall(r"kMaxTensors = (\d+)", kernel)
    assert 3072 / 2 < int(most) * 8 * lists <= 3072 or lists == 1
    assert f"at most {most}, contiguous" in " ".join(wrapper.split())


NORM = "x: T[B, D], weight: T[D] -> out: T[B, D]"
TAKE = "src: T[M, D], index: int64[N] -> out: T[N, D]"
PUT = "index: int64[N], x: T[N, D]"


@pytest.mark.parametrize(
    ("pattern", "signature", "caret_at", "reason", "hint"),
    [
        ("elementwise", NORM, "weight", "'x' is T[B, D] and 'weight' is T[D]", "--pattern rowwise serves this"),
        ("gather", NORM, "x", "no input is an int64 or int32 tensor", "--pattern rowwise serves this"),
        ("elementwise", TAKE, "index", "'src' is T[M, D] and 'index' is int64[N]", "--pattern gather serves this"),
        ("rowwise", TAKE, "index", "'index' is int64[N]", "--pattern gather serves this"),
        ("rowwise", "x: T[N], y: T[N] -> out: T[N]", "x", "'x' is T[N]", "--pattern elementwise serves this"),
        ("elementwise", "x: T[] -> out: T[]", "x", "no dimension", "T[...]"),
        ("rowwise", "x: T[...], y: U[D] -> out: T[...]", "x", "'x' is T[...]", "write x: T[..., D]"),
        ("rowwise", "x: T[B, D], y: T[C] -> out: T[B, D]", "y", "'y' is T[C]", "write y: T[B, D], T[B] or T[D]"),
        ("rowwise", "x: T[B, D], y: T[D] -> out: T[D]", "out", "'out' is T[D]", "T[B, D] or T[B]"),
        ("rowwise", "x: T[N, N], y: T[N] -> out: T[N, N]", "y", "for each row of 'x' or for each column", "two names"),
        ("rowwise", "x: T[B, D], y: bool[B, D] -> out: T[B, D]", "y", "has bools", "y: uint8[B, D]"),
        ("gather", "src: T[M, D], index: int64[N], acc: mut T[D]", "acc", "a table to take", "out: T[N, D]"),
        (
            "gather",
            "a: T[M, D], ids: int64[N], b: T[D, D] -> out: T[N, D]",
            "b",
            "'b' is T[D, D]",
            "T[N, D] or T[N] or",
        ),
        ("gather", "a: T[M, N], ids: int64[N], b: T[N] -> out: T[N, N]", "b", "for each column", "other names"),
        ("scatter", TAKE, "out", "'out' is new", "--pattern gather serves this"),
        ("gather", f"t: mut T[M, D], {PUT}", "t", "a table to take", "--pattern scatter serves this"),
        ("scatter", f"t: mut T[D], {PUT}", "index", "a table that is changed in place", "table: mut T[M, D]"),
        ("scatter", f"t: mut T[8, D], {PUT}", "t", "'t' has 8 rows", "write t: mut T[M, D]"),
        ("scatter", f"t: mut T[M, D], more: mut T[M], {PUT}", "more", "'more' is T[M]", "write more: mut T[M, D]"),
        ("scatter", f"t: mut T[M, D], {PUT}, y: T[M]", "y", "'y' is T[M]", "write y: T[N, D] or T[N] or T[D]"),
    ],
)
def test_a_pattern_says_what_it_cannot_serve_and_which_pattern_can(
    tmp_path: Path, pattern: str, signature: str, caret_at: str, reason: str, hint: str
) -> None:
    with pytest.raises(SignatureError, match=re.escape(reason)) as caught:
        scaffold_op("f", signature, start=tmp_path, pattern=pattern)
    assert hint in (caught.value.hint or "")
    assert caught.value.column == re.search(rf"\b{caret_at}:", signature).start()  # type: ignore[union-attr]
    assert written(tmp_path) == set()
