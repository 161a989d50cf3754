"""Checks of flags and exports before a compile, for mistakes that compilers report badly or not at all.

Rejected are flags that make a compiler do something else than compile a module (`-E`, `-o`), that only some targets of
an op support (`-rdc=true`: the simulator does), or that contradict the target (`-arch` of another GPU); strings with
several flags; and exported kernels, whose calls would launch nothing.

key/flags.py parses flags; here is one table per tool, each entry with a remedy.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kjit import env
from kjit.engine.compile.nvcc_options import unknown_to_nvcc
from kjit.engine.compile.quoting import refuse_misread
from kjit.engine.diagnostics.printed import shown_path
from kjit.engine.key.flags import Dialect, Flag, expand, files_of_options, parse, words_of_file
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import UsageError
from kjit.runtime.manifest import NVCC_FLAGS
from kjit.spec import CudaArch, Spec, Target, Variant


class _Refusal(NamedTuple):
    """The reason for rejecting a flag, as the end of a sentence, and the remedy."""

    reason: str
    instead: str


_NO_OBJECT = _Refusal(
    "makes the compiler stop before it writes an object, or write something else",
    "remove it; `kjit build --verbose` shows the commands, to run one by hand with this flag",
)
_NO_LIBRARY = _Refusal("makes something other than the module's library", "remove it")
_OUTPUT = _Refusal("names an output file", "remove it: kjit chooses the name")
_DEVICE_LINK = _Refusal(
    "requests device linking, which kjit does not do",
    "remove it, and define device functions in a header that the kernels include; with cuda_wrappers, all cuda_files "
    "are one unit and see each other's functions",
)

_OF_CXX: Mapping[str, _Refusal] = {
    **dict.fromkeys(
        (
            *("-E", "-S", "-M", "-MM", "-fsyntax-only", "-###", "--preprocess", "--assemble", "--dependencies"),
            *("--user-dependencies", "-emit-llvm", "-emit-ast", "--analyze", "--precompile", "--help", "--version"),
            *("-dumpversion", "-dumpmachine"),
        ),
        _NO_OBJECT,
    ),
    **dict.fromkeys(("-o", "--output"), _OUTPUT),
}
# nvcc accepts most names with one dash or two.
_OF_NVCC: Mapping[str, _Refusal] = {
    **dict.fromkeys(
        (
            *("E", "M", "MM", "preprocess", "generate-dependencies", "generate-nonsystem-dependencies", "ptx", "cubin"),
            *(
                "fatbin",
                "cuda",
                "optix-ir",
                "ltoir",
                "tilebc",
                "tilecubin",
                "tilefatbin",
                "lib",
                "link",
                "run",
                "dryrun",
                "clean-targets",
                "clean",
                "help",
                "h",
            ),
            *("version", "V", "list-gpu-code", "list-gpu-arch"),
        ),
        _NO_OBJECT,
    ),
    **dict.fromkeys(("o", "output-file"), _OUTPUT),
    **dict.fromkeys(
        (
            *("rdc", "relocatable-device-code", "dc", "device-c", "dw", "device-w", "dlink", "device-link", "dlto"),
            *("dlink-time-opt", "lto", "ewp", "extensible-whole-program", "gen-opt-lto"),
        ),
        _DEVICE_LINK,
    ),
}
_OF_LINK: Mapping[str, _Refusal] = {
    **dict.fromkeys(("-c", "-E", "-S", "-M", "-MM", "-fsyntax-only", "-###", "--preprocess", "--help"), _NO_LIBRARY),
    **dict.fromkeys(("-r", "-static", "-static-pie", "-pie", "--version"), _NO_LIBRARY),
    **dict.fromkeys(("-o", "--output"), _OUTPUT),
}
_OF_LINKER: Mapping[str, _Refusal] = {
    **dict.fromkeys(("-r", "-i", "--relocatable", "-pie", "--pie", "--version", "--help"), _NO_LIBRARY),
    **dict.fromkeys(("-o", "--output"), _OUTPUT),
}

_ARCH_NAMES = ("gencode", "generate-code", "arch", "gpu-architecture", "code", "gpu-code")
_ARCH = re.compile(r"(?P<kind>sm|compute|lto)_(?P<digits>\d+[af]?)")
# Flags whose values may have spaces, and commas that do not separate words.
_HOLDS_TEXT = re.compile(r"-{1,2}(?:[DUIL]|isystem|iquote|idirafter|include|imacros|W[lap],|X|f[\w-]+=|[\w-]+=)|[^-]")
_BESIDE_ITS_VALUE = re.compile(r"-[\w-]+")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\([^()]*\)")
_NEXT_OPTION = re.compile(r"\s(?=--?[A-Za-z][\w=+-]*)")


def refuse_unfit(variant: Variant, toolchain: Toolchain) -> None:
    """Reject flags and exports of a variant that cannot work.

    Raises:
        UsageError: one cannot work.
    """
    spec, target = variant.spec, variant.target
    if spec.cpp_files or spec.cpp_wrappers:
        _refuse_flags(spec.extra_cflags, "extra_cflags", "c++", _OF_CXX)
    if "cuda" in spec.kinds:
        _refuse_flags(spec.extra_cuda_cflags, "extra_cuda_cflags", "nvcc", _OF_NVCC)
        _refuse_for_nvcc(spec.extra_cuda_cflags, "extra_cuda_cflags", target)
        environment = toolchain.environment()
        for name in NVCC_FLAGS:
            words = environment.get(name, "").split()
            _refuse_options(words, name, "nvcc", _OF_NVCC)
            _refuse_for_nvcc(words, name, target, are_escaped=False)
        if target.is_simulated or (toolchain.nvrtc is not None and not toolchain.has_nvcc):
            _refuse_unknown(spec.extra_cuda_cflags, "extra_cuda_cflags")
        _refuse_kernels(spec)
    _refuse_flags(spec.extra_ldflags, "extra_ldflags", "c++", _OF_LINK)


def _refuse_flags(words: Sequence[str], where: str, dialect: Dialect, table: Mapping[str, _Refusal]) -> None:
    for flag in parse(words, dialect):
        if flag.between is not None:  # a flag and its value in one string
            _refuse_several(flag.words()[0], where)
    _refuse_options(words, where, dialect, table)


def _refuse_several(word: str, where: str) -> None:
    """Reject a string that is not exactly one flag."""
    if not word.strip():
        raise UsageError(f"{where} has an empty flag.", hint="remove it")
    if "\n" in word:
        raise UsageError(
            f"the flag {word!r} in {where} contains a line break.", hint="put the definition into a header"
        )
    first, *rest = word.split(None, 1)
    if not rest and word == first:
        return
    outside = _QUOTED.sub(lambda match: "_" * len(match[0]), word)
    pieces = (part.strip() for part in _split_at(word, [match.start() for match in _NEXT_OPTION.finditer(outside)]))
    parts = [piece for piece in pieces if piece]
    if len(parts) == 1 and _HOLDS_TEXT.match(word) and _BESIDE_ITS_VALUE.fullmatch(first) is None:
        return
    if word.startswith(("-Xcompiler", "--compiler-options")) and len(first) < len(word) and "=" in first:
        return  # nvcc accepts spaces in this list
    words = [
        each
        for part in parts
        for each in (part.split(None, 1) if _BESIDE_ITS_VALUE.fullmatch(part.split()[0]) else [part])
    ]
    written = ", ".join(f'"{each}"' for each in words)
    raise UsageError(
        f"'{word}' in {where} is not one flag, and a compiler takes each string as one.",
        hint=f"write a string for each word: [{written}]",
    )


def _split_at(text: str, places: Sequence[int]) -> list[str]:
    bounds = [0, *places, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


def _refuse_options(words: Sequence[str], where: str, dialect: Dialect, table: Mapping[str, _Refusal]) -> None:
    for flag, whose in expand(words, dialect):
        refusal = _of_linker(flag) if table is _OF_LINK else None
        if refusal is None and whose == dialect:
            refusal = table.get(_option(flag, whose))
        elif refusal is None and table is _OF_NVCC:
            refusal = _OF_CXX.get(_option(flag, whose))
        if refusal is not None and not _is_off(flag):
            text = " ".join(flag.words())
            raise UsageError(f"'{text}' in {where} {refusal.reason}.", hint=refusal.instead)


def _option(flag: Flag, dialect: Dialect) -> str:
    """The name of an option, as in the tables."""
    name = flag.name or flag.value.partition("=")[0]
    if dialect == "nvcc":
        return name.lstrip("-") if name.startswith("-") else ""
    # `-oX` is `-o X`.
    return "-o" if name.startswith("-o") and name != "-openmp" else name


def _of_linker(flag: Flag) -> _Refusal | None:
    """The refusal of a word that is passed to the linker by `-Wl,` or `-Xlinker`; None if it is accepted."""
    if flag.name == "-Xlinker":
        words = [flag.value]
    elif not flag.name and flag.value.startswith("-Wl,"):
        words = flag.value.split(",")[1:]
    else:
        return None
    for word in words:
        name = word.partition("=")[0]
        name = "-o" if re.match(r"-o\S", name) and not name.startswith("-omagic") else name
        if name in _OF_LINKER:
            return _OF_LINKER[name]
    return None


def _is_off(flag: Flag) -> bool:
    """Whether a flag turns something off: `-rdc=false`."""
    return (flag.value if flag.name else flag.value.partition("=")[2]) == "false"


def _refuse_for_nvcc(words: Sequence[str], where: str, target: Target, *, are_escaped: bool = True) -> None:
    refuse_misread(words, where, are_escaped=are_escaped)
    for path in files_of_options(words, "nvcc"):
        refuse_misread(words_of_file(path), f"'{path}'", are_escaped=False)
    for flag, dialect in expand(words, "nvcc"):
        if dialect != "nvcc":
            continue
        if flag.name.lstrip("-") in _ARCH_NAMES:
            _refuse_arch(flag, where, target)
        elif flag.name in ("-std", "--std") and flag.value.startswith("gnu"):
            raise UsageError(
                f"'{' '.join(flag.words())}' in {where} is a GNU dialect, which nvcc does not accept.",
                hint="remove it: kjit compiles as C++20",
            )
        elif flag.name in ("-ccbin", "--compiler-bindir") and _is_missing(flag.value):
            raise UsageError(
                f"nvcc's host compiler '{flag.value}' (-ccbin in {where}) does not exist.",
                hint="take the flag out: kjit gives nvcc the compiler that CXX names",
            )


def _refuse_unknown(words: Sequence[str], where: str) -> None:
    """Reject options that nvcc does not have."""
    for word, meant in unknown_to_nvcc(words):
        raise UsageError(
            f"nvcc has no option '{word}' ({where})" + (f"; did you mean '{meant}'?" if meant else "."),
            hint="correct it there, or remove it",
        )


def _is_missing(program: str) -> bool:
    return shutil.which(program) is None and not os.path.isdir(program)


def _refuse_arch(flag: Flag, where: str, target: Target) -> None:
    """Reject architectures other than the target's."""
    text = " ".join(flag.words())
    named = [match["digits"] for match in _ARCH.finditer(flag.value)]
    if any(match["kind"] == "lto" for match in _ARCH.finditer(flag.value)):
        raise UsageError(f"'{text}' in {where} {_DEVICE_LINK.reason}.", hint=_DEVICE_LINK.instead)
    if target.is_simulated and named:
        return  # rejected in a build for a GPU
    others = [digits for digits in named if digits not in {arch.digits for arch in target.archs}]
    if others or not named:
        listed = ",".join(dict.fromkeys(str(CudaArch.parse(digits)) for digits in others))
        raise UsageError(
            f"'{text}' in {where} names another architecture than the target, {target}.",
            hint=f"remove it; `kjit build --arch {listed}` and {env.CUDA_ARCH_LIST}={listed} select the architectures"
            if others
            else f"remove it: without `--arch` and {env.CUDA_ARCH_LIST}, kjit builds for the GPUs of this machine",
        )


def _refuse_kernels(spec: Spec) -> None:
    """Reject exports that are kernels in one of the op's own files: a call would not launch them."""
    for export, symbol in spec.cuda_wrappers:
        named = re.fullmatch(r"(?:::)?(?:\w+::)*(?P<name>\w+)(?P<arguments><.*>)?", symbol)
        if named is None:
            continue
        for path in spec.cuda_files:
            parameters = _kernel_parameters(path, named["name"])
            if parameters is not None:
                launcher = _launcher(export, symbol, parameters)
                raise UsageError(
                    f"export '{export}' is a kernel ('{symbol}' is __global__ in {shown_path(path)}), and Python calls "
                    "host functions.",
                    hint=f"write a function that launches it, and export that one:\n{launcher}",
                )


def _kernel_parameters(path: str, name: str) -> str | None:
    """The parameters of the kernel `name` in a file; None if the file has no such kernel."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # the compiler reports it
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    found: list[str] = []
    for match in re.finditer(rf"\b{name}\s*\((?P<parameters>[^(){{}};]*)\)\s*\{{", text):
        head = re.split(r"[;{}]", text[: match.start()])[-1]
        if "__global__" not in head:
            return None
        found.append(match["parameters"])
    return found[0] if found else None


def _launcher(export: str, symbol: str, parameters: str) -> str:
    """A function that launches a kernel, with tensors for its pointers."""
    taken, passed = [], []
    first = ""
    for parameter in filter(None, (each.strip() for each in parameters.split(","))):
        name = re.findall(r"\w+", parameter)[-1]
        if "*" in parameter:
            first = first or name
            taken.append(f"kjit::TensorView {name}")
            passed.append(f"{name}.data_ptr()")
        else:
            taken.append(parameter)
            passed.append(name)
    size, device = (f"{first}.numel()", f"{first}.device()") if first else ("1", "DLDevice{kDLCUDA, 0}")
    arguments = "".join(f", {each}" for each in passed)
    return (
        f"  void {export}({', '.join(taken)}) {{\n"
        f"    using namespace kjit::host;\n"
        f"    LaunchKernel(div_ceil({size}, 256), 256, {device})({symbol}{arguments});\n"
        f"  }}"
    )
