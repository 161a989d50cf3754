"""How does an op that exists get another signature, with what was changed in its files since?

As version control merges: the files as `kjit new` wrote them, as they are now, and as `kjit new` would write them for
the new signature are brought together, file by file, by `git merge-file`. What only one side has changed is taken;
where both have, which is mostly the math, both stay between git's markers for a person to decide. The first of the
three is made anew: the wrapper's docstring keeps signature and pattern, `DTYPES` the dtypes, and its `Spec` says, by
the kernels that it names, for which devices. The trade-off: where the templates have changed since, so has that
first side, and there is more to decide.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import get_args

from kjit.build.staging import temporary_folder
from kjit.errors import KjitError, UsageError
from kjit.project import Project, find_project
from kjit.scaffold.dtypes import DTYPES, DType, find_dtype
from kjit.scaffold.fileset import File, FileSet, with_line_ends_of
from kjit.scaffold.names import camel, check_op_name
from kjit.scaffold.new import MARKER, SHARED, Place, Scaffold, scaffold_op
from kjit.scaffold.signature import ScalarKind, parse_signature
from kjit.spec import Side

_KERNELS: Mapping[Side, str] = {"cuda": "cuda_files", "cpu": "cpp_files"}
"""The keyword by which a `Spec` names the kernels for a device."""

_OF_EACH_KIND = tuple(DTYPES[name] for name in ("float32", "float64", "float8_e4m3fn", "int32"))
"""A dtype of each kind that tests and benchmarks have lines of their own for."""

_ABOVE_MATH = re.compile(rf"^ *(//|#) {MARKER},.*\n(?: *\1 .*\n)*", re.MULTILINE)
"""A comment above what the user is to change."""


@dataclass(frozen=True)
class _Recipe:
    """What an op was made from."""

    signature: str
    pattern: str
    devices: tuple[Side, ...]
    dtypes: tuple[DType, ...] | None
    shared: bool


def update_op(
    op: str,
    signature: str | None = None,
    *,
    pattern: str | None = None,
    devices: Sequence[Side] | None = None,
    dtypes: Sequence[DType] | None = None,
    start: Path | str = ".",
) -> tuple[Scaffold, list[Place]]:
    """Put the files of an op together anew: with another signature, pattern, devices or dtypes, and with every change
    that was made to them since they were written.

    Args:
        op: its name.
        signature, pattern, devices, dtypes: as for `scaffold_op`; what is not given stays as it is.
        start: a folder of the project.

    Returns:
        The op with those of its files that change and the lines with the math in those that are new, and the places
        where both sides have changed: there git's markers stand in the file.

    Raises:
        UsageError: there is no such op, it does not say what it was made from or its function is another, markers of
            an update before still stand in one of its files, a kernel that would be added is there already, or as for
            `scaffold_op`.
        KjitError: git is not installed.
    """
    check_op_name(op)
    project = find_project(start)
    project.check_ops([op])
    before = _recipe(project, op)
    write = partial(
        scaffold_op,
        op,
        before.signature,
        pattern=before.pattern,
        devices=before.devices,
        shared=before.shared,
        start=start,
    )
    as_written, source = _as_written(project, op, write, before.dtypes)
    _check_recorded(project, op, as_written[project.wrapper_path(op)])
    sides = devices or before.devices
    new = scaffold_op(
        op,
        signature or before.signature,
        pattern=pattern or before.pattern,
        devices=sides,
        dtypes=dtypes or (before.dtypes if signature is None or _has_variable(signature) else None),
        shared=before.shared or len(sides) > 1,
        start=start,
    )
    files = FileSet(new.files.root)
    conflicts: list[Place] = []
    # For other devices the op's source may be another file: what was changed in it moves there.
    moved = None if new.source in (None, source) else source
    for file in new.files.files:
        if file.path.exists() and file.path not in as_written:
            raise UsageError(
                f"{project.display(file.path)} is there already, and is no part of op '{op}'.",
                hint="delete or rename it; what you need of it can go into the new one",
            )
        origin = moved if moved is not None and file.path == new.source else file.path
        if not origin.exists():
            files.files.append(file)
            continue
        mine = _read(project, origin)
        if origin != file.path and file.path.exists() and _read(project, file.path) != as_written[file.path]:
            raise UsageError(
                f"{project.display(file.path)} was changed, and becomes the place of {project.display(origin)}.",
                hint=f"move the change into {project.display(origin)}",
            )
        now = file.text
        text = with_line_ends_of(mine, now) if file.path == moved else _merge(mine, as_written[origin], now)
        if text != mine or origin != file.path:
            files.files.append(File(file.path, text, edits=True))
        conflicts += [
            Place(file.path, number)
            for number, line in enumerate(text.splitlines(), start=1)
            if line.startswith("<<<<<<< ")
        ]
    written = {file.path for file in new.files.files}
    left = [path for path in as_written if path not in written and path.exists()]
    notes = [f"{project.display(path)} is no longer part of op '{op}', and stays until you delete it" for path in left]
    added = {file.path for file in files.files if not file.edits}
    places = tuple(place for place in new.places if place.path in added)
    return Scaffold(op, new.project, files, places, (*new.notes, *notes)), conflicts


def _as_written(
    project: Project, op: str, write: Callable[..., Scaffold], dtypes: Sequence[DType] | None
) -> tuple[dict[Path, str], Path | None]:
    """The files of an op as they were before anyone changed them, and its `Scaffold.source`; `write` makes the files
    for some dtypes."""
    source = write(dtypes=dtypes).source

    def texts(dtypes: Sequence[DType] | None) -> dict[Path, str]:
        return {file.path: file.text for file in write(dtypes=dtypes).files.files}

    today = texts(dtypes)
    follow = [path for path in (project.test_path(op), project.benchmark_path(op)) if path.exists()]
    mine = {path: Counter(_read(project, path).splitlines()) for path in follow}

    def changed(written: Mapping[Path, str]) -> int:
        """How many lines came or went since."""
        lines = {path: Counter(written[path].splitlines()) for path in follow}
        return sum((lines[path] - mine[path]).total() + (mine[path] - lines[path]).total() for path in follow)

    if dtypes is None or not changed(today):
        return today, source
    kinds = [chosen for count in range(len(_OF_EACH_KIND)) for chosen in combinations(_OF_EACH_KIND, count + 1)]
    # The first dtype has a test of its own.
    then = min((today, *map(texts, kinds), *(texts(chosen[::-1]) for chosen in kinds)), key=changed)
    return today | {path: then[path] for path in follow}, source


def _read(project: Project, path: Path) -> str:
    """The text of a file in which nothing is left to decide, with the line ends that it has."""
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        at = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{project.display(path)}:{at} is not UTF-8.", hint="save the file as UTF-8") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("<<<<<<< "):
            raise UsageError(
                f"{project.display(path)}:{number} has git's markers of a merge before this one.",
                hint="decide there first, and remove the markers",
            )
    return text


def _recipe(project: Project, op: str) -> _Recipe:
    path = project.wrapper_path(op)
    shown = project.display(path)
    try:
        tree = ast.parse(_read(project, path))
    except SyntaxError as error:
        raise UsageError(f"{shown}:{error.lineno} is not Python: {error.msg}.", hint="mend it first") from None
    told = ast.get_docstring(tree) or ""
    found = {
        name: match[1].split()
        for name in ("Signature", "Pattern")
        if (match := re.search(rf"^{name}: (.+?)(?:\n\s*\n|\Z)", told, re.MULTILINE | re.DOTALL))
    }
    if len(found) < 2:
        raise UsageError(
            f"{shown} does not say what it was made from: its docstring has no 'Signature: ...' or no 'Pattern: ...'.",
            hint=f"`kjit new {op} SIGNATURE --force --dry-run` shows what a new scaffold has otherwise",
        )
    spec = _spec(tree)
    # Not the files that there are: one that the op had before may have stayed.
    devices = tuple(side for side, keyword in _KERNELS.items() if keyword in spec)
    if not devices:
        raise UsageError(
            f"{shown} does not say what the op's kernels are: it has no Spec with cuda_files= or cpp_files=.",
            hint=f"`kjit new {op} SIGNATURE --force --dry-run` shows what a new scaffold has otherwise",
        )
    signature, pattern = (" ".join(found[name]) for name in ("Signature", "Pattern"))
    shared = len(devices) > 1 or _has_shared_source(project, op)
    return _Recipe(signature, pattern, devices, _dtypes(tree), shared)


def _has_shared_source(project: Project, op: str) -> bool:
    """Whether the op is in a file that those of its devices include; it stays there when one of these goes."""
    path = project.csrc_dir / f"{op}{SHARED}"
    return path.exists() and re.search(rf"^struct {camel(op)}\b", _read(project, path), re.MULTILINE) is not None


def _check_recorded(project: Project, op: str, written: str) -> None:
    """Refuse a wrapper whose function is not what its docstring says: someone has edited only one of the two.

    Args:
        written: the wrapper that belongs to the docstring.
    """
    path = project.wrapper_path(op)
    tree, told = ast.parse(_read(project, path)), _parameters(ast.parse(written), op)
    found, compiled = _parameters(tree, op), _parameters(tree, op, of="Exports")
    # What is in Python alone does not concern the signature.
    has = {name: shown for name, shown in found.items() if name in told or name in compiled}
    if found and list(has.items()) != list(told.items()):
        raise UsageError(
            f"{project.display(path)} has another signature in its docstring, ({', '.join(told.values())}), than its"
            f" function, ({', '.join(has.values())}).",
            hint=f"let the docstring say what the function has; `kjit new {op} SIGNATURE --update` changes both",
        )


def _parameters(tree: ast.Module, op: str, of: str = "") -> dict[str, str]:
    """The parameters of a wrapper's function, or of the method of that name in the class `of`, as they are written;
    of a tensor, the name alone, as its type can be written in several ways."""
    body: Sequence[ast.stmt] = tree.body
    if of:
        body = [each for node in body if isinstance(node, ast.ClassDef) and node.name == of for each in node.body]
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == op:
            arguments = [*node.args.posonlyargs, *node.args.args]
            no_default = [None] * (len(arguments) - len(node.args.defaults))
            values = [*no_default, *node.args.defaults, *node.args.kw_defaults]
            return {
                argument.arg: _parameter(argument, value)
                for argument, value in zip([*arguments, *node.args.kwonlyargs], values, strict=True)
            }
    return {}


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
    typed = f"{argument.arg}: {kind}" if kind in get_args(ScalarKind) else argument.arg
    return typed if default is None else f"{typed} = {ast.unparse(default)}"


def _spec(tree: ast.Module) -> dict[str, str]:
    """What the wrapper gives its `Spec` by keyword."""
    return {
        keyword.arg: ast.unparse(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Spec"
        for keyword in node.keywords
        if keyword.arg is not None
    }


def _dtypes(tree: ast.Module) -> tuple[DType, ...] | None:
    """What the wrapper's `DTYPES` holds, so far as `kjit new` takes it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["DTYPES"]:
            names = [each.attr for each in ast.walk(node.value) if isinstance(each, ast.Attribute)]
            found = (find_dtype(name) for name in names)
            return tuple(dtype for dtype in found if dtype is not None and dtype.kind != "bool") or None
    return None


def _has_variable(signature: str) -> bool:
    return bool(parse_signature(signature).variables)


def _merge(mine: str, before: str, new: str) -> str:
    before, new = (with_line_ends_of(mine, text) for text in (before, new))
    # Such a comment names other files and stands next to the math: as a change of its own it would meet every other.
    for old, now in zip(_ABOVE_MATH.finditer(before), _ABOVE_MATH.finditer(new), strict=False):
        mine, before = (text.replace(old[0], now[0]) for text in (mine, before))
    with temporary_folder() as folder:
        paths = []
        for name, text in (("mine", mine), ("before", before), ("new", new)):
            paths.append(folder / name)
            paths[-1].write_text(text, encoding="utf-8", newline="\n")
        labels = [part for label in ("yours", "as scaffolded before", "as scaffolded now") for part in ("-L", label)]
        command = ["git", "merge-file", "--stdout", *labels, *map(str, paths)]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            raise KjitError("git, which merges the files, is not installed.", hint="install git") from None
    if done.returncode > 127:
        raise KjitError(f"git cannot merge the files: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()
