"""Mistakes that people make, compiled by the real compilers: kjit's message shows the place, the cause, and what to do.

The words of a message are the compiler's, so that a few of them are looked for, which all compilers use; how a message
is laid out is tested with fixed texts in test_diagnostics.py.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kjit.engine import builder
from kjit.engine.cache.store import Store
from kjit.engine.compile.compile import compile_variant
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime.load import load_variant
from kjit.spec import Spec, Target, Variant

CPP = """\
#include <kjit/tensor.h>

#include <cstdint>

using namespace kjit;
"""

CUDA = f"""\
#include <kjit/device.cuh>
#include <kjit/launch.h>
{CPP}"""

RIGHT = f"""\
{CPP}
template <typename T>
struct Scale {{
  static void run(TensorView x, double alpha, TensorView out) {{
    using namespace host;
    SymbolicSize n{{"n"}};
    TensorMatcher({{n}}).with_device<kDLCPU>().with_dtype<T>().verify(x, "x").verify(out, "out");
    const T* from = static_cast<const T*>(x.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    for (int64_t i = 0; i < n.unwrap(); ++i) to[i] = static_cast<T>(from[i] * alpha);
  }}
}};
"""

KERNEL = f"""\
{CUDA}
template <typename T>
__global__ void scale_kernel(T* x, float alpha, int64_t n) {{
  const int64_t i = int64_t{{blockIdx.x}} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = static_cast<T>(static_cast<float>(x[i]) * alpha);
}}

template <typename T>
struct Scale {{
  static void run(TensorView x, float alpha) {{
    using namespace host;
    SymbolicSize n{{"n"}};
    SymbolicDevice gpu;
    TensorMatcher({{n}}).with_device<kDLCUDA>(gpu).with_dtype<T>().verify(x, "x");
    LaunchKernel(div_ceil(n.unwrap(), 256), 256, gpu.unwrap())(scale_kernel<T>, x.data_ptr(), alpha, n.unwrap());
  }}
}};
"""

ELEMENTWISE = """\
#include <kjit/patterns/elementwise.h>

using namespace kjit;

template <typename T>
struct Scale {
  scalar_t<T> alpha;

  KJIT_MATH void element(compute_t<T> x, compute_t<T>& out) const { out = x * alpha; }

  static void run(TensorView x, double alpha, TensorView out) {
    using namespace host;
    SymbolicSize n{"n"};
    SymbolicDevice device;
    TensorMatcher({n}).with_device<kDevice>(device).with_dtype<T>().verify(out, "out");
    elementwise(Scale{static_cast<scalar_t<T>>(alpha)}, n.unwrap(), device, In<T>(x), Out<T>(out));
  }
};
"""

ROWWISE = """\
#include <kjit/patterns/rowwise.h>

using namespace kjit;

template <typename T>
struct Scale {
  compute_t<T> eps;

  KJIT_MATH auto term(compute_t<T> x) const { return x * x; }
  KJIT_MATH compute_t<T> row(compute_t<T> total, compute_t<T> size, float& rms) const { return rms = total / size; }
  KJIT_MATH void element(compute_t<T> mean, compute_t<T> x, compute_t<T>& out) const { out = x / mean; }

  static void run(TensorView x, double eps, TensorView out, TensorView rms) {
    using namespace host;
    SymbolicSize B{"B"}, D{"D"};
    SymbolicDevice device;
    TensorMatcher({B, D}).with_device<kDevice>(device).with_dtype<T>().verify(x, "x").verify(out, "out");
    const RowSizes sizes{.num_rows = B.unwrap(), .row_size = D.unwrap()};
    const Scale math{static_cast<compute_t<T>>(eps)};
    rowwise(math, sizes, device, In<T>(x), Out<T>(out), OutPerRow<float>(rms));
  }
};
"""

EXPORTED = f"""\
{CPP}
int64_t scale(TensorView x) {{ return x.numel(); }}

KJIT_EXPORT(scale, scale)
"""

WRAPPER = "KJIT_EXPORT(scale, ("
"""The place of a mistake that the generated wrapper shows, as its declaration is in Python."""

ALL = ("cpu", "sim", "9.0a")
GPU = ("9.0a",)
SIMULATOR = ("sim",)
KERNELS = ("9.0a", "sim")


@dataclass(frozen=True)
class Mistake:
    """A source that is wrong, or a right one that is declared wrongly, and what shall be said of it.

    Attributes:
        cause: a pattern for the first line of the message. hint: one for the hint, which is absent without.
        at: words of the line that is shown, or of several lines, any of which may be; none for mistakes in flags.
        also: a pattern for the rest of the message.
        on: the targets to compile for: `cpu`, `sim`, or an architecture.
        export: what is exported as `scale`; None: the sources export it themselves.
        other: the text of another source.
        flags: for the compiler. link: for the linker.
        library: the source needs `libfactor.so`, which is there for the link, and `gone` or `other` when it is loaded.
    """

    text: str
    cause: str
    hint: str = ""
    at: tuple[str, ...] = ()
    also: str = ""
    on: tuple[str, ...] = ("cpu",)
    export: str | None = "scale"
    other: str = ""
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    library: str = ""

    def variant(self, target: str, *link: str) -> Variant:
        """The variant to build; its sources are written into the current folder."""
        side, suffix = ("cpp", "cpp") if target == "cpu" else ("cuda", "cuh")
        texts = {f"mistake.{suffix}": self.text, f"other.{suffix}": self.other}
        for name, text in texts.items():
            Path(name).write_text(text)
        fields: dict[str, Any] = {
            f"{side}_files": [Path(name).resolve() for name, text in texts.items() if text],
            f"{side}_wrappers": [] if self.export is None else [("scale", self.export)],
            "extra_cflags" if side == "cpp" else "extra_cuda_cflags": self.flags,
            "extra_ldflags": (*self.link, *link),
        }
        kinds = {"cpu": Target.cpu(), "sim": Target.sim()}
        return Variant(Spec("scale", **fields), kinds.get(target) or Target.cuda(target))

    def places(self, target: str) -> list[str]:
        """How the message may begin: with the lines that have the words of `at`."""
        suffix = "cpp" if target == "cpu" else "cuh"
        return [
            f"{file}.{suffix}:{number}"
            for file, text in (("mistake", self.text), ("other", self.other))
            for number, line in enumerate(text.splitlines(), 1)
            if any(words in line for words in self.at)
        ] + ["the wrapper of export 'scale'"] * (WRAPPER in self.at)


def edited(base: str, right: str, wrong: str, cause: str, hint: str = "", **more: Any) -> Mistake:
    """A right source with one place made wrong; the message shows its line, if `at` does not say otherwise."""
    assert base.count(right) == 1, f"{right!r} is in the source {base.count(right)} times"
    text = base.replace(right, wrong)
    line = text.splitlines()[base[: base.index(right)].count("\n")]
    export = None if base == EXPORTED else RUN
    return Mistake(text, cause, hint, **{"at": (line,), "export": export, **more})


def cpp(text: str, at: str, cause: str, hint: str = "", **more: Any) -> Mistake:
    return Mistake(f"{CPP}{text}", cause, hint, tuple(at.split(" or ")), **more)


def kernel(text: str, at: str, cause: str, hint: str = "", **more: Any) -> Mistake:
    """A source with a kernel of floats, and its launch after `text`, unless there is one."""
    launch = "" if "<<<" in text else LAUNCH
    return Mistake(f"{CUDA}{text}{launch}", cause, hint, tuple(at.split(" or ")), **{"on": GPU, **more})


def declared(base: str, cause: str, hint: str = "", **more: Any) -> Mistake:
    """A right source with a wrong declaration: an export, or flags."""
    at = (WRAPPER,) if "export" in more else ()
    return Mistake(base, cause, hint, at, **{"export": RUN, **more})


def of_math(base: str, call: str, rows: list[tuple[str, str, str, str, tuple[str, ...]]]) -> dict[str, Mistake]:
    """The source of a pattern with one place of its math made wrong; the message shows the call of the pattern."""
    where = r"at <kjit/[\w/]+\.h>(.|\n)* in Scale<.*>::run, from the wrapper of export 'scale'"
    return {
        name: edited(base, right, wrong, re.escape(cause), at=(call,), also=where, on=on)
        for name, right, wrong, cause, on in rows
    }


RUN = "Scale<fp32_t>::run"
LAUNCH = "\nvoid scale(TensorView x) { scale_kernel<<<1, 32>>>(x.data_ptr<float>()); }\n"
DID_YOU_MEAN_DTYPE = r"with_dytpe.*; did you mean 'with_dtype'\?$"
IN_PYTHON = r'the export is declared in Python.*wrappers=\[\("scale", "Scale<'
NO_EXPORT_TYPE = "an export cannot take this type"
PACKED = """
template <typename T, int kWidth>
struct Packed {
  static_assert(sizeof(T) * kWidth <= 16, "a thread loads at most 16 bytes at once");
  T values[kWidth];
};
"""
FACTOR = 'extern "C" double scale_factor();\ndouble scale() { return scale_factor(); }\n'

MISTAKES: dict[str, Mistake] = {
    # C++
    "missing_semicolon": edited(RIGHT, 'n{"n"};', 'n{"n"}', r"expected .*;", at=("SymbolicSize", "with_device")),
    "missing_brace": edited(RIGHT, "  }\n};", "};", "this '{' has no '}'|missing '}'", at=("run(", "struct Scale")),
    "misspelt_member": edited(RIGHT, "with_dtype", "with_dytpe", DID_YOU_MEAN_DTYPE),
    "missing_header": edited(RIGHT, "<cstdint>", '"vectorise.h"', "vectorise.h", "extra_include_paths", on=ALL),
    "missing_include": edited(RIGHT, "(from[i]", "(std::sqrt(from[i])", "sqrt", "`#include <cmath>`"),
    "wrong_const": edited(RIGHT, "const T* from", "T* from", r"const (kjit::)?\w+ ?\*", on=ALL),
    "wrong_number_of_arguments": cpp(
        """
void scale_rows(const float* from, float* to, double alpha, int64_t rows) {}
void scale(TensorView x) { scale_rows(x.data_ptr<float>(), x.data_ptr<float>(), 2); }
""",
        "void scale(",
        "too few arguments|no matching function",
        on=ALL,
    ),
    # The declaration of the module
    "wrong_export_name": declared(RIGHT, "apply", IN_PYTHON, export="Scale<fp32_t>::apply", on=ALL),
    "wrong_template_argument": declared(RIGHT, "Scale", IN_PYTHON, export="Scale<4>::run"),
    "wrong_dtype_alias": declared(RIGHT, "float32_t", "'float32_t' is called fp32_t", export="Scale<float32_t>::run"),
    "unsupported_parameter": cpp(
        "#include <vector>\nvoid scale(TensorView x, std::vector<float> factors) {}\n",
        WRAPPER,
        NO_EXPORT_TYPE,
        "TensorView, Optional<T>",
        also=r"at <kjit/ffi.h>:\d+ in kjit::ffi_details::argument<std::vector<float",
        on=ALL,
    ),
    "pointer_parameter": edited(
        EXPORTED.replace("x.numel()", "*x"),
        "TensorView x",
        "float* x",
        NO_EXPORT_TYPE,
        r"take a tensor \(TensorView x\)",
        at=("KJIT_EXPORT",),
        on=ALL,
        export=None,
    ),
    "exported_twice": Mistake(EXPORTED, "export 'scale' is defined twice", "and once", ("KJIT_EXPORT",), on=ALL),
    # What extensions of torch are written with
    "torch_check": edited(EXPORTED, "{ ", "{ TORCH_CHECK(x); ", "TORCH_CHECK", "host::RuntimeCheck", on=ALL),
    # The linker and the loader
    "undefined_reference": cpp(
        "void rows(float* x);\nvoid scale(TensorView x) { rows(x.data_ptr<float>()); }\n",
        "void scale(",
        r"undefined symbol: rows\(float\*\)",
        "define it in one of the op's sources",
        on=ALL,
    ),
    "missing_library": declared(RIGHT, "cannot find -lnone|library.*none", "extra_ldflags", link=("-lnone",), on=ALL),
    "missing_at_load": Mistake(FACTOR, "it needs libfactor.so, which", "-Wl,-rpath,", library="gone"),
    "undefined_at_load": Mistake(FACTOR, "undefined symbol: scale_factor", "name the library", library="other"),
    # Flags (those that kjit itself refuses are in tests/engine/compile/test_refusals.py)
    "older_language": declared(RIGHT, r"headers need C\+\+20", "remove -std=", flags=("-std=c++17",), on=ALL),
    "unknown_flag": declared(RIGHT, "-ffast-maths", "flags come from", flags=("-ffast-maths",)),
    "unknown_option": declared(
        KERNEL, "[Uu]nknown option|no option", "flags come from|nvcc", flags=("--use_fast",), on=GPU
    ),
    "two_flags_in_one": declared(RIGHT, "is not one flag", '"-O3", "-g"', flags=("-O3 -g",), on=ALL),
    # Kernels
    "kernel_missing_semicolon": edited(
        KERNEL, "threadIdx.x;", "threadIdx.x", "expected .*;", at=("threadIdx.x", "if (i < n)"), on=KERNELS
    ),
    "kernel_missing_brace": edited(
        KERNEL, "alpha);\n}\n", "alpha);\n", "this '{' has no '}'", at=("__global__",), on=GPU
    ),
    "kernel_misspelt_name": edited(KERNEL, "* alpha", "* alhpa", r"alhpa.*; did you mean 'alpha'\?$", on=KERNELS),
    "kernel_misspelt_member": edited(KERNEL, "with_dtype", "with_dytpe", DID_YOU_MEAN_DTYPE, on=KERNELS),
    "undefined_half": kernel(
        "__global__ void scale_kernel(fp16_t* x) { x[0] = static_cast<fp16_t>(2.0f); }",
        "__global__",
        "complete",
        "<kjit/utils.cuh>",
    ),
    "kernel_arguments": edited(
        KERNEL,
        "x.data_ptr(), alpha,",
        "x.data_ptr(),",
        "the kernel takes a different number of arguments",
        also=r"at <kjit/launch.h>(.|\n)*in Scale<.*>::run, from the wrapper of export 'scale'",
        on=KERNELS,
    ),
    "host_function": kernel(
        """
float factor_of(int64_t i) { return 1.0f / static_cast<float>(i + 1); }
__global__ void scale_kernel(float* x) { *x *= factor_of(1); }
""",
        "factor_of",
        "factor_of",
        r"\(KJIT_DEVICE\)",
    ),
    "host_variable": kernel(
        "static float offset = 2.0f;\n__global__ void scale_kernel(float* x) { *x += offset; }",
        "*x += offset",
        '"offset" is undefined in device code',
    ),
    "function_that_the_simulator_lacks": kernel(
        "__global__ void scale_kernel(float* x) { *x = __clusterDimIsSpecified(); }",
        "__clusterDimIsSpecified",
        "the simulator lacks CUDA's '__clusterDimIsSpecified'$",
        "#if KJIT_SIM",
        on=("sim",),
    ),
    "undefined_device_function": kernel(
        "__device__ float factor_of(int64_t i);\n__global__ void scale_kernel(float* x) { *x *= factor_of(1); }",
        "__device__ float factor_of",
        "code for the device calls 'factor_of', which is not defined for the device|undefined symbol: factor_of",
        "define it in a header",
    ),
    "not_a_kernel": kernel(
        "void scale_kernel(float* x) { x[blockDim.x] = 0; }",
        "<<<1, 32>>> or blockDim",
        "a host function call cannot be configured|undefined symbol: blockDim",
        "mark the function __global__",
    ),
    "static_assertion": kernel(
        f"{PACKED}template <typename T> __global__ void scale_kernel(T* x) {{ Packed<T, 8> packed; }}",
        "static_assert",
        "a thread loads at most 16 bytes at once",
        also=r"in Packed<[\w:]+, 8>, from mistake.cuh:\d+ in scale_kernel<",
        on=KERNELS,
    ),
    "shared_type": kernel(
        """
template <typename T> __global__ void scale_kernel(T* x) {
  extern __shared__ T tile[];
  *x = *tile;
}
void scale(TensorView x) {
  scale_kernel<<<1, 256, 1024>>>(x.data_ptr<float>());
  scale_kernel<<<1, 256, 2048>>>(x.data_ptr<double>());
}
""",
        "extern",
        'declaration is incompatible with previous "tile"',
        "make it unsigned char",
        also="in scale_kernel<double>, from mistake.cuh",
    ),
    "template_of_other_unit": kernel(
        """
template <typename T> __global__ void scale_kernel(T* x);
void scale(TensorView x) { scale_kernel<float><<<1, 1>>>(x.data_ptr<float>()); }
KJIT_EXPORT(scale, scale)
""",
        "void scale_kernel",
        r"undefined symbol: void scale_kernel<float>\(float\*\)",
        "define the kernel in the unit that launches it",
        other="""
template <typename T> __global__ void scale_kernel(T* x) { *x = 1; }
template __global__ void scale_kernel<float>(float*);
""",
        export=None,
    ),
    # ptxas
    "too_much_shared": kernel(
        """
template <typename T> __global__ void scale_kernel(T* x) {
  __shared__ T tile[256][256];
  for (int row = 0; row < 256; ++row) tile[row][threadIdx.x] = x[row];
  __syncthreads();
  *x = tile[threadIdx.x][255 - threadIdx.x];
}
""",
        "void scale_kernel",
        r"'scale_kernel<float>' uses too much shared data \(262144 bytes, 232448 max\)",
        "use a smaller tile",
    ),
    "too_new_instruction": kernel(
        '__global__ void scale_kernel(float* x) { asm volatile("griddepcontrol.wait;" ::: "memory"); }',
        "griddepcontrol",
        r"'\.wait' requires \.target sm_90 or higher",
        r"under `#if __CUDA_ARCH__ >= 900`.* build for sm_90 or newer",
        on=("8.0",),
    ),
    "ptx_in_the_simulator": kernel(
        '__global__ void scale_kernel(float* x) { asm("copysign.f32 %0, %0, %0;" : "+f"(*x)); }',
        "copysign",
        r'the simulator cannot run inline PTX \(asm "copysign.f32',
        "`#if KJIT_SIM`",
        on=SIMULATOR,
    ),
    # Math of a pattern
    "math_rows_apart": edited(
        ELEMENTWISE, "In<T>(x)", "Strided(In<T>(x), {.stride = 2})", "strided rows need RowSizes"
    ),
    **of_math(
        ELEMENTWISE,
        "elementwise(Scale",
        [
            ("no_reference", "compute_t<T>& out", "compute_t<T> out", "element() takes no reference for a tensor", ALL),
            ("wrong_type", "(compute_t<T> x", "(double x", "element() takes a type other than compute_t<T>", SIMULATOR),
            ("not_const", "out) const {", "out) {", "element() is not const: add const", SIMULATOR),
            ("misspelt_name", "void element(", "void elment(", "no function element() that takes", ALL[:1]),
        ],
    ),
    **of_math(
        ROWWISE,
        "rowwise(math",
        [
            ("no_term", "auto term(", "auto trem(", "the math has no function term(), which returns", ALL[:1]),
            ("other_total", "row(compute_t<T> total", "row(double total", "row() is not the row's total", ALL[:1]),
            ("too_many", "compute_t<T>& out)", "compute_t<T>& out, float b)", "element() has more parameters", ALL[:1]),
        ],
    ),
    # Warnings
    "unused_variable": edited(
        RIGHT, "    T* to", "    int rows = 1;\n    T* to", "warning: .*'rows'", flags=("-Wall",)
    ),
}


ON_ALL_TARGETS_DAILY = {"missing_header", "undefined_reference"}
"""The others are compiled for a second and third target every night."""
NIGHTLY = {
    *("wrong_template_argument", "kernel_misspelt_member", "undefined_half", "shared_type", "template_of_other_unit"),
    *("too_new_instruction", "math_rows_apart", "no_term", "other_total", "too_many", "undefined_at_load"),
    *("kernel_missing_brace", "kernel_missing_semicolon"),
}
"""Each is like one that is compiled daily."""


assert MISTAKES.keys() >= NIGHTLY


def cases(*, of_cuda: bool) -> list[Any]:
    """Names and targets of the mistakes, of all or of those for a GPU."""
    found = []
    for name, mistake in MISTAKES.items():
        for target in mistake.on:
            marks = [pytest.mark.nvcc] if target[0].isdigit() else []
            is_repeated = name in NIGHTLY or (target != mistake.on[0] and name not in ON_ALL_TARGETS_DAILY)
            if is_repeated and not of_cuda:
                marks.append(pytest.mark.nightly)
            if not of_cuda or target[0].isdigit():
                found.append(pytest.param(name, target, id=f"{name}-{target}", marks=marks))
    return found


@pytest.fixture(autouse=True)
def _in_a_folder_of_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Paths look short from here."""
    (tmp_path / "sources").mkdir()
    monkeypatch.chdir(tmp_path / "sources")


@pytest.mark.parametrize(("name", "target"), cases(of_cuda=False))
def test_a_mistake_is_shown_with_its_place_and_cause(name: str, target: str) -> None:
    see(MISTAKES[name], target)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "target"), cases(of_cuda=True))
def test_nvcc_shows_it_too(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CUDA_COMPILER", "nvcc")
    see(MISTAKES[name], target)


@pytest.mark.nightly
@pytest.mark.usefixtures("without_nvcc")
@pytest.mark.parametrize(("name", "target"), cases(of_cuda=True))
def test_nvrtc_shows_it_where_there_is_no_nvcc(name: str, target: str) -> None:
    see(MISTAKES[name], target)


def see(mistake: Mistake, target: str) -> None:
    """Check what is said of a mistake."""
    text, hint = (_load if mistake.library else _compile)(mistake, target)
    lines = text.splitlines()
    heads = [f"scale {mistake.variant(target).target} does not {way}." for way in ("compile", "link")]
    first, *rest = lines[1:] if lines[0] in heads else lines
    assert re.search(mistake.cause, first), text
    assert re.search(mistake.also, "\n".join(rest)), text
    assert re.search(mistake.hint, hint) and bool(hint) == bool(mistake.hint), hint
    assert len(lines) <= 16
    assert not re.search("No space left|tmpxft|/tmp", text.replace(str(Path(__file__).parents[3]), ""))
    if not mistake.at:
        return
    assert any(re.match(rf"{re.escape(place)}(:\d+)?: (error|warning): ", first) for place in mistake.places(target)), (
        text
    )
    if (excerpt := re.match(r"  (\d+) \| (.+)", rest[0])) is not None and first.startswith("mistake."):
        shown = mistake.text.splitlines()[int(excerpt[1]) - 1]
        assert shown.startswith(excerpt[2]), text


def _compile(mistake: Mistake, target: str) -> tuple[str, str]:
    """The message and the hint, or the warnings."""
    variant, build = mistake.variant(target), Path("../build")
    build.mkdir()
    try:
        toolchain = Toolchain.for_target(variant.target)
        return compile_variant(variant, toolchain, build.resolve()).warnings, ""
    except KjitError as error:
        return error.message, error.hint or ""


def _load(mistake: Mistake, target: str) -> tuple[str, str]:
    """Build against a library, take that away or put another in its place, and load."""
    folder = Path("..").resolve()
    variant = mistake.variant(target, f"-L{folder}", f"-Wl,-rpath,{folder}", "-lfactor")
    _make_library(folder / "libfactor.so", "double scale_factor() { return 2; }")
    builder.build(variant, Store.open(folder / "cache"))
    (folder / "libfactor.so").unlink()
    if mistake.library == "other":
        _make_library(folder / "libfactor.so", "double scale_by() { return 2; }")
    with pytest.raises(KjitError) as caught:
        load_variant(variant, build_directory=folder / "cache")
    return caught.value.message, caught.value.hint or ""


def _make_library(path: Path, text: str) -> None:
    cxx = Toolchain.for_target(Target.cpu()).cxx.path
    command = [str(cxx), "-x", "c++", "-shared", "-fPIC", "-o", str(path), "-"]
    subprocess.run(command, input=f'extern "C" {text}', text=True, check=True)
