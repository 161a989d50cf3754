"""Hints for known errors of compilers and linkers.

Compilers describe errors in terms of the language. A hint is in terms of kjit: the name that was probably meant, and
what to do. `hint` tries the functions below in order, and the first hint is shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kjit.engine.compile.rewrite.shared_memory import DYNAMIC
from kjit.engine.diagnostics import torch_words
from kjit.engine.diagnostics.messages import Message
from kjit.engine.toolchain.options import parse
from kjit.spec import CPP_DTYPES

Given = Mapping[str, Sequence[str]]
"""The flags that are not kjit's, by source: `extra_cflags`, `NVCC_APPEND_FLAGS`."""

_FLAGS = "flags come from the spec's extra_cflags (C++), extra_cuda_cflags (nvcc) and extra_ldflags (linker)"
_STRAY_WORD = re.compile(r"linker input file not found|no such file or directory: '|A single input file is required")
_UNKNOWN_OPTION = re.compile(
    r"[Uu]nrecognized command-line option|[Uu]nknown (?:option|argument|warning option)|invalid option: "
    r"|is not defined.*option|unsupported option|unrecognised option|unrecognized option"
)
_OPTION = re.compile(r"""['"](?P<quoted>[^'"]*)['"]|: (?P<last>-\S+)$""")
_OLDER_LANGUAGE = re.compile(r"-?std(?:[= ]|=?['\"])?(?P<name>(?:c|gnu)\+\+(?:98|03|0x|11|1y|14|1z|17))\b")

_UNDEFINED_NAME = re.compile(
    r"identifier \"(?P<edg>\w+)\" is undefined$|class \"(?P<of>[^\"]+)\" has no member \"(?P<member>\w+)\"$"
)
_STANDARD = re.compile(
    r"'(?P<gnu>\w+)' is not a member of 'std'|namespace \"std\" has no member \"(?P<edg>\w+)\"|"
    r"no member named '(?P<clang>\w+)' in namespace 'std'"
)
_UNKNOWN_IN_CUDA = re.compile(
    r"identifier \"(?P<edg>\w+)\" is undefined|(?:undeclared identifier|unknown type name) '(?P<clang>\w+)'|"
    r"'(?P<gnu>\w+)' (?:was not declared|has not been declared|does not name a type)"
)
# CUDA functions, and those of C that kernels use, by header; the first match counts.
# Conversions are in the header of the narrower type.
_CUDA_HEADERS = (
    (re.compile(r"__nv_\w*(?:fp8|e8m0)\w*"), "<cuda_fp8.h>"),
    (re.compile(r"__nv_\w*fp6\w*"), "<cuda_fp6.h>"),
    (re.compile(r"__nv_\w*fp4\w*"), "<cuda_fp4.h>"),
    (re.compile(r"nv_bfloat16\w*|__\w*bfloat16\w*"), "<cuda_bf16.h>"),
    (re.compile(r"(?:nv_)?half2?|__\w*half\w*"), "<cuda_fp16.h>"),
    (
        re.compile(
            r"__h(?:2div|abs|add|mul|sub|div|fma|neg|cmadd|max|min|isnan|isinf|b?(?:eq|ne|lt|le|gt|ge)u?)2?(?:_\w+)?"
            r"|__(?:low|high)2float|__lowhigh2highlow"
        ),
        "<cuda_fp16.h> (for bfloat16 <cuda_bf16.h>)",
    ),
    (re.compile(r"printf"), "<cstdio>"),
    (re.compile(r"assert"), "<cassert>"),
    (re.compile(r"u?int(?:8|16|32|64)_t"), "<cstdint>"),
)
_EXPORT_TYPE = re.compile(r"an export cannot (?P<way>take|return) this type")
_TAKEN = (
    "TensorView, Optional<T>, numbers, bool, StringView, DLDataType and DLDevice are taken; with <kjit/tvm_ffi.h>, "
    "tvm-ffi's own types too"
)
_RETURNED = "void, bool, a number or host::ffi::Tensor is returned; with <kjit/tvm_ffi.h>, tvm-ffi's own types too"
_OF_TVM_FFI = re.compile(
    r"'(?P<gnu>\w+)' is not a member of 'tvm::ffi'|namespace \"tvm::ffi\" has no member \"(?P<edg>\w+)\"|"
    r"no (?:type|template|member) named '(?P<clang>\w+)' in namespace 'tvm::ffi'"
    r"|'tvm::ffi::(?P<named>\w+)' has not been declared|'(?P<typed>\w+)' in namespace 'tvm::ffi' does not name a"
)
_TVM_FFI_NAMES = [
    "Array",
    "Any",
    "AnyView",
    "Bytes",
    "Dict",
    "Error",
    "Function",
    "List",
    "Map",
    "Module",
    "Object",
    "ObjectPtr",
    "ObjectRef",
    "Optional",
    "Shape",
    "String",
    "Tensor",
    "Tuple",
    "TypedFunction",
    "Variant",
]
_NO_LIBRARY = re.compile(
    r"cannot find -l(?P<gnu>\S+?)(?::|$)|unable to find library -l(?P<lld>\S+)|library not found: (?P<mold>\S+)"
)
_LIBRARY_MISSING = re.compile(r"linker: .*No such file or directory|no such file or directory: '.*'")
_DTYPE_LIKE = re.compile(r"['\"](?P<name>(?:float|fp|bf|bfloat|half|double|int|uint|long|bool)\w*)['\"]")
_RSQRT = re.compile(r"exception spec.*\brsqrt\b|\brsqrt\b.*exception spec")
_NOT_KNOWN = ("was not declared", "is undefined", "undeclared identifier", "unknown type name")
_STANDARD_HEADERS: Mapping[str, Sequence[str]] = {
    "cmath": ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "floor", "ceil", "round", "isnan", "isinf"),
    "algorithm": ("min", "max", "clamp", "sort", "fill", "copy"),
    "limits": ("numeric_limits",),
}


def suggestion(message: Message, words_of: Callable[[str], Iterable[str]], headers: Sequence[Path]) -> str | None:
    """The name that was probably intended, for unknown names reported by nvcc (GCC and clang make suggestions).

    Args:
        words_of: a function that returns the identifiers in a file.
        headers: folders of headers with classes of kjit.
    """
    match = _UNDEFINED_NAME.search(message.text)
    if match is None or torch_words.hint(message.text, message.code) is not None:
        return None
    words = set(words_of(message.file))
    if (match["of"] or "").startswith("kjit::"):
        words.update(word for folder in headers for path in folder.glob("kjit/*.h") for word in words_of(str(path)))
    name = match["edg"] or match["member"]
    words.discard(name)
    close = difflib.get_close_matches(name, words, 1, 0.75)
    return close[0] if close else None


def older_language(needed: str, given: Given) -> tuple[str, str]:
    """Message and hint for a C++ standard older than `needed`, which begins the sentence."""
    asked = [
        (where, match["name"]) for where, flags in given.items() for match in _OLDER_LANGUAGE.finditer(" ".join(flags))
    ]
    if not asked:
        return (
            f"{needed}, and a flag asks for an older one.",
            "remove the flag: kjit compiles as C++20, which accepts C++17 too",
        )
    where, name = asked[-1]
    instead = f"remove -std={name} from {where}: kjit compiles as C++20, which accepts C++17 too"
    if "headers" in needed:
        instead += " (only sources without wrappers that include none of kjit's headers may be older)"
    return f"{needed}, and {where} asks for {name}.", instead


def hint(
    messages: Sequence[Message], declaration: Callable[[Message], str | None], target: str, given: Given
) -> str | None:
    """A hint for the first known error.

    Args:
        declaration: for a message about an export, the line of Python with it.
        target: the target of the build, as `str(Target)`.
    """
    for message in messages:
        text = message.text
        found = (
            _of_flags(text, given)
            or torch_words.hint(text, message.code)
            or _general(message)
            or _of_cuda_header(text, target)
            or _of_cpp(text)
            or _of_cuda(text, target)
        )
        if found is not None:
            return found
        declared = declaration(message)
        if declared is not None:
            return f"the export is declared in Python, where the spec is: {declared}"
    return None


def _of_flags(text: str, given: Given) -> str | None:
    """A hint for a message about a flag, of any compiler or linker."""
    if text.startswith("nvcc's host compiler"):
        where = _where(["-ccbin", "--compiler-bindir"], given)
        return f"remove -ccbin from {where}: kjit gives nvcc the compiler that CXX names" if where else _FLAGS
    if _STRAY_WORD.search(text) is not None and (stray := _stray_word(given)) is not None:
        return f"'{stray[0]}' in {stray[1]} is not an option, so the compiler takes it for a source: remove it"
    if _UNKNOWN_OPTION.search(text) is None:
        return None
    match = _OPTION.search(text)
    option = (match["quoted"] or match["last"] or "") if match else ""
    where = _where([option], given)
    if re.search(r"\S\s+-", option):
        return (
            f"these are several flags in one{f', in {where}' if where else ''}: without the quotes, as in "
            f"-Xcompiler={','.join(option.split())}"
        )
    if where:
        return f"it is in {where}: correct it there, or remove it"
    return _FLAGS


def _stray_word(given: Given) -> tuple[str, str] | None:
    """The first word that is neither an option nor the value of one, and its source."""
    for where, flags in given.items():
        for flag in parse(flags, "c++" if where == "extra_cflags" else "nvcc"):
            if not flag.name and not flag.value.startswith("-") and where != "extra_ldflags":
                return flag.value, where
    return None


def _where(options: Sequence[str], given: Given) -> str | None:
    """The source of the first of these options; tools omit a dash."""
    for option in options:
        name = option.lstrip("-").partition("=")[0]
        pattern = re.compile(rf"(?<![\w-])-{{0,2}}{re.escape(name)}(?![\w-])")
        for where, flags in given.items():
            if name and any(pattern.search(flag) for flag in flags):
                return where
    return None


def _general(message: Message) -> str | None:
    """A hint for a message of kjit's headers, of the linker, or about the compilers themselves, for any target."""
    text = message.text
    if (match := _EXPORT_TYPE.search(text)) is not None:
        return _of_export_type(match["way"], message)
    if "unsupported GNU version" in text or "unsupported clang version" in text:
        return "set CXX to an older compiler, which this CUDA takes"
    if text.startswith("the simulator cannot run"):
        return "write it in C++ for the simulator, under `#if KJIT_SIM`, and keep the existing code for the GPU"
    if (match := re.search(rf"\b{DYNAMIC}(?P<name>\w+)", text)) is not None:
        return (
            f"nvcc refuses this as well: dynamic shared memory has one type for a name (`{match['name']}`) in a unit; "
            "declare it as unsigned char and cast it, or give it a name for each type"
        )
    if re.match(r"undefined symbol\W+hwy::", text):
        return "include <kjit/highway.h> instead of Highway's headers: it has what these need from Highway's library"
    if any("static-global-template-stub" in note.text for note in message.notes):
        return (
            "add -static-global-template-stub=false to extra_cuda_cflags, or define the kernel in the unit that "
            "launches it: with cuda_wrappers all cuda_files are one unit"
        )
    if re.search(r"reference to '?_GLOBAL__N_", text) is not None:
        return (
            "nvcc mistakes the unnamed namespace of a kernel for that of a namespace named by `using namespace`: write "
            "that in the functions that need it, or put the kernel into a namespace with a name"
        )
    if (match := re.match(r"undefined symbol\W+(threadIdx|blockIdx|blockDim|gridDim|warpSize)$", text)) is not None:
        return (
            f"mark the function __global__, if it is a kernel, or __device__ (KJIT_DEVICE): host code has no {match[1]}"
        )
    if text.startswith("undefined symbol") and "__global__" in (message.code or ""):
        return "define the kernel in the unit that launches it: with cuda_wrappers all cuda_files are one unit"
    if text.startswith("undefined symbol") and not text.isascii():
        return "if it is a kernel, give it a name in ASCII letters: CUDA's compilers refuse others"
    if text.startswith("undefined symbol"):
        return (
            "define it in one of the op's sources, or name its library (and its folder, -L) in extra_ldflags; a "
            "function that no call reaches may stay undefined with -Wl,-z,undefs there"
        )
    if "cannot find -l" in text or "unable to find library" in text:
        return "correct its name, or add the folder that it is in to extra_ldflags (`-L/folder`)"
    if _LIBRARY_MISSING.match(text) is not None:
        return "correct the path in extra_ldflags"
    if "is defined twice" in text:
        if ": here, and by" in text:
            return "remove one of the two: each exports it"
        if text.startswith("export"):
            return "give one of them another name, or remove one of the sources from the module"
        return "put it into an unnamed namespace, or mark it inline or static"
    return None


def _of_export_type(way: str, message: Message) -> str:
    if way == "return":
        return _RETURNED
    at = next((note.text for note in message.notes if note.text.startswith("at <")), "")
    if re.search(r"argument<[^<>]*\*(?: const)?>$", at):
        return "take a tensor (TensorView x), and its data in the function: static_cast<float*>(x.data_ptr())"
    return _TAKEN


def _of_cuda_header(text: str, target: str) -> str | None:
    """A hint for a name that one of CUDA's headers declares."""
    match = _UNKNOWN_IN_CUDA.search(text)
    if match is None or target.startswith("cpu"):
        return None
    name = match["edg"] or match["clang"] or match["gnu"]
    header = next((header for names, header in _CUDA_HEADERS if names.fullmatch(name)), None)
    return None if header is None else f"include {header}, which declares {name}"


def _of_cpp(text: str) -> str | None:
    """A hint for a message about C++, in units for any target."""
    if re.search(r"No such file or directory|file not found$|cannot open source file", text):
        if re.search(r"(?<![\w/])(?:cuda/std|cub|thrust|nv|crt)/\w", text) is not None:
            return "install CUDA's headers with `pip install 'kjit[nvrtc]'`, or set KJIT_CUDA_HOME to a CUDA toolkit"
        return "check the name, or add the folder of the header to extra_include_paths"
    if (match := _OF_TVM_FFI.search(text)) is not None:
        name = match["gnu"] or match["edg"] or match["clang"] or match["named"] or match["typed"]
        if name in _TVM_FFI_NAMES:
            return f"include <kjit/tvm_ffi.h>, which declares tvm::ffi::{name}"
        close = difflib.get_close_matches(name, _TVM_FFI_NAMES, 1, 0.75)
        return f"did you mean tvm::ffi::{close[0]}?" if close else None
    if (match := _STANDARD.search(text)) is not None:
        name = match["gnu"] or match["edg"] or match["clang"]
        for header, names in _STANDARD_HEADERS.items():
            if name in names:
                return f"std::{name} is declared in <{header}>: `#include <{header}>`"
        return f"include the standard header that declares std::{name}"
    if any(words in text for words in _NOT_KNOWN) and (match := _DTYPE_LIKE.search(text)) is not None:
        return _dtype_hint(match["name"])
    return None


def _dtype_hint(name: str) -> str:
    meant = CPP_DTYPES.get(name.removesuffix("_t"))
    if meant is None:
        meant = next(iter(difflib.get_close_matches(name, CPP_DTYPES.values(), 1)), None)
    called = f"'{name}' is called {meant}" if meant else f"dtypes are called {', '.join(CPP_DTYPES.values())}"
    return f"{called} in kjit's headers (<kjit/dtype.h>)"


def _of_cuda(text: str, target: str) -> str | None:
    if "Universal character is not allowed in device entity name" in text:
        return "give it a name in ASCII letters"
    if _RSQRT.search(text) is not None:
        return "this C library has a function rsqrt, which CUDA's headers allow from CUDA 13.2 on: install that"
    if "calling a __host__ function" in text:
        return "mark the function __device__ (KJIT_DEVICE), or do it before the launch"
    if "host function call cannot be configured" in text:
        return "mark the function __global__: only kernels are launched with <<<...>>>"
    if "declaration is incompatible with previous" in text:
        return "an extern __shared__ array has one type in all kernels: make it unsigned char, and cast its address"
    if "too much shared data" in text:
        return "a block cannot have more shared memory: use a smaller tile"
    if "Insufficient registers" in text or "Register allocation failed" in text:
        return "allow more: fewer threads or blocks in __launch_bounds__, a larger -maxrregcount"
    if "not defined for the device" in text:
        return (
            "mark it __device__ (KJIT_DEVICE) and define it in a header that the kernel includes: no other source is "
            "linked"
        )
    if (match := re.search(r"requires \.target (sm_(\d+)\w*) or higher", text)) is not None:
        return (
            f"{target} lacks it: put it under `#if __CUDA_ARCH__ >= {match[2]}0`, with an alternative for older GPUs, "
            f"or build for {match[1]} or newer"
        )
    if "PTX that the compiler made" in text:
        return "correct the asm statement; the PTX ISA of CUDA's documentation has every instruction and its types"
    if "complete object type" in text or re.search(r"incomplete type .*(?:fp16|bf16|fp8|half|bfloat)", text):
        return (
            "kjit/device.cuh only declares half and 8-bit types: include <kjit/utils.cuh> for CUDA's, or define "
            "KJIT_LIGHT_TYPES before the first include for kjit's own, which compile faster"
        )
    if re.search(r'identifier "__\w+" is undefined', text):
        return f"CUDA has no such function for {target}; many exist for newer GPUs only"
    return None
