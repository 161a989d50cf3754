"""Templates of an op as code.

A list in brackets is on its line if it fits, else in lines as the formatters of C++ and Python write it: that is what
the functions for templates do. Other statements stay on one line; where the formatters are installed, they break long
ones, and follow the settings of the project (`formatted`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kjit.projects.templates import FOLDER, fill
from kjit.scaffold.start import python_tuple

CPP_WIDTH, PYTHON_WIDTH = 120, 88


def render(template: str, context: Mapping[str, object]) -> str:
    """The text of a template, which is named relative to `kjit/templates`."""
    helpers = {
        "comment": _cpp_comment,
        "cpp_chains": cpp_chains,
        "cpp_line": cpp_line,
        "line": python_line,
        "python_call": python_call,
        "prose": _prose,
        "python_width": PYTHON_WIDTH,
        "tuple": python_tuple,
    }
    return fill(template, {**helpers, **context})


def formatted(text: str, path: Path) -> str:
    """The text of a file as clang-format or ruff writes it; as it is where that is not installed, or refuses it.

    The settings are those for `path`, which need not exist: kjit's own for C++ where a project has none.
    """
    is_python = path.suffix == ".py"
    folders = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    program = shutil.which("ruff" if is_python else "clang-format", path=folders)
    if program is None:
        return text
    own = any((folder / ".clang-format").is_file() for folder in path.parents)
    style = "file" if own else f"file:{FOLDER / 'project/clang-format.j2'}"
    options = (
        ["format", "--stdin-filename", path, "-"] if is_python else [f"--style={style}", f"--assume-filename={path}"]
    )
    done = subprocess.run(
        [program, *options], input=text, capture_output=True, encoding="utf-8", errors="surrogateescape", check=False
    )
    return done.stdout if done.returncode == 0 else text


def python_line(head: str, items: Sequence[str], tail: str = "") -> str:
    """`head`, items with commas, `tail`; one item a line where that is too long. Without a tail there are no brackets,
    but where lines are broken."""
    whole = head + ", ".join(items) + tail
    if len(whole) <= PYTHON_WIDTH or (not tail and len(items) == 1):
        return whole
    if not tail:
        head, tail = f"{head}(", ")"
    space = " " * (len(head) - len(head.lstrip()))
    return "\n".join([head, *(f"{space}    {item}," for item in items), space + tail.removeprefix(",")])


def python_call(head: str, call: str, tail: str = "") -> str:
    """`head`, a call or another expression, `tail`; the call's arguments have a line of their own if it is too long."""
    name, _, arguments = call.partition("(")
    if len(whole := head + call + tail) <= PYTHON_WIDTH or not name.replace(".", "").isidentifier():
        return whole
    space = " " * (len(head) - len(head.lstrip()))
    return f"{head}{name}(\n{space}    {arguments[:-1]}\n{space}){tail}"


def cpp_line(head: str, items: Sequence[str], tail: str) -> str:
    """`head`, items with commas, `tail`; where that is too long, items fill lines that begin below the first."""
    pieces = [*(f"{item}," for item in items[:-1]), *(f"{item}{tail}" for item in items[-1:])]
    return _fill(pieces, head, " " * len(head), CPP_WIDTH) if items else head + tail


def cpp_chains(head: str, calls: Sequence[str]) -> str:
    """Statements of a line each: `head`, and as many of the calls of its methods as fit; a line for each method where
    not even one fits."""
    lines = [head]
    for call in calls:
        if lines[-1] != head and len(f"{lines[-1]}{call};") > CPP_WIDTH:
            lines.append(head)
        lines[-1] += call
    broken = ")\n" + " " * (len(head) - len(head.lstrip()) + 4) + "."
    return "\n".join(f"{line if len(line) < CPP_WIDTH else line.replace(').', broken)};" for line in lines)


def _prose(text: str, *, prefix: str, hanging: str = "") -> str:
    """Prose in lines of Python that begin with `prefix`, from the second on with `prefix` and `hanging`."""
    return _fill(text.split(), prefix, prefix + hanging, PYTHON_WIDTH)


def _cpp_comment(text: str, *, indent: int = 0) -> str:
    """A comment of as many lines as needed; leading spaces indent every line."""
    prefix = f"{' ' * indent}// {' ' * (len(text) - len(text.lstrip()))}"
    return _fill(text.split(), prefix, prefix, CPP_WIDTH)


def _fill(pieces: Sequence[str], first: str, others: str, width: int) -> str:
    """Lines with as many pieces as fit, after `first` or `others`."""
    lines = [first + pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(others + piece)
    return "\n".join(lines)
