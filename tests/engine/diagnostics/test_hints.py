"""kjit.engine.diagnostics.hints: the table (test_mistakes.py has what compilers say of common mistakes)."""

from __future__ import annotations

import pytest

from kjit.engine.diagnostics import hints
from kjit.engine.diagnostics.messages import Message

VIEW = "kjit::host::TensorView"


def hint(text: str, code: str | None = None) -> str | None:
    return hints.hint([Message(text, "a.cu", 1, code=code)], lambda _: None, lambda _: False, "cpu")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("TORCH_CHECK", "host::RuntimeCheck"),
        ("AT_DISPATCH_FLOATING_TYPES_AND_HALF", "make_cpp_args"),
        ("C10_CUDA_KERNEL_LAUNCH_CHECK", "host::LaunchKernel itself"),
        ("getCurrentCUDAStream", "resolve_device"),
        ("TORCH_EXTENSION_NAME", "KJIT_EXPORT"),
    ],
)
def test_a_word_that_only_torch_has_is_known_wherever_it_stands(word: str, meant: str) -> None:
    for text in (f"'{word}' was not declared in this scope", f'identifier "{word}" is undefined'):
        assert meant in str(hint(text)), text


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("at::cuda::getCurrentCUDAStream()", "resolve_device"),
        ("c10::Half", "fp16_t"),
        ("torch::Tensor", "TensorView"),
        ("torch::nn::functional::relu(x)", "docs/from-torch-extensions.md"),
    ],
)
def test_a_name_in_a_namespace_of_torch_is_known_by_its_line(word: str, meant: str) -> None:
    namespace = word.partition(":")[0]
    for text in (
        f"'{namespace}' has not been declared",
        "variable or field 'f' declared void",
        'name followed by "::" must be a class or namespace name',
    ):
        assert meant in str(hint(text, f"  f({word} h)")), text


def test_only_a_function_of_cuda_may_exist_for_newer_gpus() -> None:
    for name, is_in_cuda in (("__reduce_add_sync", True), ("__m128", False)):
        message = Message(f'identifier "{name}" is undefined', "a.cu", 1)
        found = hints.hint([message], lambda _: None, lambda _, known=is_in_cuda: known, "cuda:sm_75")
        assert (found is not None and "newer GPUs have it" in found) is is_in_cuda


@pytest.mark.parametrize(
    ("member", "meant"),
    [
        ("contiguous", ".contiguous() in Python"),
        ("packed_accessor32", "x.stride(i)"),
        ("scalar_type", "x.dtype()"),
        ("const_data_ptr", "x.data_ptr<T>()"),
    ],
)
def test_a_member_of_torchs_tensor_is_known_after_a_tensor_alone(member: str, meant: str) -> None:
    for text in (f"'class {VIEW}' has no member named '{member}'", f'class "{VIEW}" has no member "{member}"'):
        assert meant in str(hint(text)), text
        assert hint(text.replace(VIEW, "mine::Grid")) is None


@pytest.mark.parametrize("macro", ["PYBIND11_MODULE", "TORCH_LIBRARY", "TVM_FFI_DLL_EXPORT_TYPED_FUNC"])
def test_a_macro_that_exports_is_known(macro: str) -> None:
    for text in (
        "expected constructor, destructor, or type conversion before '(' token",
        "a type specifier is required for all declarations",
        "this declaration has no storage class or type specifier",
    ):
        assert "KJIT_EXPORT(name, function)" in str(hint(text, f"{macro}(f, m) {{"))


@pytest.mark.parametrize("header", ["torch/extension.h", "ATen/cuda/CUDAContext.h", "c10/util/Half.h"])
def test_a_header_of_torch_is_not_looked_for(header: str) -> None:
    for text in (
        f"{header}: No such file or directory",
        f"'{header}' file not found",
        f'cannot open source file "{header}"',
    ):
        assert f"in place of <{header}> include <kjit/tensor.h>" in str(hint(text))
    assert "extra_include_paths" in str(hint(f"my{header}: No such file or directory"))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("curand_kernel.h: No such file or directory", "<curand_kernel.h> is not in the CUDA that kjit found"),
        ("'nvtx3/nvToolsExt.h' file not found", "`pip install nvidia-cublas`"),
        ('cannot open source file "cublas_v2.h"', "`#if !KJIT_SIM`"),
        ("linker: cannot find -lcufft: No such file or directory", "cufft is not in the CUDA that kjit found"),
        ("library not found: nvrtc", "nvrtc is not in the CUDA that kjit found"),
        ("linker: cannot find -lcuda: No such file or directory", "cudaGetDriverEntryPointByVersion"),
        ("linker: cannot find -lcudamine: No such file or directory", "correct its name"),
        ("mycublas.h: No such file or directory", "extra_include_paths"),
    ],
)
def test_a_library_of_cuda_is_a_package_of_its_own(text: str, meant: str) -> None:
    assert meant in str(hint(text))


def test_kjits_host_without_its_namespace_is_known() -> None:
    code = "host::RuntimeCheck(x.ndim() == 2);"
    for text in (
        "'host' has not been declared",
        "use of undeclared identifier 'host'; did you mean 'kjit::host'?",
        'name followed by "::" must be a class or namespace name',
        "this declaration has no storage class or type specifier",
    ):
        assert "using namespace kjit;" in str(hint(text, code))


def test_what_only_stands_near_a_word_of_torch_has_no_hint_about_it() -> None:
    assert hint("'scale' was not declared in this scope", "  at::Half h = scale;  // TORCH_CHECK") is None
    assert hint('name followed by "::" must be a class or namespace name', "  mine::f();  // at::Half") is None
    assert hint("'Half' was not declared in this scope", "  Half h;") is None
    assert hint("'sqrt' was not declared in this scope; did you mean 'std::sqrt'?", "  sqrt(x);") is None
    assert "<cmath>" in str(hint("'sqrt' is not a member of 'std'; did you mean 'sqr'?", "  std::sqrt(x);"))


def test_every_hint_has_the_words_that_it_names() -> None:
    for _, pattern, words in hints._ROWS:
        assert words.format(name="x", target="cpu", dtype="fp32_t", **dict.fromkeys(pattern.groupindex, "y"))
