"""How does an op that exists get another signature, with what was changed in its files since?

As version control merges: the files as `kjit new` wrote them, as they are now, and as `kjit new` would write them for
the new signature are brought together, file by file, by `git merge-file`. What only one side has changed is taken;
where both have, which is mostly the math, both stay between git's markers for a person to decide. The first of the
three is made anew: the wrapper's docstring keeps signature and pattern, `DTYPES` the dtypes, its `Spec` says `simd`,
and the kernels' files for which devices. The trade-off: where the templates have changed since, so has that first side,
and there is more to decide.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kjit.build.staging import temporary_folder
from kjit.errors import KjitError, UsageError
from kjit.project import Project, find_project
from kjit.scaffold.dtypes import DType, find_dtype
from kjit.scaffold.fileset import File, FileSet
from kjit.scaffold.new import SUFFIXES, Place, Scaffold, scaffold_op
from kjit.spec import Side, Simd


@dataclass(frozen=True)
class _Recipe:
    """What an op was made from."""

    signature: str
    pattern: str
    devices: tuple[Side, ...]
    dtypes: tuple[DType, ...] | None
    simd: Simd


def update_op(
    op: str,
    signature: str | None = None,
    *,
    pattern: str | None = None,
    devices: Sequence[Side] | None = None,
    dtypes: Sequence[DType] | None = None,
    simd: str | None = None,
    start: Path | str = ".",
) -> tuple[Scaffold, list[Place]]:
    """Put the files of an op together anew: with another signature, pattern, devices or dtypes, and with every change
    that was made to them since they were written.

    Args:
        op: its name.
        signature, pattern, devices, dtypes, simd: as for `scaffold_op`; what is not given stays as it is.
        start: a folder of the project.

    Returns:
        The op with those of its files that change, and the places where both sides have changed: there git's markers
        stand in the file.

    Raises:
        UsageError: there is no such op, it does not say what it was made from, or as for `scaffold_op`.
        KjitError: git is not installed.
    """
    project = find_project(start)
    project.check_ops([op])
    before = _recipe(project, op)
    old = scaffold_op(
        op,
        before.signature,
        pattern=before.pattern,
        devices=before.devices,
        dtypes=before.dtypes,
        simd=before.simd,
        start=start,
    )
    new = scaffold_op(
        op,
        signature or before.signature,
        pattern=pattern or before.pattern,
        devices=devices or before.devices,
        dtypes=dtypes or (before.dtypes if signature is None or _has_variable(signature) else None),
        simd=simd or before.simd,
        start=start,
    )
    as_written = {file.path: file.text for file in old.files.files}
    files = FileSet(new.files.root)
    conflicts: list[Place] = []
    for file in new.files.files:
        if not file.path.exists() or file.path not in as_written:
            files.files.append(file)
            continue
        text = _merge(file.path.read_text("utf-8"), as_written[file.path], file.text)
        if text != file.path.read_text("utf-8"):
            files.files.append(File(file.path, text, edits=True))
        conflicts += [
            Place(file.path, number)
            for number, line in enumerate(text.splitlines(), start=1)
            if line.startswith("<<<<<<< ")
        ]
    return Scaffold(op, new.project, files, new.places, new.notes), conflicts


def _recipe(project: Project, op: str) -> _Recipe:
    path = project.wrapper_path(op)
    shown = project.display(path)
    try:
        tree = ast.parse(path.read_text("utf-8"))
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
    devices = tuple(side for side, suffix in SUFFIXES.items() if (project.csrc_dir / f"{op}{suffix}").is_file())
    if not devices:
        raise UsageError(f"op '{op}' has no kernel {op}.cuh or {op}.cpp in {project.display(project.csrc_dir)}.")
    return _Recipe(" ".join(found["Signature"]), " ".join(found["Pattern"]), devices, _dtypes(tree), _simd(tree))


def _dtypes(tree: ast.Module) -> tuple[DType, ...] | None:
    """What the wrapper's `DTYPES` holds, so far as kjit knows it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["DTYPES"]:
            names = [each.attr for each in ast.walk(node.value) if isinstance(each, ast.Attribute)]
            return tuple(dtype for name in names if (dtype := find_dtype(name)) is not None) or None
    return None


def _simd(tree: ast.Module) -> Simd:
    """What the wrapper's `Spec` says."""
    keywords = (keyword for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords)
    is_highway = any(
        k.arg == "simd" and isinstance(k.value, ast.Constant) and k.value.value == "highway" for k in keywords
    )
    return "highway" if is_highway else "compiler"


def _has_variable(signature: str) -> bool:
    from kjit.scaffold.signature import parse_signature

    return bool(parse_signature(signature).variables)


def _merge(mine: str, before: str, new: str) -> str:
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
