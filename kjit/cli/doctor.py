"""`kjit doctor`: check this machine for kjit's requirements."""

from __future__ import annotations

from dataclasses import asdict

import typer

from kjit.cli import console
from kjit.cli.options import Json

_COLOURS = {"ok": "green", "problem": "bold red", "absent": "yellow"}


def doctor(
    json: Json = False,
) -> None:
    """Check compilers, CUDA, GPUs, PyTorch and the cache.

    Each problem is shown with the way to fix it.

    Exit status 1: nothing can be built, not even for the CPU.
    """
    from kjit.doctor import examine, is_fit

    checks = examine()
    if json:
        console.print_json([asdict(check) for check in checks])
    else:
        from rich.text import Text

        for check in checks:
            line = Text.assemble((f"{check.state:<9}", _COLOURS[check.state]), f"{check.name:<14}{check.detail}")
            console.out().print(line)
            if check.fix is not None:
                what = "to get it" if check.state == "absent" else "to fix it"
                console.say(f"{'':<23}{what}: {check.fix}")
    if not is_fit(checks):
        raise typer.Exit(1)
