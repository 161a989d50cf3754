"""The compile of a CUDA unit in two halves: each is preprocessed, cut (halves.py) and compiled, by NVRTC
(device_compiler.py) or by the C++ compiler (host_compiler.py); kernels_object.py joins them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kjit.engine.compile import kind
from kjit.engine.compile.kind import ONLY_NVCC
from kjit.engine.compile.quoting import PLAIN_FOR_CXX
from kjit.engine.compile.steps import Build, Step, Unit
from kjit.engine.key.flags import parse
from kjit.engine.toolchain.build_flags import device_half_flags, host_half_flags, nvrtc_flags
from kjit.engine.toolchain.locations import kjit_include
from kjit.engine.toolchain.nvrtc import PROGRAMS, OnlyNvccError, command_of
from kjit.engine.toolchain.programs import find_launcher
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Spec

_ONLY_NVCC = re.compile(rf"^(?:.*: )?error: {ONLY_NVCC}(?P<reason>.*)$", re.MULTILINE)

_CUT = ".cut.ii"
"""The suffix of the files that halves.py makes."""


def steps_of(unit: Unit, build: Build) -> Iterator[Step]:
    """The commands that compile a CUDA unit in two halves, in parallel: the C++ compiler for the host, NVRTC for the
    device.

    Raises:
        OnlyNvccError: only nvcc has one of the flags.
    """
    spec, toolchain, links, launcher, reads = build
    nvrtc = toolchain.nvrtc
    assert nvrtc is not None
    compiler = str(toolchain.cxx.path)
    # Where nvcc is the alternative, a unit of another kind is refused.
    folders = os.pathsep.join(_own_folders(toolchain)) if toolchain.chooses else ""

    def preprocessed(plain: str, flags: tuple[str, ...]) -> Step:
        preprocess = (compiler, *flags, "-x", "c++")
        making = ("-E", "-MD", "-MF", f"{plain}.d", "-MT", plain, unit.path, "-o", plain)
        return Step(plain, (*preprocess, *making), generated=unit.generated, reads=reads)

    cubins = []
    for arch in toolchain.target.archs:
        plain = f"{unit.name}.sm_{arch.digits}.ii"
        yield preprocessed(plain, tuple(links.flags(device_half_flags(toolchain, spec, arch), PLAIN_FOR_CXX)))
        cubin = f"{unit.name}.sm_{arch.digits}.cubin"
        call = (*command_of("device_compiler"), str(nvrtc.library), str(nvrtc.builtins), plain, cubin, folders)
        yield Step(cubin, (*call, *nvrtc_flags(toolchain, spec, arch)), (plain,), reads=PROGRAMS)
        cubins.append(cubin)
    plain, cut, host = f"{unit.name}.ii", f"{unit.name}{_CUT}", f"{unit.name}.host.o"
    flags = tuple(links.flags(host_half_flags(toolchain, spec), PLAIN_FOR_CXX))
    yield preprocessed(plain, flags)
    # Headers that -include names are in the preprocessed text already.
    flags = tuple(word for flag in parse(flags) if flag.meaning != "header" for word in flag.words())
    compile_cut = (*launcher, compiler, *flags, "-x", "c++-cpp-output", "-c", cut, "-o", host)
    call = (*command_of("host_compiler"), plain, cut, host, folders, *compile_cut)
    yield Step(host, call, (plain,), reads=PROGRAMS)
    table, output = f"{unit.name}.kernels.s", f"{unit.name}.kernels.o"
    has_others = not spec.cuda_wrappers and len(spec.cuda_files) > 1
    call = (*command_of("kernels_object"), compiler, host, table, unit.name if has_others else "", *cubins)
    yield Step(table, call, (host, *cubins), reads=PROGRAMS)
    yield Step(output, (compiler, "-c", table, "-o", output), (table, *cubins))


def for_ptx(step: Step) -> Step:
    """The command that makes PTX, from the one that makes a cubin."""
    output = f"{step.output.removesuffix('cubin')}ptx"
    words = {step.output: output}
    arguments = (
        re.sub(r"^--gpu-architecture=sm_", "--gpu-architecture=compute_", words.get(word, word))
        for word in step.arguments
    )
    return replace(step, output=output, arguments=tuple(arguments))


def why_nvcc(spec: Spec, toolchain: Toolchain) -> str:
    """Why nvcc compiles these sources, as far as that is known before they are preprocessed, as the end of a sentence;
    empty if NVRTC may compile them."""
    if not toolchain.chooses:
        return ""
    if (launcher := find_launcher()) is not None:
        return f"{launcher.name} can share objects of nvcc, but not of NVRTC"
    name = kind.foreign_in(spec.cuda_files, _own_folders(toolchain), spec.extra_include_paths)
    return kind.FOREIGN.format(name) if name else ""


def refuse_others(logs: Iterable[str]) -> None:
    """Raise an error if kjit's programs have refused a unit, by the output of the commands.

    Raises:
        OnlyNvccError: they have.
    """
    for found in filter(None, map(_ONLY_NVCC.search, logs)):
        raise OnlyNvccError(found["reason"])


def _own_folders(toolchain: Toolchain) -> list[str]:
    """The folders of kjit's, tvm-ffi's C, and CUDA's headers."""
    return [f"{folder}/" for folder in (kjit_include(), *toolchain.gpu_include_dirs) if str(folder) != "/usr/include"]
