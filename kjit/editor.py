"""Settings for clangd, so that editors parse kernels as the compilers do.

clangd reads `.clangd` in the project's root. It consists of fragments, the later ones for some files only: CUDA is
enabled for `.cuh` and `.cu` only, as `-xcuda` would turn C++ files into CUDA. The flags are clang's, and flags that
only nvcc knows are removed from those of a build system.

Everything is found as for a build, so the editor uses the same headers and CUDA as the compilers. Without a GPU,
kernels are parsed for `DEFAULT_ARCH`, and without CUDA only C++ is set up; both are reported.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kjit.engine.toolchain.archs import gpu_archs
from kjit.engine.toolchain.compilers import Compiler, ask, find_cxx
from kjit.engine.toolchain.cuda import CudaToolkit, find_cuda
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include
from kjit.engine.toolchain.options import options_for_clangd_to_remove
from kjit.errors import ToolchainError, UsageError
from kjit.project import Project
from kjit.runtime.highway import highway_include
from kjit.runtime.load import runtime_target
from kjit.spec import CudaArch

DEFAULT_ARCH = CudaArch(9, 0, "a")
CLANGD_FILE = ".clangd"
COMMANDS_FILE = "compile_commands.json"

_CPP_SUFFIXES = (".cpp", ".cc", ".cxx", ".hpp", ".h")
_CUDA_SUFFIXES = (".cu", ".cuh")
_UNITS = (".cpp", ".cc", ".cxx", ".cu", ".cuh")


class EditorFlags(NamedTuple):
    """The arguments of clang for a project's files, and notes about them.

    Attributes:
        common: for all files. cpp: in addition for C++ files. cuda: in addition for CUDA files; None without CUDA.
        notes: sentences about choices and omissions.
    """

    common: list[str]
    cpp: list[str]
    cuda: list[str] | None
    notes: list[str]


class EditorFile(NamedTuple):
    """A file for the editor: its text, and its state (`written`, `unchanged`, or `kept` as it was)."""

    path: Path
    text: str
    state: str


def editor_flags(project: Project) -> EditorFlags:
    """The flags for the files of `project`, from the compilers of a build.

    Raises:
        ToolchainError: tvm-ffi is not installed.
    """
    notes: list[str] = []
    # A source with Google Highway is parsed once, and not for each kind of CPU; the macro has no other effect.
    common = ["-std=c++20", "-DKJIT_EDITOR", "-DHWY_COMPILE_ONLY_STATIC", f"-I{project.include_dir}"]
    for folder in (kjit_include(), tvm_ffi_include(), *highway_include()):
        common += ["-isystem", str(folder)]
    try:
        common += _library_flags(find_cxx())
    except ToolchainError as error:
        notes.append(f"{error.message} clangd looks for a C++ library by itself.")
    try:
        cuda = find_cuda()
    except ToolchainError as error:
        notes.append(f"{error.message} Only C++ is set up. To set up CUDA: {error.hint}, and run this again.")
        return EditorFlags(common, [], None, notes)
    arch, note = _editor_arch(cuda)
    notes.append(note)
    cuda_includes = [part for folder in cuda.include_dirs for part in ("-isystem", str(folder))]
    cuda_flags = [
        "-xcuda",
        f"--cuda-path={cuda.home}",
        f"--cuda-gpu-arch=sm_{arch.digits}",
        f"-DKJIT_CUDA_ARCH={arch.number}",
        "-Wno-unknown-cuda-version",
        # cccl's headers have a separate folder; the first folder is implied by --cuda-path.
        *(part for folder in cuda.include_dirs[1:] for part in ("-isystem", str(folder))),
        "-idirafter",
        str(kjit_include() / "clangd"),
    ]
    return EditorFlags(common, cuda_includes, cuda_flags, notes)


def clangd_text(flags: EditorFlags) -> str:
    """The content of `.clangd`."""
    parts = [
        "# Written by `kjit clangd` for this machine: keep it out of version control.",
        "CompileFlags:",
        f"  Add:{_yaml(flags.common)}",
        f"  Remove:{_yaml(options_for_clangd_to_remove())}",
        *_fragment(r".*\.h", ["-xc++-header"]),  # one that is opened by itself
    ]
    if flags.cpp:
        parts += _fragment(rf".*\.({'|'.join(suffix[1:] for suffix in _CPP_SUFFIXES)})", flags.cpp)
    if flags.cuda is not None:
        parts += _fragment(r".*\.cuh?", flags.cuda)
    return "\n".join([*parts, ""])


def compile_commands(project: Project, flags: EditorFlags) -> list[dict[str, object]]:
    """One entry of compile_commands.json for each kernel source of `project`."""
    entries: list[dict[str, object]] = []
    for path in sorted(project.csrc_dir.rglob("*")):
        is_cuda = path.suffix in _CUDA_SUFFIXES
        if path.suffix not in _UNITS or not path.is_file() or (is_cuda and flags.cuda is None):
            continue
        extra = (flags.cuda or []) if is_cuda else flags.cpp
        arguments = ["clang++", *flags.common, *extra, "-c", str(path)]
        entries.append({"directory": str(project.root), "file": str(path), "arguments": arguments})
    return entries


def write_editor_files(
    project: Project, flags: EditorFlags, *, commands: bool = False, force: bool = False
) -> list[EditorFile]:
    """Write `.clangd` (and compile_commands.json) into the project's root; a file that exists is kept unless `force`.

    Raises:
        UsageError: there is a folder in place of a file.
        OSError: it cannot be written.
    """
    wanted = [(project.root / CLANGD_FILE, clangd_text(flags))]
    if commands:
        content = json.dumps(compile_commands(project, flags), indent=2, ensure_ascii=False)
        wanted.append((project.root / COMMANDS_FILE, f"{content}\n"))
    return [EditorFile(path, text, _write(path, text, force)) for path, text in wanted]


def _library_flags(cxx: Compiler) -> list[str]:
    """The location of `cxx`'s C++ library: by default clang uses the newest GCC, which may have no headers."""
    if cxx.family != "gcc":
        return []
    folder = os.path.dirname(ask([str(cxx.path), "-print-libgcc-file-name"]).strip())
    sysroot = ask([str(cxx.path), "-print-sysroot"]).strip()
    flags = [f"--gcc-install-dir={folder}"] if os.path.isabs(folder) else []
    return [*flags, f"--sysroot={sysroot}"] if sysroot else flags


def _editor_arch(cuda: CudaToolkit) -> tuple[CudaArch, str]:
    """The architecture for which kernels are parsed, and a sentence about it."""
    where = f"{cuda.label} from {cuda.home} ({cuda.origin})"
    try:
        arch = runtime_target("cuda", None).arch or DEFAULT_ARCH
    except (ToolchainError, UsageError):
        present = gpu_archs()
        if not present:
            return DEFAULT_ARCH, f"{where}; there is no GPU here, so kernels are read for sm_{DEFAULT_ARCH.digits}."
        arch = present[0]
    return arch, f"{where}; kernels are read for sm_{arch.digits}."


def _fragment(pattern: str, flags: Iterable[str]) -> list[str]:
    return ["---", "If:", f"  PathMatch: {_quote(pattern)}", "CompileFlags:", f"  Add:{_yaml(flags)}"]


def _yaml(items: Iterable[str]) -> str:
    return "".join(f"\n    - {_quote(item)}" for item in items)


def _quote(text: str) -> str:
    """A YAML string in single quotes, in which only the quote is special."""
    if re.search(r"[\x00-\x1f]", text):
        raise UsageError(f"the path {text!r} cannot be written into {CLANGD_FILE}.", hint="rename the folder")
    return "'" + text.replace("'", "''") + "'"


def _write(path: Path, text: str, force: bool) -> str:
    if path.is_dir():
        raise UsageError(f"'{path}' is a folder.", hint="move it away")
    if path.exists():
        if path.read_bytes() == text.encode(errors="surrogateescape"):
            return "unchanged"
        if not force:
            return "kept"
    path.write_bytes(text.encode(errors="surrogateescape"))  # names with bytes outside of the locale's encoding
    return "written"
