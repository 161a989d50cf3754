"""Common mistakes, kjit's messages about them, and a program that writes the expected ones again.

    python tests/engine/diagnostics/mistakes.py [NAME...]

compiles the sources in the folder `mistakes` with the compilers of this machine, those that are right with one place
made wrong, and writes what kjit says into `mistakes/expected/<name>.txt`. Read every change of these files as somebody
who sees such a text for the first time: does its first line say what is wrong, and where?

The words of a message are the compiler's, and change from one major version to the next. So the texts are compared
word for word only with the compilers that wrote them (`mistakes/expected/compilers.txt`), and otherwise by what kjit
makes of a message: see `shape`. Where clang sees a mistake at another place than GCC there is a `<name>.clang.txt`,
which is written with `CXX=clang++`, and where NVRTC says something else than nvcc a `<name>.nvrtc.txt`, which is
written where there is no nvcc (`KJIT_CUDA_HOME` names a folder with CUDA's `include` and `lib` alone).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kjit import env
from kjit.engine import builder
from kjit.engine.cache.store import Store
from kjit.engine.compile.compile import compile_variant
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.runtime.load import load_variant
from kjit.spec import Export, Spec, Target, Variant

FOLDER = Path(__file__).resolve().parent / "mistakes"
EXPECTED = FOLDER / "expected"
COMPILERS = EXPECTED / "compilers.txt"


@dataclass(frozen=True)
class Mistake:
    """One wrong source (or a right one that is declared wrongly), and for what it is compiled.

    Attributes:
        source: its name, as messages show it.
        exports: what its wrapper exports.
        target: `cpu`, `sim`, or an architecture like `9.0a`.
        more: other sources of the module.
        flags: for the compiler. link: for the linker.
        library: it needs `libfactor.so`, which is there for the link, and `gone` or `other` when it is loaded.
        edit: no file of that name is in the folder: it is the file named first, where the second text is the third.
    """

    source: str
    exports: tuple[Export, ...] = (("scale", "scale"),)
    target: str = "cpu"
    more: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    library: str = ""
    edit: tuple[str, str, str] | None = None

    @property
    def is_cuda(self) -> bool:
        """Whether it takes nvcc."""
        return self.target not in ("cpu", "sim")

    @property
    def target_of_build(self) -> Target:
        if self.is_cuda:
            return Target.cuda(self.target)
        return Target.sim() if self.target == "sim" else Target.cpu()

    def write(self, folder: Path) -> None:
        """Write its sources into `folder`."""
        for name in (self.source, *self.more):
            if self.edit is None:
                shutil.copy(FOLDER / name, folder)
                continue
            base, right, wrong = self.edit
            text = (FOLDER / base).read_text()
            assert text.count(right) == 1, f"{name}: {right!r} is in {base} {text.count(right)} times"
            (folder / name).write_text(text.replace(right, wrong))

    def variant(self, folder: Path, *link: str) -> Variant:
        files = [folder / name for name in (self.source, *self.more)]
        if self.target == "cpu":
            spec = Spec(
                "scale",
                cpp_files=files,
                cpp_wrappers=self.exports,
                extra_cflags=self.flags,
                extra_ldflags=(*self.link, *link),
            )
        else:
            spec = Spec(
                "scale",
                cuda_files=files,
                cuda_wrappers=self.exports,
                extra_cuda_cflags=self.flags,
                extra_ldflags=(*self.link, *link),
            )
        return Variant(spec, self.target_of_build)


_FP32 = (("scale", "Scale<fp32_t>::run"),)


def _cpp(name: str, right: str, wrong: str, **more: Any) -> Mistake:
    """`right.cpp` with one place made wrong."""
    return Mistake(f"{name}.cpp", _FP32, edit=("right.cpp", right, wrong), **more)


def _cuda(name: str, right: str, wrong: str, target: str = "9.0a") -> Mistake:
    """`cuda_right.cuh` with one place made wrong."""
    return Mistake(f"cuda_{name}.cuh", _FP32, target, edit=("cuda_right.cuh", right, wrong))


def _math(name: str, right: str, wrong: str, target: str = "cpu") -> Mistake:
    """`elementwise_right.cpp` with one place made wrong."""
    source = f"{name}.cpp" if target == "cpu" else f"{name}.cuh"
    return Mistake(source, _FP32, target, edit=("elementwise_right.cpp", right, wrong))


def _row(name: str, right: str, wrong: str, target: str = "cpu") -> Mistake:
    """`rowwise_right.cpp` with one place made wrong."""
    source = f"row_{name}.cpp" if target == "cpu" else f"row_{name}.cuh"
    return Mistake(source, _FP32, target, edit=("rowwise_right.cpp", right, wrong))


_NO_TOTAL = (
    "compute_t<T> term(compute_t<T> x) const { return x * x; }",
    'const char* term(compute_t<T> x) const { return ""; }',
)

_NO_REFERENCE = ("compute_t<T>& out", "compute_t<T> out")


def _everywhere(name: str, mistake: Mistake, **for_nvcc: Any) -> dict[str, Mistake]:
    """A C++ mistake, also in a source for nvcc, and for the simulator; `for_nvcc` is what is other in those two."""
    return {
        name: mistake,
        f"cuda_{name}": replace(mistake, target="9.0a", **for_nvcc),
        f"sim_{name}": replace(mistake, target="sim", **for_nvcc),
    }


def _in_kernel(name: str, right: str, wrong: str) -> dict[str, Mistake]:
    """`cuda_right.cuh` with one place made wrong, for nvcc and for the simulator."""
    return {f"cuda_{name}": _cuda(name, right, wrong), f"sim_{name}": _cuda(name, right, wrong, "sim")}


_MISSPELT_NAME = ("misspelt_name", "* alpha);", "* alhpa);")

MISTAKES: Mapping[str, Mistake] = {
    # C++
    "missing_semicolon": _cpp("missing_semicolon", 'n{"n"};', 'n{"n"}'),
    "missing_brace": _cpp("missing_brace", "  }\n};", "};"),
    "misspelt_member": _cpp("misspelt_member", "with_dtype", "with_dytpe"),
    **_everywhere("missing_header", _cpp("missing_header", "<cstdint>", '"vectorise.h"')),
    "missing_include": _cpp("missing_include", "(from[i] * alpha)", "(std::sqrt(from[i] * alpha))"),
    **_everywhere("wrong_const", Mistake("wrong_const.cpp")),
    **_everywhere("wrong_number_of_arguments", Mistake("wrong_number_of_arguments.cpp")),
    **_everywhere("ambiguous_overload", Mistake("ambiguous_overload.cpp")),
    "many_errors": Mistake("many_errors.cpp"),
    "static_assertion": Mistake("static_assertion.cpp", (("scale", "Scale<fp32_t, 6>::run"),)),
    "constexpr_failure": Mistake("constexpr_failure.cpp", (("scale", "Scale<0>::run"),)),
    # The declaration of the module
    **_everywhere("wrong_export_name", Mistake("right.cpp", (("scale", "Scale<fp32_t>::apply"),))),
    "wrong_template_argument": Mistake("right.cpp", (("scale", "Scale<4>::run"),)),
    "wrong_dtype_alias": Mistake("right.cpp", (("scale", "Scale<float32_t>::run"),)),
    **_everywhere("unsupported_parameter", Mistake("unsupported_parameter.cpp")),
    **_everywhere(
        "pointer_parameter",
        Mistake(
            "pointer_parameter.cpp",
            (),
            edit=("exported_twice.cpp", "TensorView x) {\n  return x.numel();", "float* x) {\n  return *x;"),
        ),
    ),
    # What extensions of torch are written with
    **_everywhere(
        "torch_check",
        Mistake(
            "torch_check.cpp",
            (),
            edit=("exported_twice.cpp", "  return x.numel();", "  TORCH_CHECK(x.dim() == 2);\n  return x.numel();"),
        ),
    ),
    "torch_header": Mistake(
        "torch_header.cpp", (), edit=("exported_twice.cpp", "<kjit/tensor.h>", "<torch/extension.h>")
    ),
    "tvm_ffi_name": Mistake(
        "tvm_ffi_name.cpp", (), edit=("exported_twice.cpp", "TensorView x", "tvm::ffi::Array<int64_t> x")
    ),
    **_everywhere("exported_twice", Mistake("exported_twice.cpp")),
    **_everywhere("older_language", Mistake("right.cpp", _FP32, flags=("-std=c++17",))),
    **_everywhere(
        "unknown_flag", Mistake("right.cpp", _FP32, flags=("-ffast-maths",)), flags=("-Xcompiler=-ffast-maths",)
    ),
    **_everywhere("two_flags_in_one", Mistake("right.cpp", _FP32, flags=("-O3 -ffast-math",))),
    # The linker and the loader
    **_everywhere("undefined_reference", Mistake("undefined_reference.cpp")),
    **_everywhere("missing_library", Mistake("right.cpp", _FP32, link=("-lfastscale",))),
    "cuda_template_of_other_unit": Mistake(
        "cuda_template_declared.cuh", (), "9.0a", more=("cuda_template_defined.cuh",)
    ),
    "missing_archive": Mistake("right.cpp", _FP32, link=("/nonexistent/libfastscale.a",)),
    "missing_linker_script": Mistake("right.cpp", _FP32, link=("-Wl,--dynamic-list=/nonexistent/scale.list",)),
    "other_output": Mistake("right.cpp", _FP32, link=("-o", "libscale.so")),
    **_everywhere("duplicate_export", Mistake("duplicate_export.cpp", (), more=("duplicate_export_again.cpp",))),
    "missing_at_load": Mistake("needs_library.cpp", library="gone"),
    "undefined_at_load": Mistake("needs_library.cpp", library="other"),
    # nvcc and the simulator
    **_in_kernel("missing_semicolon", "threadIdx.x;", "threadIdx.x"),
    "cuda_missing_brace": _cuda("missing_brace", "alpha);\n}\n", "alpha);\n"),
    **_in_kernel(*_MISSPELT_NAME),
    **_in_kernel("misspelt_member", "with_dtype", "with_dytpe"),
    "cuda_missing_include": _cuda("missing_include", "x[i]) * alpha", "__half2float(x[i])) * alpha"),
    "cuda_undefined_half": Mistake("cuda_undefined_half.cuh", (), "9.0a"),
    **_in_kernel("kernel_arguments", "x.data_ptr(), alpha,", "x.data_ptr(),"),
    "cuda_launch_arguments": Mistake("cuda_launch_arguments.cuh", target="9.0a"),
    "cuda_host_function": Mistake("cuda_host_function.cuh", _FP32, "9.0a"),
    "cuda_host_variable": Mistake("cuda_host_variable.cuh", _FP32, "9.0a"),
    "cuda_kernel_result": Mistake("cuda_kernel_result.cuh", target="9.0a"),
    "cuda_not_a_kernel": Mistake("cuda_not_a_kernel.cuh", target="9.0a"),
    "cuda_static_assertion": Mistake("cuda_static_assertion.cuh", (("scale", "Scale<fp32_t, 8>::run"),), "9.0a"),
    "sim_static_assertion": Mistake("cuda_static_assertion.cuh", (("scale", "Scale<fp32_t, 8>::run"),), "sim"),
    "cuda_shared_type": Mistake("cuda_shared_type.cuh", target="9.0a"),
    "cuda_kernel_as_export": Mistake("cuda_right.cuh", (("scale", "scale_kernel<float>"),), "9.0a"),
    # nvcc's flags
    "cuda_unknown_option": Mistake("cuda_right.cuh", _FP32, "9.0a", flags=("--use_fast_maths",)),
    "sim_unknown_option": Mistake("cuda_right.cuh", _FP32, "sim", flags=("--use_fast_maths",)),
    "cuda_unknown_option_of_ptxas": Mistake("cuda_right.cuh", _FP32, "9.0a", flags=("-Xptxas=--fast-maths",)),
    "cuda_list_in_quotes": Mistake("cuda_right.cuh", _FP32, "9.0a", flags=('-Xcompiler="-Wall -Wextra"',)),
    "cuda_device_link": Mistake("cuda_right.cuh", _FP32, "9.0a", flags=("-rdc=true",)),
    "sim_device_link": Mistake("cuda_right.cuh", _FP32, "sim", flags=("-rdc=true",)),
    "cuda_other_arch": Mistake("cuda_right.cuh", _FP32, "9.0a", flags=("-gencode", "arch=compute_80,code=sm_80")),
    "cuda_shell": Mistake("cuda_right.cuh", _FP32, "9.0a", flags=("-Xcompiler=-DHOME=$HOME",)),
    "cuda_no_host_compiler": Mistake("cuda_right.cuh", _FP32, "9.0a", flags=("-ccbin=/nonexistent/g++",)),
    # ptxas
    "cuda_too_much_shared": Mistake("cuda_too_much_shared.cuh", _FP32, "9.0a"),
    "cuda_registers": Mistake("cuda_registers.cuh", target="9.0a"),
    "cuda_unknown_ptx": Mistake("cuda_unknown_ptx.cuh", target="9.0a"),
    "cuda_too_new_instruction": Mistake("cuda_too_new_instruction.cuh", target="8.0"),
    "cuda_too_old_intrinsic": Mistake("cuda_too_old_intrinsic.cuh", target="7.5"),
    "cuda_undefined_device_function": Mistake("cuda_undefined_device_function.cuh", target="9.0a"),
    # The simulator alone
    "sim_ptx": Mistake("sim_ptx.cuh", target="sim", edit=("cuda_unknown_ptx.cuh", "mull.f32", "copysign.f32")),
    "sim_missing_include": _cuda("missing_include", "x[i]) * alpha", "__bfloat162float(x[i])) * alpha", target="sim"),
    # Math of a pattern
    "math_wrong_count": _math("math_wrong_count", "compute_t<T> x,", "compute_t<T> x, compute_t<T> bias,"),
    "math_no_reference": _math("math_no_reference", *_NO_REFERENCE),
    "math_no_reference_cuda": _math("math_no_reference_cuda", *_NO_REFERENCE, target="9.0a"),
    "math_no_reference_sim": _math("math_no_reference_sim", *_NO_REFERENCE, target="sim"),
    "math_wrong_type": _math("math_wrong_type", "compute_t<T> x,", "double x,", target="sim"),
    "math_wrong_type_cuda": _math("math_wrong_type_cuda", "compute_t<T> x,", "double x,", target="9.0a"),
    "math_changes_input": _math("math_changes_input", "compute_t<T> x,", "compute_t<T>& x,"),
    "math_rows_apart": _math("math_rows_apart", "In<T>(x)", "Strided(In<T>(x), {.stride = 2})"),
    "math_not_const": _math("math_not_const", "out) const {", "out) {", target="sim"),
    "math_misspelt_name": _math("math_misspelt_name", "void element(", "void elment("),
    "math_misspelt_name_cuda": _math("math_misspelt_name_cuda", "void element(", "void elment(", target="9.0a"),
    "math_misspelt_value_cuda": _math("math_misspelt_value_cuda", "x * alpha", "x * alpa", target="9.0a"),
    "math_may_be_absent": _math("math_may_be_absent", "run(TensorView x", "run(Optional<TensorView> x"),
    "row_no_term": _row("no_term", "compute_t<T> term(", "compute_t<T> trem("),
    "row_no_total": _row("no_total", *_NO_TOTAL, target="sim"),
    "row_no_total_cuda": _row("no_total", *_NO_TOTAL, target="9.0a"),
    "row_term_takes_reference": _row(
        "term_takes_reference", "term(compute_t<T> x)", "term(compute_t<T>& x)", target="sim"
    ),
    "row_other_total": _row("other_total", "row(compute_t<T> total,", "row(double total,"),
    "row_no_size": _row("no_size", "compute_t<T> size, float& rms", "float& rms, compute_t<T> size", target="sim"),
    "row_no_reference": _row("no_reference", "float& rms", "float rms"),
    "row_result_is_left_out": _row("result_is_left_out", "(rms));", "(rms), OutPerRow<float>(rms));", target="sim"),
    "row_too_many": _row("too_many", "compute_t<T>& out)", "compute_t<T>& out, float bias)"),
    "row_not_const": _row("not_const", "float& rms) const", "float& rms)", target="9.0a"),
    "row_other_result": _row(
        "other_result", "void element(compute_t<T> mean", "void element(double mean", target="9.0a"
    ),
    "row_no_element": _row("no_element", "void element(", "void elment("),
    # Warnings
    "unused_variable": _cpp(
        "unused_variable", "    T* to", "    const int64_t rows = n.unwrap();\n    T* to", flags=("-Wall",)
    ),
    "cuda_unused_variable": _cuda("unused_variable", "  if (i", "  const float half_of_alpha = alpha / 2;\n  if (i"),
}


def say(mistake: Mistake) -> str:
    """kjit's messages about a mistake, with paths that are the same on all machines."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as temporary:
        sources, folder = Path(temporary, "sources"), Path(temporary, "build")
        sources.mkdir()
        folder.mkdir()
        mistake.write(sources)
        toolchain = Toolchain.for_target(mistake.target_of_build)
        # Paths are shown as seen from here.
        os.chdir(sources)
        try:
            text = (_load if mistake.library else _compile)(mistake, sources, toolchain, folder)
        finally:
            os.chdir(before)
        return _same_everywhere(text, str(folder), toolchain)


def _compile(mistake: Mistake, sources: Path, toolchain: Toolchain, folder: Path) -> str:
    try:
        return compile_variant(mistake.variant(sources), toolchain, folder).warnings
    except KjitError as error:
        return _whole(error)


def _load(mistake: Mistake, sources: Path, toolchain: Toolchain, folder: Path) -> str:
    """Build against a library, take that away or put another in its place, and load."""
    library = folder / "libfactor.so"
    cache = folder / "cache"
    variant = mistake.variant(sources, f"-L{folder}", f"-Wl,-rpath,{folder}", "-lfactor")
    _make_library(library, "double scale_factor() { return 2; }", toolchain)
    builder.build(variant, Store.open(cache))
    library.unlink()
    if mistake.library == "other":
        _make_library(library, "double scale_by() { return 2; }", toolchain)
    try:
        load_variant(variant, build_directory=cache)
    except KjitError as error:
        return _whole(error)
    return "it was loaded"


def _make_library(path: Path, text: str, toolchain: Toolchain) -> None:
    command = [str(toolchain.cxx.path), "-x", "c++", "-shared", "-fPIC", "-o", str(path), "-"]
    subprocess.run(command, input=f'extern "C" {text}', text=True, check=True)


def _whole(error: KjitError) -> str:
    return error.message if error.hint is None else f"{error.message}\nhint: {error.hint}"


def _same_everywhere(text: str, folder: str, toolchain: Toolchain) -> str:
    for library in sorted(map(str, toolchain.library_dirs()), key=len, reverse=True):
        text = text.replace(f"{library}/", "<library>/")
    # A line of kjit's headers is another one tomorrow.
    text = re.sub(r"(<kjit/[\w./]+>):\d+", r"\1", text)
    return text.replace(folder, "<folder>").strip() + "\n"


def shape(text: str) -> list[str]:
    """The parts of the first message that do not depend on the compiler's words: the first line, the position, the line
    of source, whether there is a caret below it, the folded instantiations, the hint."""
    head, *rest = text.splitlines()
    first = []
    for line in rest:
        if not line:
            break
        first.append(line)
    lines = [head]
    for line in first:
        if (place := re.match(r"(?P<place>\S[^:]*(?::\d+)?)(?::\d+)?: (?:error|warning): ", line)) is not None:
            lines.append(place["place"])
        elif line.startswith("  at "):
            # Compilers differ in which template arguments they leave out as defaults.
            place, _, function = line.partition(" in ")
            lines.append(f"{place} in {without_template_arguments(function)}")
        elif re.match(r"  \d+ \|", line) or line.startswith("  in "):
            lines.append(line)
        elif re.match(r"  +\|[ ~]*\^", line):
            lines.append("^")
    return [*lines, *(line for line in rest if line.startswith("hint: "))]


def without_template_arguments(function: str) -> str:
    """The name of a function or class as it is declared."""
    while (shorter := re.sub(r"<[^<>]*>", "", function)) != function:
        function = shorter
    return function


def expected(name: str, compiler: str) -> str:
    """The text of a mistake, as `compiler` writes it."""
    families = [*(["clang"] if "clang" in compiler else []), compiler.split()[0]]
    of_others = [EXPECTED / f"{name}.{family}.txt" for family in families]
    return next(path for path in (*of_others, EXPECTED / f"{name}.txt") if path.exists()).read_text()


def compiler_of(mistake: Mistake) -> str:
    """The compilers that see it, by what decides about their words: the major version."""
    toolchain = Toolchain.for_target(mistake.target_of_build)
    found = [(toolchain.cxx.family, toolchain.cxx.version)]
    if toolchain.cuda is not None:
        family = "nvcc" if toolchain.nvrtc is None else "nvrtc"
        found.insert(0, (family, toolchain.cuda.version))
    return " ".join(f"{family} {version[0]}" for family, version in found)


def main(names: list[str]) -> None:
    EXPECTED.mkdir(exist_ok=True)
    is_by_nvrtc = find_cuda().nvcc.family == "nvrtc"
    os.environ[env.CUDA_COMPILER] = "nvrtc" if is_by_nvrtc else "nvcc"
    written_with = set()
    for name in names or [name for name, mistake in MISTAKES.items() if mistake.is_cuda or not is_by_nvrtc]:
        mistake = MISTAKES[name]
        text, compiler = say(mistake), compiler_of(mistake)
        sys.stdout.write(f"== {name}\n{text}\n")
        if "nvrtc" in compiler:
            if text != (EXPECTED / f"{name}.txt").read_text():
                (EXPECTED / f"{name}.nvrtc.txt").write_text(text)
            written_with.add(compiler)
        elif "clang" not in compiler:
            (EXPECTED / f"{name}.txt").write_text(text)
            written_with.add(compiler)
        elif shape(text) != shape((EXPECTED / f"{name}.txt").read_text()):
            (EXPECTED / f"{name}.clang.txt").write_text(text)
    if written_with and not names:
        of_others = [each for each in COMPILERS.read_text().splitlines() if ("nvrtc" in each) != is_by_nvrtc]
        COMPILERS.write_text("".join(f"{compiler}\n" for compiler in sorted({*written_with, *of_others})))


if __name__ == "__main__":
    main(sys.argv[1:])
