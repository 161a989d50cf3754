"""The files of a new op, put together in memory.

Four to six files come from one signature: kernels, wrapper, test, benchmark. Nothing here writes to disk;
`Scaffold.files.write()` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kjit.adoption.adopt import Adoption, adopt
from kjit.dtypes import DTYPES, DType, find_dtype, suggest_dtype
from kjit.errors import UsageError
from kjit.project import Project, find_pyproject, plan_project, read_project
from kjit.projects.fileset import FileSet
from kjit.projects.init import add_package, add_project
from kjit.projects.op_names import camel, check_op_name, cpp_stem
from kjit.scaffold.cases import CasesView
from kjit.scaffold.cpp import CppView
from kjit.scaffold.custom import CustomCases, CustomView
from kjit.scaffold.patterns import CUSTOM_PATTERN, DEFAULT_PATTERN, Pattern, Placed, check_signature, find_pattern
from kjit.scaffold.python import PythonView
from kjit.scaffold.render import formatted, render
from kjit.scaffold.start import Start
from kjit.signature.names import free_name
from kjit.signature.parser import parse_signature
from kjit.signature.signature import Signature
from kjit.spec import Side

DEFAULT_DTYPES = (DTYPES["float32"], DTYPES["float16"], DTYPES["bfloat16"])
"""The default dtypes of dtype variables."""

MARKER = "The math"
LAUNCH_MARKER = "The launch"
"""The start of a comment above lines that the user should change."""

SUFFIXES: Mapping[Side, str] = {"cuda": ".cuh", "cpu": ".cpp"}
SHARED = ".h"
"""The suffix of a file that those of several devices include."""

_LIBRARY_TEMPLATE = "op/csrc/library.h.j2"
"""The template of an op whose kernels are the library's."""

_DEVICE_TEMPLATE = "op/csrc/device.j2"
"""The file of a device that includes it."""


@dataclass(frozen=True)
class Place:
    """A line that the user should change."""

    path: Path
    line: int


@dataclass(frozen=True)
class Scaffold:
    """An op that is ready to be written.

    Args:
        op: its name.
        project: where it goes.
        files: what would be written.
        places: the lines with the math, the kernels' first and the reference's last.
        notes: further remarks for the user, one sentence each.
        adopted: its kernel is an existing one.
    """

    op: str
    project: Project
    files: FileSet
    places: tuple[Place, ...]
    notes: tuple[str, ...]
    adopted: bool = False


def scaffold_op(
    op: str,
    signature: str | None = None,
    *,
    pattern: str = DEFAULT_PATTERN,
    devices: Sequence[Side] = ("cuda",),
    dtypes: Sequence[DType] | None = None,
    source: Path | None = None,
    function: str | None = None,
    start: Path | str = ".",
    run_formatters: bool = False,
) -> Scaffold:
    """Put the files of a new op together.

    Args:
        op: its name.
        signature: in the signature language; by default the pattern's own.
        pattern: the kind of kernel.
        devices: the devices that it has kernels for.
        dtypes: the values of the dtype variables of the signature; by default fp32, fp16 and bf16.
        source: a CUDA file whose kernel the op calls. It is not changed, and used in place if it is in the project;
            otherwise it is copied to the project's kernels.
        function: the name of a function in it; by default the only one.
        start: a folder of the project. Without a project, one is made there.
        run_formatters: format generated files with clang-format and ruff, if they are installed.

    Raises:
        UsageError: the name, the signature, the pattern, a device or a dtype is invalid, or the project's
            `pyproject.toml` cannot be used.
    """
    check_op_name(op)
    adoption = None
    if source is not None:
        pattern = _check_adopted(pattern, devices)
        adoption = adopt(source, op, function=function, signature=signature)
    elif function is not None:
        raise UsageError("--function: there is no file to take it from.", hint="--from FILE.cu")
    chosen = find_pattern(pattern)
    parsed = parse_signature(chosen.signature if signature is None else signature)
    if adoption is not None:
        parsed = adoption.signature
    placed = check_signature(parsed, chosen, op)
    meant = _check_dtypes(parsed, chosen, dtypes)

    here = Path(os.path.abspath(start))
    pyproject = find_pyproject(here)
    notes: list[str] = []
    if pyproject is None:
        project = plan_project(here)
        files = FileSet(here)
        add_project(files, project)
        notes.append(f"there was no project here, so {here} has become one (as `kjit init` would)")
    else:
        project = read_project(pyproject)
        files = FileSet(project.root)
        add_package(files, project)

    kernels = _kernels(op, chosen, devices, project)
    context = _context(op, chosen, placed, devices, meant, project, kernels)
    if adoption is not None:
        notes += adoption.notes
        kernels = dict.fromkeys(kernels, "op/csrc/adopted.cuh.j2")
        context |= _adopted_context(adoption, op, project, files, notes)
    templates = kernels | {
        project.wrapper_path(op): "op/op.py.j2",
        project.test_path(op): "op/tests/test_op.py.j2",
        project.benchmark_path(op): "op/benchmarks/bench_op.py.j2",
    }
    for path, template in templates.items():
        where = {".cuh": "on a GPU", ".cpp": "on the CPU"}.get(path.suffix)
        text = render(template, {**context, "is_shared": path.suffix == SHARED, "where": where})
        files.add(path, formatted(text, path) if run_formatters else text)
    return Scaffold(op, project, files, tuple(_places(files)), tuple(notes), adoption is not None)


def _check_adopted(pattern: str, devices: Sequence[Side]) -> str:
    """The pattern of an op whose kernel is in a file."""
    if pattern not in (DEFAULT_PATTERN, CUSTOM_PATTERN):
        raise UsageError(
            f"--from takes the kernel of a file, and pattern {pattern} has kernels of its own.",
            hint="leave --pattern out",
        )
    if tuple(devices) != ("cuda",):
        raise UsageError("--from takes a CUDA file, which has no kernel for the CPU.", hint="--device cuda")
    return CUSTOM_PATTERN


def _adopted_context(
    adoption: Adoption, op: str, project: Project, files: FileSet, notes: list[str]
) -> dict[str, object]:
    """The template's context for an adopted kernel; its file is copied into the project if it is outside."""
    path = adoption.path
    if not path.is_relative_to(project.root):
        copy = project.csrc_dir / path.name
        files.add(copy, path.read_text(encoding="utf-8", errors="surrogateescape"))
        notes.append(f"{path} is not in the project, and is copied to {project.display(copy)}")
        beside = [name for name in adoption.own_includes if (path.parent / name).is_file()]
        if beside:
            notes.append(f"it includes {', '.join(beside)}, which is beside it and is not copied")
        path = copy
    elif not path.is_relative_to(project.package_dir):
        notes.append(
            f"{project.display(path)} is not in the package '{project.package}', and so in no wheel of it: move it to"
            f" {project.display(project.csrc_dir)} before you ship the op"
        )
    if path == project.csrc_dir / f"{op}{SUFFIXES['cuda']}":
        raise UsageError(
            f"{project.display(path)} is where the op's own file goes, which includes the kernel's.",
            hint=f"choose another name for the op, such as {free_name(op, [op], suffix='_op')}",
        )
    return {
        "adoption": adoption,
        "adoption_include": Path(os.path.relpath(path, project.csrc_dir)).as_posix(),
        "launch_marker": LAUNCH_MARKER,
        "struct": f"Adopted{camel(op)}",
        "paths": _paths(op, project, [path]),
    }


def parse_devices(text: str) -> tuple[Side, ...]:
    """Read `cuda`, `cpu` or `cuda,cpu`."""
    devices = {item.strip() for item in text.split(",")}
    for device in sorted(devices - {"cuda", "cpu"}):
        hint = "did you mean cuda?" if device in ("gpu", "nvidia", "cu") else "--device cuda, cpu or cuda,cpu"
        raise UsageError(f"--device: '{device}' is none of cuda and cpu.", hint=hint)
    sides: tuple[Side, ...] = ("cuda", "cpu")
    return tuple(side for side in sides if side in devices)


def parse_dtypes(text: str) -> tuple[DType, ...]:
    """Read a list such as `fp32,bfloat16,int32`.

    Raises:
        UsageError: one of them is not a dtype.
    """
    dtypes: list[DType] = []
    for name in (item.strip() for item in text.split(",")):
        dtype = find_dtype(name)
        if dtype is None:
            raise UsageError(f"--dtypes: '{name}' is not a dtype.", hint=suggest_dtype(name))
        dtypes.append(dtype)
    return tuple(dict.fromkeys(dtypes))


def _check_dtypes(signature: Signature, pattern: Pattern, dtypes: Sequence[DType] | None) -> Sequence[DType]:
    if dtypes is None:
        return DEFAULT_DTYPES
    if not signature.variables:
        raise UsageError(
            "--dtypes: the signature has no dtype variable that they could stand for.",
            hint=f"write T[...] where the dtype may vary, as in: {pattern.signature}",
        )
    for dtype in dtypes:
        if dtype.kind == "bool":
            raise UsageError(
                "--dtypes: bool is not a dtype to compute with.",
                hint="write bool[...] in the signature for a tensor of bools",
            )
    return dtypes


def _kernels(op: str, pattern: Pattern, devices: Sequence[Side], project: Project) -> dict[Path, str]:
    """The C++ files of an op, and the template of each.

    If the kernels are the library's, one file has the op for all devices: that of the only device, or a header
    that the devices' files include.
    """
    paths = {device: project.csrc_dir / f"{op}{SUFFIXES[device]}" for device in devices}
    kernels = {path: f"op/csrc/{pattern.name}{path.suffix}.j2" for path in paths.values()}
    if pattern.is_library and len(devices) > 1:
        source = {project.csrc_dir / f"{op}{SHARED}": _LIBRARY_TEMPLATE}
        return source | dict.fromkeys(paths.values(), _DEVICE_TEMPLATE)
    if pattern.is_library:
        kernels = dict.fromkeys(kernels, _LIBRARY_TEMPLATE)
    return kernels


def _context(
    op: str,
    pattern: Pattern,
    placed: Placed,
    devices: Sequence[Side],
    dtypes: Sequence[DType],
    project: Project,
    kernels: Mapping[Path, str],
) -> dict[str, object]:
    """The context of the templates."""
    start = Start(placed)
    cpp, python = CppView(start, op, tuple(dtypes)), PythonView(start, tuple(dtypes))
    package = project.package
    members = [*(["DTYPES"] if python.variables else []), f"_{op}", op]
    return {
        "op": op,
        "stem": cpp_stem(op),
        "struct": camel(op),
        "marker": MARKER,
        "pattern": pattern.name,
        "manner": pattern.manner,
        "devices": list(devices),
        "signature": str(placed.signature),
        "placed": placed,
        "start": start,
        "cpp": cpp,
        "python": python,
        "cases": CustomCases(start, python) if pattern.name == CUSTOM_PATTERN else CasesView(start, python),
        "custom": CustomView(cpp),
        "module": project.module_name(op),
        "first_party": package.split(".")[0],
        "members": members,
        "paths": _paths(op, project, [path for path, template in kernels.items() if template != _DEVICE_TEMPLATE]),
    }


def _paths(op: str, project: Project, kernels: Sequence[Path]) -> dict[str, object]:
    """The files and folders that an op's files refer to; `kernels` are those with the math."""
    return {
        "test": project.display(project.test_path(op)),
        "kernels": [project.display(path) for path in kernels],
        "csrc": _relative(project.package_dir, project.csrc_dir),
        "include": _include(project),
        "tests": _relative(project.benchmarks_dir, project.tests_dir),
    }


def _relative(origin: Path, target: Path) -> str:
    """An expression for `target` in a Python file that lies in `origin`: `Path(__file__).parents[1] / "csrc"`."""
    parts = Path(os.path.relpath(target, origin)).parts
    up = sum(part == ".." for part in parts)
    base = "Path(__file__).parent" if up == 0 else f"Path(__file__).parents[{up}]"
    return " / ".join([base, *(f'"{part}"' for part in parts[up:])])


def _include(project: Project) -> str:
    """An expression for the folder of shared headers; empty if it is on the include path anyway."""
    if project.include_dir == Path(__file__).parent.parent / "include":
        return ""
    return _relative(project.package_dir, project.include_dir)


def _places(files: FileSet) -> list[Place]:
    """The lines below the comments that begin with the marker."""
    places = []
    for file in files.files:
        lines = file.text.splitlines()
        for number, line in enumerate(lines):
            if line.lstrip("/# ").startswith((f"{MARKER},", f"{LAUNCH_MARKER},")):
                below = next(i for i in range(number + 1, len(lines)) if lines[i].lstrip()[:1] not in ("#", "/"))
                places.append(Place(file.path, below + 1))
    return places
