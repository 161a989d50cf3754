"""`kjit new`: a kernel with its wrapper, test and benchmark, all of them working."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kjit.cli import console, text
from kjit.errors import UsageError

if TYPE_CHECKING:
    from kjit.scaffold.dtypes import DType
    from kjit.scaffold.new import Place, Scaffold
    from kjit.spec import Side


class Command(TyperCommand):
    """A command that takes what begins with an arrow for a signature and not for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f" {arg}" if arg.startswith("->") else arg for arg in args])


def new(
    context: typer.Context,
    op: Annotated[str, typer.Argument(help="The op's name, a function's in Python: scale, rms_norm, bump_.")],
    signature: Annotated[
        str | None,
        typer.Argument(
            help="What it takes and gives: 'x: T[...], y: T[...], alpha: float = 1.0 -> out: T[...]'. "
            "Default: the pattern's own.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str,
        typer.Option(
            help="elementwise: every element by itself. rowwise: what needs a total of its row: norms, softmax. "
            "gather: rows chosen by an index. minimal: the shortest kernel that shows check, configure, launch."
        ),
    ] = "elementwise",
    device: Annotated[str, typer.Option(help="What to write a kernel for: cuda, cpu or cuda,cpu.")] = "cuda",
    dtypes: Annotated[
        str | None,
        typer.Option(
            help="What T stands for, by C++, torch or short names: bf16, float16, int32_t, fp8_e5m2. "
            "Default: fp32,fp16,bf16.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show the files and a diff.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Give an op that exists another signature, and keep what you changed.")
    ] = False,
) -> None:
    """Scaffold an op: kernel, Python wrapper, test and benchmark.

    All files are written, or none. Where there is no project yet, one is made, as `kjit init` does.

    Exit status 1: with --update, you and the new signature have changed the same lines.
    """
    from kjit.scaffold.new import parse_devices, parse_dtypes, scaffold_op

    if update:
        if force:
            raise UsageError("--update keeps what you changed and --force does not.", hint="leave one of them out")
        given = {name for name in ("pattern", "device") if _is_given(context, name)}
        _update(
            op,
            signature,
            pattern if "pattern" in given else None,
            parse_devices(device) if "device" in given else None,
            None if dtypes is None else parse_dtypes(dtypes),
            dry_run,
        )
        return
    scaffold = scaffold_op(
        op,
        signature,
        pattern=pattern,
        devices=parse_devices(device),
        dtypes=None if dtypes is None else parse_dtypes(dtypes),
    )
    if dry_run:
        _show(scaffold)
        return
    scaffold.files.write(force=force)
    _report(scaffold)
    console.say(f"Then: pytest {text.path(scaffold.project.test_path(op))}")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _update(
    op: str,
    signature: str | None,
    pattern: str | None,
    devices: Sequence[Side] | None,
    dtypes: Sequence[DType] | None,
    dry_run: bool,
) -> None:
    from kjit.scaffold.update import update_op

    scaffold, conflicts = update_op(op, signature, pattern=pattern, devices=devices, dtypes=dtypes)
    if not scaffold.files.files:
        console.say(f"{op} is as it would be written; nothing to do.")
        return
    if dry_run:
        _show(scaffold)
    else:
        scaffold.files.write()
        _report(scaffold)
    if conflicts:
        shown = "would show" if dry_run else "show"
        _list(f"What you changed and what the new signature changes meet here; git's markers {shown} both:", conflicts)
        raise typer.Exit(1)


def _show(scaffold: Scaffold) -> None:
    """What would be written."""
    console.say(scaffold.files.tree())
    console.say()
    console.say(scaffold.files.diff().rstrip("\n"))


def _report(scaffold: Scaffold) -> None:
    """What was written, and what of it is to be changed."""
    for note in scaffold.notes:
        console.note(f"note: {note}")
    for file in scaffold.files.files:
        console.say(text.path(file.path))
    if scaffold.places:
        _list("Put your math in the place of the example's:", scaffold.places)


def _list(heading: str, places: Sequence[Place]) -> None:
    console.say()
    console.say(heading)
    for place in places:
        console.say(f"  {text.path(place.path)}:{place.line}")
