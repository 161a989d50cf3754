"""Checks of flags and exports before a compile, for mistakes that compilers report badly or not at all.

Rejected are flags that make a compiler do something else than compile a module (`-E`, `-o`), that only some targets of
an op support (`-rdc=true`: the simulator does), that contradict the target (`-arch` of another GPU), or that nvcc's
shell would change; strings with several flags; and exported kernels, whose calls would launch nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kjit import env
from kjit.cpp_functions import read_functions
from kjit.engine.diagnostics.printed import shown_path
from kjit.engine.key.flags import files_of_options
from kjit.engine.toolchain.options import Dialect, Flag, Refused, expand, is_off, parse, words_of_file
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import UsageError
from kjit.spec import SIDES, CudaArch, Spec, Target, Variant

_REFUSED: Mapping[Refused, tuple[str, str]] = {
    "output": (
        "makes something else than the module",
        "remove it; `kjit build --verbose` shows the commands, to run one by hand with this flag",
    ),
    **dict.fromkeys(("no link", "no library"), ("makes something else than a shared library", "remove it")),
    "file": ("names an output file", "remove it: kjit chooses the name"),
    "device link": (
        "requests device linking, which kjit does not do",
        "remove it, and define device functions in a header that the kernels include",
    ),
}
"""Why a flag is rejected, as the end of a sentence, and the remedy."""

_ARCH = re.compile(r"(?P<kind>sm|compute|lto)_(?P<digits>\d+[af]?)")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\([^()]*\)")
# What nvcc or a shell that it starts would interpret: in macros that kjit does not escape, in lists of flags for nvcc's
# parts, and in other flags.
_IN_MACROS = re.compile(r"[$`\\,]")
_IN_LISTS = re.compile(r"""[$`;&|<>()\n]|(?:^|[\s,])#|-[DU][^,\s]*['"\\]""")
_IN_OTHERS = re.compile(r"[$`'\"\\]")


def refuse_unfit(variant: Variant, toolchain: Toolchain) -> None:
    """Reject flags and exports of a variant that cannot work.

    Raises:
        UsageError: one cannot work.
    """
    spec, target = variant.spec, variant.target
    for side in spec.kinds:
        compiler = toolchain.compilers[side]
        for where, flags in compiler.given(spec, toolchain.environment()).items():
            _refuse_flags(flags, where, compiler.dialect, ("output", "file", "device link"))
            if compiler.takes_flags_of_nvcc:
                _refuse_for_nvcc(flags, where, target)
                refuse_misread(flags, where, are_escaped=where == SIDES[side][2])
                for path in files_of_options(flags, compiler.dialect):
                    refuse_misread(words_of_file(path), f"'{path}'", are_escaped=False)
    _refuse_kernels(spec)
    _refuse_flags(spec.extra_ldflags, "extra_ldflags", "c++", ("output", "file", "no link", "no library"))


def _refuse_flags(words: Sequence[str], where: str, dialect: Dialect, refused: Sequence[Refused]) -> None:
    for flag in parse(words, dialect):
        if flag.between is not None:  # a flag and its value in one string
            _refuse_several(flag, where)
    for flag, whose in expand(words, dialect):
        reasons = [reason for reason in (flag.option(whose).refused, *_of_linker(flag)) if reason in refused]
        if any(reasons) and not is_off(flag):
            why, instead = _REFUSED[reasons[0]]
            raise UsageError(f"'{' '.join(flag.words())}' in {where} {why}.", hint=instead)


def _of_linker(flag: Flag) -> list[Refused]:
    """The reasons to reject the words that a flag passes to the linker."""
    words = flag.value.split(",")[1:] if flag.value.startswith("-Wl,") else []
    words = [flag.value] if flag.name == "-Xlinker" else words
    # A value in the next word is another word for the linker.
    reasons = (each.option("c++").refused for word in words for each in parse([word]))
    return [reason for reason in reasons if reason in ("file", "no library")]


def _refuse_several(flag: Flag, where: str) -> None:
    """Reject a string that is not exactly one flag."""
    (word,) = flag.words()
    if not word.strip():
        raise UsageError(f"{where} has an empty flag.", hint="remove it")
    if "\n" in word:
        raise UsageError(
            f"the flag {word!r} in {where} contains a line break.", hint="put the definition into a header"
        )
    outside = _QUOTED.sub(lambda match: "_" * len(match[0]), word)
    is_option = word.startswith("-")
    has_another = is_option and flag.meaning != "list" and re.search(r"\s--?[A-Za-z]", outside) is not None
    if word == word.strip() and not has_another and not (is_option and re.match(r"-[\w-]+\s", word)):
        return  # a value may have spaces
    written = ", ".join(f'"{word[each.start() : each.end()]}"' for each in re.finditer(r"\S+", outside))
    raise UsageError(
        f"'{word}' in {where} is not one flag, and a compiler takes each string as one.",
        hint=f"write a string for each word: [{written}]",
    )


def _refuse_for_nvcc(words: Sequence[str], where: str, target: Target) -> None:
    for flag, dialect in expand(words, "nvcc"):
        if dialect != "nvcc":
            continue
        if flag.meaning == "architecture":
            _refuse_arch(flag, where, target)
        elif flag.meaning == "standard" and flag.value.startswith("gnu"):
            raise UsageError(
                f"'{' '.join(flag.words())}' in {where} is a GNU dialect, which nvcc does not accept.",
                hint="remove it: kjit compiles as C++20",
            )
        elif flag.meaning == "host compiler" and shutil.which(flag.value) is None and not os.path.isdir(flag.value):
            raise UsageError(
                f"nvcc's host compiler '{flag.value}' (-ccbin in {where}) does not exist.",
                hint="take the flag out: kjit gives nvcc the compiler that CXX names",
            )


def refuse_misread(words: Sequence[str], where: str, *, are_escaped: bool = True) -> None:
    """Reject flags that nvcc's parts would not get unchanged.

    Args:
        where: the field, file or variable with these flags.
        are_escaped: whether kjit escapes their macros (compile/quoting.py), which it cannot in a file or a variable.

    Raises:
        UsageError: a shell would expand or change part of a flag.
    """
    for flag in parse(words, "nvcc"):
        is_linked = flag.meaning in ("headers", "header", "libraries", "options") and os.path.isabs(flag.value)
        if is_linked or (flag.meaning == "macro" and are_escaped):
            continue
        is_list = flag.meaning in ("list", "for a part")
        pattern = _IN_MACROS if flag.meaning == "macro" else _IN_LISTS if is_list else _IN_OTHERS
        if (match := pattern.search(flag.value)) is not None:
            raise UsageError(
                f"'{' '.join(flag.words())}' in {where} has a {match[0].strip(' ,') or match[0]!r}, which nvcc's shell "
                "would interpret.",
                hint="define the macro with -D in extra_cuda_cflags, which arrives unchanged, or in a header"
                if is_list or flag.meaning == "macro"
                else "use a name without it",
            )


def _refuse_arch(flag: Flag, where: str, target: Target) -> None:
    """Reject architectures other than the target's."""
    text = " ".join(flag.words())
    named = [match["digits"] for match in _ARCH.finditer(flag.value)]
    if "lto_" in flag.value:
        why, instead = _REFUSED["device link"]
        raise UsageError(f"'{text}' in {where} {why}.", hint=instead)
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
        named = re.fullmatch(r"(?:::)?(?:\w+::)*(?P<name>\w+)(?:<.*>)?", symbol)
        for path in spec.cuda_files if named is not None else ():
            if named is not None and _is_kernel(path, named["name"]):
                raise UsageError(
                    f"export '{export}' is a kernel ('{symbol}' is __global__ in {shown_path(path)}), and Python calls "
                    "host functions.",
                    hint="export a function that launches it; "
                    f"`kjit new NAME --from {shown_path(path)} --function {named['name']}` writes one",
                )


def _is_kernel(path: str, name: str) -> bool:
    """Whether all functions of this name in a file are kernels, and there is one."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # the compiler reports it
    if re.search(rf"__global__[^;{{}}]*\b{name}\s*\(", text) is None:
        return False  # reading functions takes longer
    found = [function.is_kernel for function in read_functions(text) if function.name == name]
    return bool(found) and all(found)
