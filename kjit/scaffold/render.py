"""Templates of an op as formatted code.

The functions that templates may call wrap prose; a statement that is too long for its line is broken
afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kjit.projects.templates import fill
from kjit.scaffold.layout import CPP_WIDTH, break_cpp, break_python, wrap_text
from kjit.scaffold.start import python_tuple


def render(template: str, context: Mapping[str, object], *, python_width: int = 88) -> str:
    """The text of a template, which is named relative to `kjit/templates`.

    Args:
        python_width: the line length that the project's Python code is formatted to.
    """
    helpers = {
        "comment": _cpp_comment,
        "cpp_width": CPP_WIDTH,
        "tuple": python_tuple,
        "python_width": python_width,
        "prose": partial(wrap_text, width=python_width),
    }
    text = fill(template, {**helpers, **context})
    return break_python(text, python_width) if template.endswith(".py.j2") else break_cpp(text)


def _cpp_comment(text: str, *, indent: int = 0) -> str:
    """A comment of as many lines as needed; leading spaces indent every line."""
    inner = " " * (len(text) - len(text.lstrip()))
    return wrap_text(text, prefix=f"{' ' * indent}// {inner}", width=CPP_WIDTH)
