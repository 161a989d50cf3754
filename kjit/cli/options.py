"""Arguments and options of several commands, and the completion of names of ops."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from kjit.errors import KjitError


def known_ops(incomplete: str) -> list[str]:
    """The project's ops with this prefix; none without a project, as completion must not print errors."""
    from kjit.project import find_project

    try:
        known = find_project().ops()
    except KjitError:
        return []
    return [op for op in known if op.startswith(incomplete)]


def require(module: str, what: str, extra: str) -> None:
    """Refuse to go on without a module of an extra.

    Args:
        what: what needs it: `plots need`.

    Raises:
        KjitError: it is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise KjitError(f"{what} {module}, which is not installed.", hint=f"pip install 'kjit[{extra}]'")


Op = Annotated[str, typer.Argument(help="The op.", autocompletion=known_ops)]
Ops = Annotated[
    list[str] | None, typer.Argument(metavar="OP", help="Only these ops; default: all.", autocompletion=known_ops)
]
Archs = Annotated[
    list[str] | None,
    typer.Option("--arch", metavar="LIST", help="CUDA architectures, like 8.0,9.0a; default: the GPUs present."),
]
Sim = Annotated[bool, typer.Option("--sim", help="Run CUDA kernels in the simulator, even if there is a GPU.")]
Check = Annotated[bool, typer.Option("--check", help="Run them in the simulator with its checks.")]
Timeout = Annotated[str, typer.Option("--timeout", metavar="TIME", help="The time limit of a tool, like 90s or 10m.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
JsonNumbers = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
