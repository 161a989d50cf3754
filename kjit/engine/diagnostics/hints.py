"""Hints for known errors of compilers and linkers.

Compilers describe errors in terms of the language. A hint is in terms of kjit: the name that was probably meant, and
what to do. The first row of the table below that matches is shown. Its first part, names of PyTorch's C++ API and
pybind11, is in docs/from-torch-extensions.md for readers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from kjit.engine.compile.rewrite.shared_memory import DYNAMIC
from kjit.engine.diagnostics.messages import Message
from kjit.spec import CPP_DTYPES

_UNDEFINED_NAME = re.compile(
    r"identifier \"(?P<name>\w+)\" is undefined$|class \"(?P<of>[^\"]+)\" has no member \"(?P<member>\w+)\"$"
)
_UNKNOWN = re.compile(
    r"has not been declared|was not declared|undeclared identifier|is undefined|does not name a|unknown type name"
    r"|no (?:type|template) named|no member|is not a member of"
)
# Errors about an unknown name that do not name it, but only what follows from it.
_NAMELESS = re.compile(
    r"must be a class or namespace name|type specifier|declared void"
    r"|expected (?:a declaration|unqualified-id|constructor, destructor, or type conversion)"
)
_QUOTED = re.compile(r"['\"](?:\w+ )*([\w:]*\w)['\"]")
_QUALIFIED = re.compile(r"(?<![\w:])(?P<space>at|c10|torch|pybind11|py|host)::(?:\w+::)*(?P<word>\w+)")

# What an error is about, a pattern, and below it the hint for it; several lines may have one hint.
#
# text: a message with its notes, and the source line after `| `; any part of it matches.
# name: an unknown name. gpu: one in code for a GPU. cuda: a function `__f` that CUDA's headers have. std, tvm::ffi: one
# in that namespace. torch: one that the source line has in a namespace of torch. member: one of a TensorView.
#
# A hint has the groups of the pattern, `name`, `target`, and as `dtype` the most similar one of kjit.
_CUDA_LIBRARIES = "cublas|nvblas|curand|cufft|cusparse|cusolver|nvrtc|nvJitLink|cupti|nvtx3|npp|nvjpeg|nvml|cudnn|nccl"
_TABLE = r"""
# torch's C++ API and pybind11; docs/from-torch-extensions.md has the others
text: (?:\A|['\"])(?P<header>(?:torch|ATen|c10|pybind11|caffe2)/[\w./]+)(?:: No such|['\"])
    kjit compiles without torch's headers: in place of <{header}> include <kjit/tensor.h>, and <kjit/launch.h> where
    CUDA kernels are launched
name torch: TORCH_(?:INTERNAL_ASSERT|CHECK)\w*|AT_ASSERTM?|AT_ERROR
    write host::RuntimeCheck(condition, "why", value) (<kjit/utils.h>); what tensors must be, a TensorMatcher checks
    (<kjit/tensor.h>)
name: AT_DISPATCH_\w+
    a dtype is a template argument here, as in Scale<T>::run: `make_cpp_args(x.dtype)` in Python hands it on, and each
    dtype is a module of its own
name: (?:C10|AT|TORCH)_CUDA_(?:CHECK|KERNEL_LAUNCH_CHECK)\w*
    a call is checked by CHECK_CUDA(call) or host::RuntimeDeviceCheck(call); a launch by host::LaunchKernel itself
    (<kjit/launch.h>)
name torch: get(?:Current|Default)CUDAStream|CUDAStream|(?:Optional)?(?:CUDA|Device)Guard
    host::LaunchKernel(grid, block, x.device())(kernel, ...) launches on torch's stream and the tensor's device; around
    other calls write host::LaunchKernel::resolve_device(x.device()) and host::DeviceGuard guard(x.device())
name torch: PYBIND11_MODULE|TORCH_EXTENSION_NAME|TVM_FFI_DLL_EXPORT_TYPED_FUNC|TORCH_LIBRARY\w*
    write KJIT_EXPORT(name, function) (<kjit/ffi.h>), or name the function in the wrappers of the module in Python;
    `@kjit.torch_op` there makes it an operator of torch
torch: BFloat16|Half|Float8_\w+|k[A-Z][a-z]+\d*|ScalarType|opmath_type
    element types are fp16_t, bf16_t, fp8_e4m3_t, fp8_e5m2_t and C++'s own (<kjit/dtype.h>), and
    host::is_type<T>(x.dtype()) compares with one; compute_t<T> is what T is computed in
torch: Tensor|TensorList|IntArrayRef|ArrayRef|Device|optional
    a tensor is a TensorView as an argument and a host::ffi::Tensor as a result (<kjit/ffi.h>); None comes as
    Optional<T>
torch: \w+
    kjit compiles without torch's headers: docs/from-torch-extensions.md has its words for torch's
member: (?:mutable_|const_)?data(?:_ptr)?
    write x.data_ptr<T>(), or x.data_ptr<const T>()
member: contiguous|clone|to|cuda|cpu|view|reshape|permute|transpose|(?:zero|fill|copy)_|(?:add|mul)_?|sum|item
    a TensorView only looks at the caller's tensor: call .{name}() in Python, and check here what came
    (TensorMatcher, x.is_contiguous())
member: scalar_type|type|options|element_size|is_cuda|get_device|(?:packed_)?accessor(?:32|64)?
    a TensorView has x.dtype(), x.device(), x.stride(i) and x.data_ptr<T>() (<kjit/tensor.h>), and a TensorMatcher
    checks them
# kjit's headers
name: host
    kjit's names are in the namespace kjit: write `using namespace kjit;`, or kjit::host::
text: an export cannot return this type
    void, bool, a number or host::ffi::Tensor is returned; with <kjit/tvm_ffi.h>, tvm-ffi's own types too
text: an export cannot take this type(?:.|\n)*^at <.*argument<[^<>]*\*(?: const)?>$
    take a tensor (TensorView x), and its data in the function: static_cast<float*>(x.data_ptr())
text: an export cannot take this type
    TensorView, Optional<T>, numbers, bool, StringView, DLDataType and DLDevice are taken; with <kjit/tvm_ffi.h>,
    tvm-ffi's own types too
text: unsupported (?:GNU|clang) version
    set CXX to an older compiler, which this CUDA takes
text: \Athe simulator (?:cannot run|lacks)
    write it in C++ for the simulator, under `#if KJIT_SIM`, and keep the existing code for the GPU
text: \A.*\bDYNAMIC(?P<array>\w+)
    nvcc refuses this as well: dynamic shared memory has one type for a name (`{array}`) in a unit; declare it as
    unsigned char and cast it, or give it a name for each type
# Flags, as any compiler or linker reports them
text: (?:[Uu]nrecogni[sz]ed|[Uu]nknown|[Uu]nsupported|[Ii]nvalid) (?:command-line |warning )?(?:option|argument)\b
text: linker input file not found|no such file or directory: '[^/']*'|A single input file is required
    flags come from the spec's extra_cflags (C++), extra_cuda_cflags (nvcc) and extra_ldflags (linker), and from
    NVCC_APPEND_FLAGS and NVCC_PREPEND_FLAGS
# Linkers
text: \Aundefined symbol\W+hwy::
    include <kjit/highway.h> instead of Highway's headers: it has what these need from Highway's library
text: \Aundefined symbol\W+(?P<builtin>threadIdx|blockIdx|blockDim|gridDim|warpSize)$
    mark the function __global__, if it is a kernel, or __device__ (KJIT_DEVICE): host code has no {builtin}
text: static-global-template-stub
text: \Aundefined symbol(?:.|\n)*\n\| .*__global__
    define the kernel in the unit that launches it: with cuda_wrappers all cuda_files are one unit
text: \Aundefined symbol
    define it in one of the op's sources, or name its library (and its folder, -L) in extra_ldflags; a function that
    no call reaches may stay undefined with -Wl,-z,undefs there
text: (?:cannot find -l|find library -l|library not found: )cuda\b
    there is no driver here: get its functions when they are called, from cudaGetDriverEntryPointByVersion, which needs
    no -lcuda
text: (?:cannot find -l|find library -l|library not found: )(?P<library>CUDALIBS)
    {library} is not in the CUDA that kjit found (`kjit doctor`); CUDA's compiler from PyPI comes without libraries:
    `pip install nvidia-cublas`, `nvidia-curand`, `nvidia-cufft`, `nvidia-cusparse`, `nvidia-cusolver`, ...
text: cannot find -l|unable to find library|library not found
    correct its name, or add the folder that it is in to extra_ldflags (`-L/folder`)
text: \Alinker: .*No such file or directory|no such file or directory: '
    correct the path in extra_ldflags
text: \Aexport .* is defined twice
    name it either in KJIT_EXPORT or in the wrappers of the module, and once
text: is defined twice
    put it into an unnamed namespace, or mark it inline or static
# Names that a header declares; conversions are in the header of the narrower type
gpu: __nv_\w*(?P<bits>fp[864])\w*
    include <cuda_{bits}.h>, which declares {name}
gpu: nv_bfloat16\w*|__\w*bfloat16\w*
    include <cuda_bf16.h>, which declares {name}
gpu: (?:nv_)?half2?|__\w*half\w*
    include <cuda_fp16.h>, which declares {name}
name: printf
    include <cstdio>, which declares {name}
name: u?int(?:8|16|32|64)_t
    include <cstdint>, which declares {name}
std: sqrt|exp|log|pow|sin|cos|tanh|floor|ceil|round|isnan|isinf
    std::{name} is declared in <cmath>: `#include <cmath>`
std: \w+
    include the standard header that declares std::{name}
tvm::ffi: \w+
    include <kjit/tvm_ffi.h>, which declares tvm::ffi::{name}
name: (?:b?float|fp|bf|u?int|half|double|long)\d*(?:_t|_e\w+)?
    '{name}' is called {dtype} in kjit's headers (<kjit/dtype.h>)
text: (?:\A|['\"])(?:cuda/std|cub|thrust|nv|crt)/[\w./]+(?:: No such|['\"])
    install CUDA's headers with `pip install 'kjit[nvrtc]'`, or set KJIT_CUDA_HOME to a CUDA toolkit
text: (?:\A|['\"])(?P<library>(?:CUDALIBS)[\w./]*\.h)(?:: No such|['\"])
    <{library}> is not in the CUDA that kjit found (`kjit doctor`); CUDA's compiler from PyPI comes without libraries:
    `pip install nvidia-cublas`, `nvidia-curand`, `nvidia-cufft`, ...; the simulator has none (`#if !KJIT_SIM`)
text: (?:\A|['\"])hwy/[\w./]+(?:: No such|['\"])
    it belongs to Google Highway: write extra_include_paths=[..., *kjit.highway_include()], and install it with
    `sudo apt install libhwy-dev` or `conda install -c conda-forge libhwy`
text: No such file or directory|file not found$|cannot open source file
    check the name, or add the folder of the header to extra_include_paths
text: kjit's (?:headers need|simulator needs) C[+][+]20
    remove -std= from the flags: kjit compiles as C++20, which accepts C++17 too
# CUDA
text: exception spec.*\brsqrt\b|\brsqrt\b.*exception spec
    this C library has a function rsqrt, which CUDA's headers allow from CUDA 13.2 on: install that
text: calling a __host__ function
    mark the function __device__ (KJIT_DEVICE), or do it before the launch
text: host function call cannot be configured
    mark the function __global__: only kernels are launched with <<<...>>>
text: declaration is incompatible with previous
    an extern __shared__ array has one type in all kernels: make it unsigned char, and cast its address
text: too much shared data
    a block cannot have more shared memory: use a smaller tile
text: Insufficient registers|Register allocation failed
    allow more: fewer threads or blocks in __launch_bounds__, a larger -maxrregcount
text: not defined for the device
    mark it __device__ (KJIT_DEVICE) and define it in a header that the kernel includes: no other source is linked
text: requires \.target (?P<needed>sm_(?P<arch>\d+)\w*) or higher
    {target} lacks it: put it under `#if __CUDA_ARCH__ >= {arch}0`, with an alternative for older GPUs, or build for
    {needed} or newer
text: PTX that the compiler made
    correct the asm statement; the PTX ISA of CUDA's documentation has every instruction and its types
text: complete object type|incomplete type .*(?:fp16|bf16|fp8|half|bfloat)
    kjit/device.cuh only declares half and 8-bit types: include <kjit/utils.cuh> for CUDA's, or define
    KJIT_LIGHT_TYPES before the first include for kjit's own, which compile faster
gpu: __h\w+
    include <cuda_fp16.h> (for bfloat16 <cuda_bf16.h>), if {target} has {name}
cuda: __\w+
    CUDA's headers have {name}, but not for {target}: newer GPUs have it
""".replace("DYNAMIC", DYNAMIC).replace("CUDALIBS", _CUDA_LIBRARIES)
_ROWS = [
    (when.split(), re.compile(pattern, re.MULTILINE), " ".join(hint.split()))
    for heads, hint in re.findall(r"((?:^\w.*\n)+)((?:^ {4}.*\n)+)", _TABLE, re.MULTILINE)
    for when, _, pattern in (head.partition(": ") for head in heads.splitlines())
]


def suggestion(message: Message, words_of: Callable[[str], Iterable[str]], headers: Sequence[Path]) -> str | None:
    """The name that was probably intended, for unknown names reported by nvcc (GCC and clang make suggestions).

    Args:
        words_of: a function that returns the identifiers in a file.
        headers: folders of headers with classes of kjit.
    """
    match = _UNDEFINED_NAME.search(message.text)
    if match is None or _in_table(message, "cpu", lambda _: False) is not None:
        return None
    words = set(words_of(message.file))
    if (match["of"] or "").startswith("kjit::"):
        words.update(word for folder in headers for path in folder.glob("kjit/*.h") for word in words_of(str(path)))
    name = match["name"] or match["member"]
    return next(iter(difflib.get_close_matches(name, words - {name}, 1, 0.75)), None)


def hint(
    messages: Sequence[Message],
    declaration: Callable[[Message], str | None],
    is_in_cuda: Callable[[str], bool],
    target: str,
) -> str | None:
    """A hint for the first known error.

    Args:
        declaration: for a message about an export, the line of Python with it.
        is_in_cuda: whether CUDA's headers have a function of this name.
        target: the target of the build, as `str(Target)`.
    """
    for message in messages:
        found = _in_table(message, target, is_in_cuda)
        if found is not None:
            return found
        declared = declaration(message)
        if declared is not None:
            return f"the export is declared in Python, where the spec is: {declared}"
    return None


def _in_table(message: Message, target: str, is_in_cuda: Callable[[str], bool]) -> str | None:
    """The hint of the first row for a message."""
    topics = list(_topics(message, target, is_in_cuda))
    for kinds, pattern, hint in _ROWS:
        for kind, words in topics:
            match = (pattern.search if kind == "text" else pattern.fullmatch)(words) if kind in kinds else None
            if match is not None:
                return hint.format(name=match[0], target=target, dtype=_dtype(match[0]), **match.groupdict())
    return None


def _topics(message: Message, target: str, is_in_cuda: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The subjects of a message, as in the table, and for each the text or name to match."""
    text = message.text
    yield "text", "\n".join([text, *(note.text for note in message.notes), f"| {message.code or ''}"])
    is_nameless = _NAMELESS.search(text) is not None
    if not is_nameless and _UNKNOWN.search(text) is None:
        return
    quoted = _QUOTED.findall(text.partition("; did you mean")[0])
    names = [name.rpartition("::")[2] for name in quoted]
    spaces = [space for space in ("std", "tvm::ffi") if any(f"{name}::".startswith(f"{space}::") for name in quoted)]
    if spaces:
        yield from ((spaces[0], name) for name in names if name not in ("std", "ffi"))
    elif re.search(r"\bmember\b", text) is not None:
        yield from (("member", name) for name in names if {"Tensor", "TensorView"} & set(names))
    else:
        line = re.sub(r"//.*|\"(?:\\.|[^\"\\])*\"", "", message.code or "")
        if is_nameless:
            names += re.findall(r"^\s*(\w+)\s*\(", line)
        for match in _QUALIFIED.finditer(line):
            if is_nameless or match["space"] in names:
                yield ("name", "host") if match["space"] == "host" else ("torch", match["word"])
        for name in names:
            yield "name", name
            if not target.startswith("cpu"):
                yield "gpu", name
                if name.startswith("__") and is_in_cuda(name):  # which reads CUDA's headers
                    yield "cuda", name


def _dtype(name: str) -> str:
    meant = CPP_DTYPES.get(name.removesuffix("_t"))
    return meant or next(iter(difflib.get_close_matches(name, CPP_DTYPES.values(), 1)), ", ".join(CPP_DTYPES.values()))
