"""The plan of a build: its commands and the units that they compile, from a spec and a toolchain.

A unit takes one command with g++ and nvcc, several with the simulator and NVRTC (toolchain/unit_compilers.py).

Commands and units are the same in every build, so that a launcher (`KJIT_COMPILER_LAUNCHER`, such as sccache) can share
objects within a team: paths are relative to the build's folder, and generated units depend on the spec only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kjit.engine.cache.folders import is_unclaimed
from kjit.engine.cache.staging import temporary_root
from kjit.engine.compile.libraries import files_named, linked_by, resolve
from kjit.engine.compile.quoting import Links
from kjit.engine.compile.steps import Build, Step, Unit
from kjit.engine.compile.support import support_objects
from kjit.engine.toolchain.build_flags import EXPORTS_SCRIPT, link_flags
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.engine.toolchain.unit_compilers import UnitCompiler
from kjit.runtime import digest
from kjit.spec import Export, Side, Spec

_PREFIXES: Mapping[Side, str] = {"cuda": "cuda", "cpu": "cpp"}
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
    for side in spec.kinds:
        compiler = toolchain.compilers[side]
        given = [word for words in compiler.given(spec, toolchain.environment()).values() for word in words]
        build = Build(spec, toolchain, links, launcher, files_named(given, compiler.dialect))
        for unit in _units(spec, compiler, links):
            is_compared = bool(launcher) and compiler.passes_paths_on
            steps += compiler.steps(_with_lasting_path(unit) if is_compared else unit, build)
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


def _units(spec: Spec, compiler: UnitCompiler, links: Links) -> Iterator[Unit]:
    files, wrappers = spec.files(compiler.side), spec.wrappers(compiler.side)
    paths = [links.source(path, compiler.plain) for path in files]
    units: list[tuple[str, str | None]]
    if wrappers:
        units = [
            (f"{spec.name}.{compiler.suffix}", wrapper_unit(paths, wrappers, with_cuda_types=bool(compiler.support)))
        ]
    else:
        # A source is compiled itself, unless its name is not plain: then a unit includes it.
        units = [
            (path, None)
            if compiler.plain.fullmatch(path)
            else (f"{spec.name}{index}.{compiler.suffix}", f'#include "{path}"\n')
            for index, path in enumerate(paths)
        ]
    for index, (path, text) in enumerate(units):
        yield Unit(f"{_PREFIXES[compiler.side]}{index}", path, text)
