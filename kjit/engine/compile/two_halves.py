"""The compile of a CUDA unit in two halves, and the sources that are left to nvcc.

Each half is preprocessed, cut (halves.py) and compiled, by NVRTC (device_compiler.py) or by the C++ compiler
(host_compiler.py), and then they are joined (kernels_object.py). What nvcc had to compile once because NVRTC did not
is remembered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import kjit
from kjit.engine.cache.missing import asking
from kjit.engine.compile import device_compiler, halves, host_compiler, kernels_object
from kjit.engine.compile.libraries import files_named
from kjit.engine.compile.quoting import PLAIN_FOR_CXX, Links
from kjit.engine.compile.steps import Step, Unit
from kjit.engine.key.flags import parse
from kjit.engine.key.key import digest
from kjit.engine.toolchain.cuda import INSTALL_CUDA
from kjit.engine.toolchain.memo import open_memo
from kjit.engine.toolchain.nvrtc import Nvrtc, OnlyNvccError, command_of
from kjit.engine.toolchain.toolchain import Toolchain, kjit_include
from kjit.errors import CompileError
from kjit.spec import Spec

PROGRAMS = tuple(
    os.path.realpath(each.__file__ or "") for each in (device_compiler, host_compiler, kernels_object, halves)
)
"""What compiles the halves of a CUDA unit, and joins them."""

_CUT = ".cut.ii"
"""How the names end of what halves.py makes."""

# Kernels in the host half, as g++ sees them; the place where it has found them is above.
_UNDEFINED_KERNEL = re.compile(
    r"(?:^In file included from .*\n(?: +from .*\n)*)?^.*warning: '[^\n]*' used but never defined\n(?:^ .*\n)*",
    re.MULTILINE,
)


def steps_of(unit: Unit, spec: Spec, toolchain: Toolchain, links: Links, launcher: tuple[str, ...]) -> Iterator[Step]:
    """A CUDA unit in two halves: the host's for the C++ compiler, the device's for NVRTC, side by side.

    Raises:
        OnlyNvccError: a flag is for nvcc alone, or the C++ compiler is not g++.
    """
    nvrtc = toolchain.nvrtc
    assert nvrtc is not None
    if toolchain.cxx.family != "gcc":
        raise OnlyNvccError(f"the host half is for g++, and the C++ compiler is {toolchain.cxx.label}")
    reads = files_named([*spec.extra_cuda_cflags, *toolchain.flags_from_environment()], "nvcc")
    compiler = str(toolchain.cxx.path)

    def preprocessed(plain: str, flags: tuple[str, ...]) -> Step:
        preprocess = (compiler, *flags, "-x", "c++")
        making = ("-E", "-MD", "-MF", f"{plain}.d", "-MT", plain, unit.path, "-o", plain)
        ask = (*preprocess, *asking("c++", plain), unit.path)
        return Step(plain, (*preprocess, *making), generated=unit.generated, reads=reads, asking=ask)

    cubins = []
    for arch in toolchain.target.archs:
        plain = f"{unit.name}.sm_{arch.digits}.ii"
        flags = tuple(links.flags(toolchain.device_half_flags(spec, arch), PLAIN_FOR_CXX))
        yield preprocessed(plain, flags)
        cubin = f"{unit.name}.sm_{arch.digits}.cubin"
        call = (*command_of("device_compiler"), str(nvrtc.library), str(nvrtc.builtins), plain, cubin)
        yield Step(
            cubin, (*call, *toolchain.nvrtc_options(spec, arch)), (plain,), reads=PROGRAMS, program="device_compiler"
        )
        cubins.append(cubin)
    plain, cut, host = f"{unit.name}.ii", f"{unit.name}{_CUT}", f"{unit.name}.o"
    flags = tuple(links.flags(toolchain.host_half_flags(spec), PLAIN_FOR_CXX))
    preprocess = preprocessed(plain, flags)
    yield preprocess
    # What -include names has been read, and would be once more.
    flags = tuple(word for flag in parse(flags) if flag.meaning != "header" for word in flag.words())
    compile_cut = (*launcher, compiler, *flags, "-x", "c++-cpp-output", "-c", cut, "-o", host)
    call = (*command_of("host_compiler"), plain, cut, host, preprocess.command, *compile_cut)
    yield Step(host, call, (plain,), program="host_compiler")
    table, output = f"{unit.name}.kernels.s", f"{unit.name}.kernels.o"
    call = (*command_of("kernels_object"), host, table, *cubins)
    yield Step(table, call, (host, *cubins), program="kernels_object")
    yield Step(output, (compiler, "-c", table, "-o", output), (table, *cubins))


def said(step: Step, log: str) -> str:
    """What a command has said to the user."""
    return _UNDEFINED_KERNEL.sub("", log) if "c++-cpp-output" in step.arguments else log


def why_nvcc(spec: Spec, nvrtc: Nvrtc) -> str | None:
    """Why nvcc had to compile these sources before; None where it had not."""
    known = open_memo().known(nvrtc.stamps[0], _question(spec))
    return known[0] if known else None


def remember_nvcc(spec: Spec, nvrtc: Nvrtc, reason: str) -> None:
    """Note why nvcc had to compile these sources."""
    open_memo().learn(nvrtc.stamps[0], _question(spec), [reason])


def _question(spec: Spec) -> str:
    headers = kjit_include() / "kjit_rtc"
    read: list[str | Path] = [*PROGRAMS, headers / "device.h", headers / "host.h", *spec.cuda_files]
    parts = [kjit.__version__, *spec.extra_cuda_cflags, *(digest(Path(path).read_bytes()) for path in read)]
    return f"only nvcc compiles {digest(chr(0).join(parts).encode(errors='surrogateescape'))}"


def first_error(error: CompileError) -> str:
    """The first thing that the compilers said, as the end of a sentence."""
    first = next((line for line in error.log.splitlines() if re.search(r"\b(?:error|undefined)\b", line)), "")
    return f"NVRTC or the link with it ends so: {first.strip() or 'without a word'}"


def without_nvcc(error: CompileError, spec: Spec) -> CompileError:
    """`error` with what else may help where there is no nvcc: not where it is about one of the sources."""
    if error.hint is not None or any(os.path.basename(path) in error.message for path in spec.cuda_files):
        return error
    hint = f"if nvcc compiles it, {INSTALL_CUDA}"
    return CompileError(error.message, log=error.log, command=error.command, hint=hint)
