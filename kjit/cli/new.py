"""`kjit new`: a kernel with its wrapper, test and benchmark, all of them working."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kjit.cli import console, text

if TYPE_CHECKING:
    from kjit.scaffold.new import Scaffold


class Command(TyperCommand):
    """A command with a signature as an argument, which may begin with an arrow: that is not an option. Its help has
    the patterns, which other commands need not import."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from kjit.scaffold.patterns import PATTERNS

        option: Any = next(parameter for parameter in self.params if parameter.name == "pattern")
        option.help = " ".join(f"{pattern.name}: {pattern.help}." for pattern in PATTERNS.values())
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f" {arg}" if arg.startswith("->") else arg for arg in args])


def new(
    op: Annotated[str, typer.Argument(help="The name of the op and of its Python function: scale, rms_norm, bump_.")],
    signature: Annotated[
        str | None,
        typer.Argument(
            help="Its parameters and results: 'x: T[...], y: T[...], alpha: float = 1.0 -> out: T[...]'. "
            "Default: the pattern's own.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str,
        typer.Option(
            help="The kind of kernel.",  # `Command` adds the patterns
        ),
    ] = "elementwise",
    device: Annotated[str, typer.Option(help="The devices to write kernels for: cuda, cpu or cuda,cpu.")] = "cuda",
    dtypes: Annotated[
        str | None,
        typer.Option(
            help="The dtypes of T, by their C++, torch or short names: bf16, float16, int32_t, fp8_e5m2. "
            "Default: fp32,fp16,bf16.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Use the kernel in this CUDA file, which stays unchanged, instead of a pattern's.",
            show_default=False,
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            help="With --from: which of its functions to use, a kernel or a host function.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show the files and a diff.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Scaffold an op: kernel, Python wrapper, test and benchmark.

    All files are written, or none. Without a project, one is made first, as by `kjit init`.
    """
    from kjit.scaffold.new import parse_devices, parse_dtypes, scaffold_op

    scaffold = scaffold_op(
        op,
        signature,
        pattern=pattern,
        devices=parse_devices(device),
        dtypes=None if dtypes is None else parse_dtypes(dtypes),
        source=source,
        function=function,
        run_formatters=True,
    )
    if dry_run:
        _show(scaffold)
        return
    scaffold.files.write(force=force)
    _report(scaffold)
    console.say(f"Then: kjit test {op}")


def _show(scaffold: Scaffold) -> None:
    """Print the files that would be written, and a diff."""
    console.say(scaffold.files.tree())
    console.say()
    console.say(scaffold.files.diff().rstrip("\n"))


def _report(scaffold: Scaffold) -> None:
    """Print the files that were written, and the places in them that are left to the author."""
    for note in scaffold.notes:
        console.note(f"note: {note}")
    for file in scaffold.files.files:
        console.say(text.path(file.path))
    if scaffold.places:
        console.say()
        console.say("Left for you to do:" if scaffold.adopted else "Replace the example's math with yours:")
        for place in scaffold.places:
            console.say(f"  {text.path(place.path)}:{place.line}")
