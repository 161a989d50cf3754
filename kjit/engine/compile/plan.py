"""The plan of a build: its commands and the units that they compile, from a spec and a toolchain.

A unit for the simulator takes three commands: the preprocessor, kjit's rewriter (rewrite/), the compiler. With NVRTC,
each half of a CUDA unit also takes three (two_halves.py).

Commands and units are the same in every build, so that a launcher (`KJIT_COMPILER_LAUNCHER`, such as sccache) can share
objects within a team: paths are relative to the build's folder, and generated units depend on the spec only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kjit.engine.cache.folders import is_unclaimed
from kjit.engine.cache.staging import temporary_root
from kjit.engine.compile import two_halves
from kjit.engine.compile.libraries import files_named, linked_by, resolve
from kjit.engine.compile.quoting import PLAIN_FOR_CXX, PLAIN_FOR_NVCC, Links
from kjit.engine.compile.steps import Step, Unit
from kjit.engine.compile.support import support_objects
from kjit.engine.key.flags import parse
from kjit.engine.toolchain.build_flags import EXPORTS_SCRIPT, cxx_flags, link_flags, nvcc_flags, sim_flags
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import digest
from kjit.spec import Export, Spec

_EXPORTS = "{ global: __tvm_ffi_*; local: *; };\n"

# CUDA's types, by kjit's names and CUDA's, and the headers that define them; each includes the following ones. They
# take more than half the compile time of an empty kernel. So kjit's headers only declare these types, and a unit
# includes the header for the types named in its exports: after its sources, which may select kjit's own types with
# KJIT_LIGHT_TYPES.
_CUDA_TYPE_HEADERS = (
    (re.compile(r"\b(fp8\w*_t|__nv_fp8\w*)\b"), "cuda_fp8.h"),
    (re.compile(r"\b(bf16(x2)?_t|__nv_bfloat16\w*|nv_bfloat16\w*)\b"), "cuda_bf16.h"),
    (re.compile(r"\b(fp16(x2)?_t|__half2?|half2?)\b"), "cuda_fp16.h"),
)


def plan(spec: Spec, toolchain: Toolchain, links: Links, launcher: tuple[str, ...]) -> list[Step]:
    """The commands of a build, the link last.

    Args:
        links: plain names for paths that a compiler would misread.
        launcher: the words before each command that makes an object.

    Raises:
        OnlyNvccError: the toolchain's NVRTC cannot compile the units.
    """
    steps: list[Step] = []
    if toolchain.target.is_simulated and "cuda" in spec.kinds:
        compiler = (str(toolchain.cxx.path), *links.flags(sim_flags(toolchain, spec), PLAIN_FOR_CXX))
        for unit in _units(spec, "cuda", "cu", spec.cuda_files, spec.cuda_wrappers, links, PLAIN_FOR_CXX):
            steps += _simulated_steps(unit, compiler, launcher, files_named(spec.extra_cuda_cflags, "nvcc"))
    elif toolchain.nvrtc is not None and "cuda" in spec.kinds:
        for unit in _units(spec, "cuda", "cu", spec.cuda_files, spec.cuda_wrappers, links, PLAIN_FOR_CXX):
            steps += two_halves.steps_of(unit, spec, toolchain, links, launcher)
    elif "cuda" in spec.kinds:
        if toolchain.cuda is None:
            raise ValueError(f"'{spec.name}' has CUDA sources, and the toolchain is for {toolchain.target}")
        # nvcc derives the paths of its parts from its own path, so the folder of the toolkit must be plain too.
        nvcc_path = toolchain.cuda.nvcc.path
        nvcc = os.path.join(links.folder(str(nvcc_path.parent.parent), PLAIN_FOR_NVCC), *nvcc_path.parts[-2:])
        flags = (*links.flags(nvcc_flags(toolchain, spec), PLAIN_FOR_NVCC, "nvcc"), "-x", "cu")
        reads = files_named([*spec.extra_cuda_cflags, *toolchain.flags_from_environment()], "nvcc")
        for unit in _units(spec, "cuda", "cu", spec.cuda_files, spec.cuda_wrappers, links, PLAIN_FOR_NVCC):
            if launcher:
                unit = _with_lasting_path(unit)
            steps.append(_compile_step(unit, launcher, (nvcc, *flags), reads))
    if spec.cpp_files or spec.cpp_wrappers:
        flags = (*links.flags(cxx_flags(toolchain, spec), PLAIN_FOR_CXX), "-x", "c++")
        for unit in _units(spec, "cpp", "cpp", spec.cpp_files, spec.cpp_wrappers, links, PLAIN_FOR_CXX):
            compiler = (str(toolchain.cxx.path), *flags)
            steps.append(_compile_step(unit, launcher, compiler, files_named(spec.extra_cflags)))
    for support in support_objects(toolchain):
        make = ("-MD", "-MF", f"{support.output}.d", "-c", str(support.source), "-o", support.output)
        steps.append(Step(support.output, (*launcher, *support.arguments, *make), support=support))
    objects = tuple(step.output for step in steps if step.output.endswith(".o"))
    library = f"{spec.name}.so"
    link = (str(toolchain.cxx.path), "-o", library, *objects, *resolve(link_flags(toolchain, spec), toolchain))
    reads = linked_by(spec.extra_ldflags, toolchain)
    return [*steps, Step(library, link, objects, ((EXPORTS_SCRIPT, _EXPORTS),), reads=reads)]


def wrapper_unit(paths: list[str], wrappers: tuple[Export, ...], *, with_cuda_types: bool) -> str:
    """The unit of a module with wrappers: its sources, then its exports."""
    includes = [f'#include "{path}"' for path in paths]
    symbols = " ".join(symbol for _, symbol in wrappers)
    needed = [header for types, header in _CUDA_TYPE_HEADERS if types.search(symbols)]
    if needed:
        includes.append("#include <kjit/dtype.h>")
    if needed and with_cuda_types:
        includes += ["#if KJIT_CUDA_TYPES", f"#include <{needed[0]}>", "#endif"]
    # In parentheses, because a comma between template arguments would end the macro's argument.
    exports = [f"KJIT_EXPORT({name}, ({symbol}))" for name, symbol in wrappers]
    return "\n".join(["#include <kjit/ffi.h>", *includes, "namespace kjit {", *exports, "}", ""])


def lasting_folder() -> Path:
    """The folder of generated units in builds with a launcher: in `/tmp` if that is writable, because no variable
    moves it."""
    root = "/tmp" if os.access("/tmp", os.W_OK) else temporary_root()
    return Path(root) / f"kjit-units-{os.geteuid()}"


def _with_lasting_path(unit: Unit) -> Unit:
    """`unit` with a path that is the same in every build and every cache.

    nvcc passes the absolute path of its source to its parts, and launchers compare that. The path depends on the text
    only, so that concurrent builds can share the file.
    """
    if unit.text is None or not is_unclaimed(lasting_folder()):
        return unit  # the folder belongs to another user: the launcher finds less, and the build continues
    folder = lasting_folder() / digest(unit.text.encode(errors="surrogateescape"))
    return replace(unit, path=str(folder / unit.path))


def _units(
    spec: Spec,
    side: str,
    suffix: str,
    files: tuple[str, ...],
    wrappers: tuple[Export, ...],
    links: Links,
    plain: re.Pattern[str],
) -> Iterator[Unit]:
    paths = [links.source(path, plain) for path in files]
    units: list[tuple[str, str | None]]
    if wrappers:
        units = [(f"{spec.name}.{suffix}", wrapper_unit(paths, wrappers, with_cuda_types=side == "cuda"))]
    else:
        # A source is compiled itself, unless its name is not plain: then a unit includes it.
        units = [
            (path, None) if plain.fullmatch(path) else (f"{spec.name}{index}.{suffix}", f'#include "{path}"\n')
            for index, path in enumerate(paths)
        ]
    for index, (path, text) in enumerate(units):
        yield Unit(f"{side}{index}", path, text)


def _compile_step(
    unit: Unit,
    launcher: tuple[str, ...],
    compiler: tuple[str, ...],
    reads: tuple[str, ...],
) -> Step:
    output = f"{unit.name}.o"
    arguments = (*launcher, *compiler, "-MD", "-MF", f"{output}.d", "-c", unit.path, "-o", output)
    return Step(output, arguments, generated=unit.generated, reads=reads)


def _simulated_steps(
    unit: Unit, compiler: tuple[str, ...], launcher: tuple[str, ...], reads: tuple[str, ...]
) -> Iterator[Step]:
    """A CUDA unit for the simulator: preprocessed, rewritten, and compiled as C++."""
    from kjit import cpp_text
    from kjit.engine.compile.rewrite import rewrite  # no other build needs it

    plain, rewritten, output = f"{unit.name}.ii", f"{unit.name}.sim.ii", f"{unit.name}.o"
    dependencies = ("-MD", "-MF", f"{plain}.d", "-MT", plain)
    preprocess = (*compiler, "-x", "c++", "-E", unit.path)
    yield Step(plain, (*preprocess, *dependencies, "-o", plain), generated=unit.generated, reads=reads)
    # -I and -S: Python starts without a search for packages.
    rewriter = Path(rewrite.__file__).resolve()
    program = (sys.executable, "-I", "-S", str(rewriter))
    read = tuple(map(str, (*sorted(rewriter.parent.glob("*.py")), Path(cpp_text.__file__).resolve())))
    yield Step(rewritten, (*program, plain, rewritten, *preprocess), (plain,), reads=read)
    # Without -include, whose headers are in the preprocessed unit.
    flags = [word for flag in parse(compiler) if flag.meaning != "header" for word in flag.words()]
    yield Step(output, (*launcher, *flags, "-x", "c++-cpp-output", "-c", rewritten, "-o", output), (rewritten,))
