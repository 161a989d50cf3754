"""`kjit new OP --from FILE.cu`: kernels as they are written elsewhere, each a file of the folder `adopted`."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Forks

from kjit.adoption.adopt import Adoption, adopt
from kjit.errors import UsageError
from kjit.scaffold.new import parse_dtypes, scaffold_op
from kjit.signature.signature import SignatureError

FILES = Path(__file__).parent / "adopted"
REPOSITORY = Path(__file__).resolve().parents[2]

SERVED = {
    "saxpy.cu": ("a: float, x: float32[N], y: mut float32[N]", "saxpy"),
    "relu.cu": ("x: T[NUMEL] -> out: T[NUMEL]", "ops::relu_kernel<T>"),
    "launcher.cu": ("x: float32[COUNT] -> result: float32[COUNT]", "launch_square"),
    "vectors.cu": ("a: float16[N], b: float16[N] -> c: float16[N]", "add_half"),
    "constants.cu": (
        "x: T[N], krepeat: const int = 1, knegate: const bool = True -> y: T[N]",
        "repeat<T, krepeat, knegate>",
    ),
    "iota.cu": ("data: mut int64[N], start: int", "iota"),
    "unchecked.cu": ("x: float32[...] -> out: float32[...]", "copy"),
}
"""The signature that a file implies, or that the hint for it has, and the function that is called."""

IMPLIED = {"saxpy.cu", "relu.cu", "launcher.cu", "vectors.cu", "constants.cu", "iota.cu"}

REFUSED = {
    "several.cu": (
        r"several functions:\n.*add_kernel\(const float\* a.*\n.*sub_kernel",
        "--function add_kernel",
    ),
    "transpose.cu": (
        r"transpose.cu:1: a signature is needed, as the parameters of 'transpose' do not say",
        "for example: kjit new op",
    ),
    "extension.cu": (r"extension.cu:2 includes <torch/extension.h>", "put the kernel into a file without it"),
    "pointers.cu": (r"'const float\*\* sources' points to pointers", "by hand"),
    "device_only.cu": ("neither a __global__ kernel nor a function", "has to have its body"),
}
"""Why not, and what helps."""

SIGNATURES = {name: signature for name, (signature, _) in SERVED.items()} | {
    "rms_norm.cu": (
        "x: bfloat16[NUM_TOKENS, HIDDEN], weight: bfloat16[HIDDEN], eps: float = 1e-06"
        " -> out: bfloat16[NUM_TOKENS, HIDDEN]"
    ),
    "transpose.cu": "idata: float32[Height, Width] -> odata: float32[Width, Height]",
    "histogram.cu": "values: int32[NUM_VALUES], bins: mut int32[NUM_BINS]",
    "views.cu": "x: T[B, D], alpha: float -> out: T[B, D]",
}


def adopted(name: str, *, function: str | None = None, signature: str | None = None) -> Adoption:
    return adopt(FILES / name, "op", function=function, signature=signature)


@pytest.mark.parametrize("name", sorted(IMPLIED))
def test_pointers_and_one_size_imply_a_signature(name: str) -> None:
    adoption = adopted(name)
    assert (str(adoption.signature), adoption.callee) == SERVED[name]


@pytest.mark.parametrize("name", sorted(set(SIGNATURES) - IMPLIED))
def test_a_signature_is_needed_and_the_one_in_the_hint_is_served(name: str) -> None:
    with pytest.raises(UsageError, match="a signature is needed") as caught:
        adopted(name)
    command = shlex.split((caught.value.hint or "").partition(": ")[2])
    assert command[:3] == ["kjit", "new", "op"]
    adoption = adopted(name, signature=command[3])
    assert str(adoption.signature) == command[3]
    if name in SERVED:
        assert (command[3], adoption.callee) == SERVED[name]
    assert str(adopted(name, signature=SIGNATURES[name]).signature) == SIGNATURES[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known_is_said_with_what_would_say_it(name: str) -> None:
    reason, hint = REFUSED[name]
    with pytest.raises(UsageError, match=reason) as caught:
        adopted(name)
    assert hint in (caught.value.hint or "")


def test_a_function_is_chosen_by_its_name() -> None:
    relu = adopted("relu.cu", function="ops::relu_kernel", signature=SIGNATURES["relu.cu"])
    assert relu.callee == "ops::relu_kernel<T>"
    signature = "src: float32[COUNT] -> dst: float32[COUNT]"
    assert adopted("launcher.cu", function="square_kernel", signature=signature).arguments == (
        "static_cast<const float*>(src.data_ptr())",
        "static_cast<float*>(dst.data_ptr())",
        "static_cast<size_t>(COUNT.unwrap())",
    )
    with pytest.raises(UsageError, match="has no function 'mul'") as caught:
        adopted("several.cu", function="mul")
    assert caught.value.hint == "it has: add_kernel, sub_kernel"


@pytest.mark.parametrize(
    ("name", "signature", "reason", "hint"),
    [
        (
            "saxpy.cu",
            "x: float32[N], y: mut float32[N], a: Optional float = None",
            "which is required",
            "write a: float",
        ),
        ("saxpy.cu", "a: float, x: float32[N] strided, y: mut float32[N]", "no strides", "write x: float32[N]"),
        (
            "saxpy.cu",
            "a: float, x: float32[N], z: mut float32[N]",
            "'float* y' is not a tensor of the signature",
            "y: mut",
        ),
        ("saxpy.cu", "x: float32[N], y: mut float32[N]", "'float a' is not in the signature", "a: float"),
        (
            "saxpy.cu",
            "a: float, x: float32[N], y: float32[N] -> z: float32[N]",
            "changes what 'float* y'",
            "mut float32",
        ),
        (
            "transpose.cu",
            "idata: float32[A, B] -> odata: float32[B, A]",
            "'int width' is neither a dimension",
            "a dimension WIDTH",
        ),
        ("constants.cu", "x: T[N], krepeat: const int = 2 -> y: T[N]", "takes 'bool kNegate'", "knegate: const bool"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused(name: str, signature: str, reason: str, hint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)) as caught:
        adopted(name, signature=signature)
    assert hint in str(caught.value)


LISTS = """
#include <kjit/tensor.h>
void scale_all(kjit::TensorListView xs, kjit::TensorView by, kjit::StringView how) {
  using namespace kjit::host;
  SymbolicSize N{"N"};
  TensorMatcher({N}).with_device<kDLCUDA>().with_dtype<float>().verify(xs, "xs").verify(by, "by");
}
"""


def test_lists_of_tensors_and_text_are_adopted(tmp_path: Path) -> None:
    (tmp_path / "lists.cu").write_text(LISTS)
    signature = "xs: mut list[float32[N]], by: float32[N], how: str"
    adoption = adopt(tmp_path / "lists.cu", "op", function=None, signature=signature)
    assert adoption.arguments == ("xs", "by", "static_cast<kjit::StringView>(how)")
    with pytest.raises(SignatureError, match="a list of tensors is a TensorListView") as caught:
        adopt(tmp_path / "lists.cu", "op", function=None, signature=re.sub(r"list\[(.*?\])\]", r"\1", signature))
    assert caught.value.hint == "write xs: mut list[float32[N]]"


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        ("const pair_t* x", "what 'const pair_t* x' points to is not a known dtype"),
        ("options_t x", "'options_t x' is neither a tensor nor a number"),
    ],
)
def test_parameters_of_an_unknown_type_imply_no_signature(tmp_path: Path, parameter: str, reason: str) -> None:
    (tmp_path / "odd.cu").write_text(f"__global__ void odd(int n, {parameter}, float* y) {{ y[0] = n; }}\n")
    with pytest.raises(UsageError, match=re.escape(reason)):
        adopt(tmp_path / "odd.cu", "op", function=None, signature=None)


def test_a_file_in_the_project_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    source = tmp_path / "vendor" / "saxpy.cu"
    source.parent.mkdir()
    shutil.copy(FILES / "saxpy.cu", source)
    before = source.read_bytes()
    scaffold = scaffold_op("axpy_", SIGNATURES["saxpy.cu"], source=source, start=tmp_path)
    scaffold.files.write()
    assert '#include "../../vendor/saxpy.cu"' in (tmp_path / "kernels/csrc/axpy_.cuh").read_text()
    assert any("vendor/saxpy.cu is not in the package" in note for note in scaffold.notes)
    assert source.read_bytes() == before
    assert len(scaffold.places) == 2


def test_a_file_from_elsewhere_is_copied_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.kjit]\n")
    (tmp_path / "util.cuh").write_text("")
    text = f'#include "util.cuh"\n{(FILES / "saxpy.cu").read_text()}'
    (tmp_path / "saxpy.cu").write_text(text)
    scaffold = scaffold_op("axpy_", SIGNATURES["saxpy.cu"], source=tmp_path / "saxpy.cu", start=tmp_path / "project")
    scaffold.files.write()
    assert (tmp_path / "project/kernels/csrc/saxpy.cu").read_text() == text
    assert '#include "saxpy.cu"' in (tmp_path / "project/kernels/csrc/axpy_.cuh").read_text()
    assert any("includes util.cuh, which is beside it and is not copied" in note for note in scaffold.notes)


def test_the_op_s_own_file_is_never_the_adopted_one(tmp_path: Path) -> None:
    (tmp_path / "kernels/csrc").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    source = tmp_path / "kernels/csrc/saxpy.cuh"
    shutil.copy(FILES / "saxpy.cu", source)
    with pytest.raises(UsageError, match="is where the op's own file goes"):
        scaffold_op("saxpy", SIGNATURES["saxpy.cu"], source=source, start=tmp_path)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pattern": "gather"}, "pattern gather has kernels of its own"),
        ({"devices": ("cpu",)}, "no kernel for the CPU"),
        ({"source": None, "function": "f"}, "there is no file to take it from"),
    ],
)
def test_options_that_contradict_a_file_are_refused(tmp_path: Path, options: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        scaffold_op("op", start=tmp_path, **{"source": FILES / "saxpy.cu"} | options)  # type: ignore[arg-type]


REFERENCES = {
    "saxpy": "return y + a * x",
    "relu": "return x.relu()",
    "launcher": "return x * x",
    "views": "return x * alpha",
    "constants": "return -krepeat * x",
    "iota": "return torch.arange(len(data), dtype=data.dtype, device=data.device) + start",
    "histogram": "return bins",
    "unchecked": "return x",
    "rms_norm": "return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)",
}


@pytest.mark.needs("ruff", "clang-format")
@pytest.mark.parametrize(
    ("names", "left_out"),
    [
        # Of a kernel and of a function, with sizes and without, with shared memory, with a row for each block.
        pytest.param(("relu", "views", "histogram", "rms_norm"), "sim and (0000 or 0003)", id="some"),
        pytest.param(tuple(REFERENCES), "compile", id="all", marks=pytest.mark.nightly),
    ],
)
def test_adopted_ops_are_checked_compiled_and_right_in_the_simulator(
    tmp_path: Path, names: tuple[str, ...], left_out: str, forked: Forks, quick_simulator: list[str]
) -> None:
    """With references, and the one grid corrected that a guess cannot get right; nightly with large shapes too."""
    package = "adopted_kernels"
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.kjit]\npackage = "{package}"\n\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
    )
    for name in names:
        op, file = f"my_{name}", f"{name}.cu"
        signature = SIGNATURES[file]
        dtypes = parse_dtypes("fp32") if "T[" in signature else None
        scaffold_op(op, signature, source=FILES / file, dtypes=dtypes, start=tmp_path).files.write()
        test = tmp_path / "tests" / f"test_{op}.py"
        text = re.sub(r"raise kjit\.testing\.UnwrittenError\(.*\)", REFERENCES[name], test.read_text())
        test.write_text(text)
    # What is left to an author of such a kernel: shared memory, and values that are numbers of bins.
    kernel = tmp_path / package / "csrc" / "my_histogram.cuh"
    kernel.write_text(kernel.read_text().replace("shared_bytes = 0;", "shared_bytes = NUM_BINS.unwrap() * 4;"))
    test = tmp_path / "tests" / "test_my_histogram.py"
    text = test.read_text().replace("return bins", "return bins + torch.bincount(values, minlength=len(bins))")
    test.write_text(
        re.sub(r"shape = .*|shapes = \((.|\n)*?\n    \)", "", text) + "    shape, shapes = (7, 24), ((7, 24), (0, 8))\n"
    )
    programs = Path(sys.executable).parent
    kernels = [str(path) for path in (tmp_path / package / "csrc").glob("my_*.cuh")]
    style = f"--style=file:{REPOSITORY / '.clang-format'}"
    subprocess.run([programs / "clang-format", style, "--dry-run", "-Werror", *kernels], check=True)
    subprocess.run([programs / "ruff", "format", "--check", "--quiet", package, "benchmarks"], cwd=tmp_path, check=True)
    options = ["-q", "-rf", "-p", "no:cacheprovider", *quick_simulator]
    options += ["-k", f"not compile and not torch_library and not ({left_out})"]
    done = forked.pytest(*options, cwd=tmp_path, CUDA_VISIBLE_DEVICES="", KJIT_SIM="1", COLUMNS="300")
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed", done.stdout)
