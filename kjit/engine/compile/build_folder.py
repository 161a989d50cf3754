"""The folder of a build: the files that its commands read and write."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kjit import env
from kjit.engine.cache.folders import make_private, refuse_unsafe
from kjit.engine.cache.staging import temporary_folder, temporary_root
from kjit.engine.compile.quoting import PLAIN_FOR_NVCC, Links
from kjit.engine.compile.steps import Step
from kjit.engine.diagnostics.printed import parse_depfile
from kjit.engine.key.paths import collapse_slashes
from kjit.errors import ToolchainError


def prepare(folder: Path, steps: list[Step], links: Links) -> list[Step]:
    """Write the files that the commands of a build read into `folder`, and return the steps that have to run."""
    run: list[Step] = []
    for step in steps:
        for name in (step.output, step.depfile):
            (folder / name).unlink(missing_ok=True)
        for name, text in step.generated:
            if os.path.isabs(name):
                _write_lasting(Path(name), text)
            else:
                write_text(folder / name, text)
        if step.support is None or not step.support.fetch(folder):
            run.append(step)
    for target, name in links.names.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    return run


def write_text(path: Path, text: str) -> None:
    """Write a text that contains file names."""
    # File names may have bytes that are not UTF-8, or not valid in this locale; they are preserved.
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _write_lasting(path: Path, text: str) -> None:
    """Write a file of `plan.lasting_folder`, which another build may be reading.

    Raises:
        CacheError: the folder belongs to another user, who could put other code there.
    """
    for folder in (path.parent.parent, path.parent):
        make_private(folder)
        refuse_unsafe(folder, follow=False)
    if read_text(path) != text:
        with tempfile.TemporaryDirectory(dir=path.parent) as beside:
            write_text(Path(beside, path.name), text)
            os.replace(Path(beside, path.name), path)


def read_text(path: Path) -> str:
    """The content of a file that contains file names; empty if it does not exist."""
    try:
        # Decoded like file names, in any locale.
        return os.fsdecode(path.read_bytes()).replace("\r\n", "\n")
    except FileNotFoundError:
        return ""


def restored(folder: Path, links: Links, name: str) -> str:
    """The content of a file in a build's folder, with the real paths of files instead of their plain names."""
    return links.restore(read_text(folder / name))


def headers_read(folder: Path, steps: Sequence[Step], links: Links) -> tuple[str, ...]:
    """The files that compilers have read, except generated ones.

    Raises:
        ToolchainError: a compiler did not list them.
    """
    generated = {name for step in steps for name, _ in step.generated}
    found: dict[str, None] = {}  # strings, not Paths: a CUDA unit reads four hundred files
    for step in steps:
        listing = read_text(folder / step.depfile)
        # One that stops at a missing header lists nothing, or half a line.
        if {"-E", "-MD"} & set(step.arguments) and not listing.endswith("\n"):
            # Without the list, later look-ups would not notice changed headers.
            raise ToolchainError(
                f"'{step.arguments[0]}' made {step.output} without the list of the headers that were read (-MD).",
                hint=f"unset {env.COMPILER_LAUNCHER}, or use a launcher that passes on the compiler's options",
            )
        # nvcc lists a header of `-include` as `./pre.h`.
        names = [name.removeprefix("./") for name in parse_depfile(listing)]
        found.update(dict.fromkeys(collapse_slashes(links.restore(name)) for name in names if name not in generated))
    return tuple(found)


def keep_support(folder: Path, made: list[Step], failed: set[str]) -> None:
    """Keep objects that all modules share, even if this module failed, for the next build."""
    for step in made:
        if step.support is not None and step.output not in failed and (folder / step.output).exists():
            step.support.keep(folder)


def temporary_build_folder() -> contextlib.AbstractContextManager[Path]:
    """A folder for the compilers' own temporary files, in the system's temporary folder: a cache may be on a slow
    disk."""
    return temporary_folder(plain_root())


def plain_root() -> str:
    """The system's temporary folder, or `/tmp` if nvcc would misread its name."""
    root = temporary_root()
    if PLAIN_FOR_NVCC.fullmatch(os.path.realpath(root)) is None and os.access("/tmp", os.W_OK):
        return "/tmp"
    return root
