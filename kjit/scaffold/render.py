"""Templates rendered to text.

Jinja, with everything undefined an error: a misspelt name in a template must not become a hole in someone's kernel. The
few functions that templates may call wrap prose; everything else comes in the context. A statement that has become too
long for its line is broken afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.scaffold.layout import CPP_WIDTH, break_cpp, break_python, wrap_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent.parent / "templates"


def render(template: str, context: Mapping[str, object], *, python_width: int = 88) -> str:
    """The text of a template, which is named relative to `kjit/templates`.

    Args:
        python_width: the line length that the project's Python code is formatted to.
    """
    text = _environment(python_width).get_template(template).render(context)
    if template.startswith("op/csrc/"):
        return break_cpp(text)
    return break_python(text, python_width) if template.endswith(".py.j2") else text


@cache
def _environment(python_width: int) -> Environment:
    """It keeps the templates that it has compiled, which takes far longer than to render them."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.globals.update(
        comment=_cpp_comment,
        cpp_width=CPP_WIDTH,
        tuple=_python_tuple,
        python_width=python_width,
        prose=partial(wrap_text, width=python_width),
    )
    return environment


def _cpp_comment(text: str, *, indent: int = 0) -> str:
    """A comment in as many lines as it needs; spaces at its start indent every line of it."""
    inner = " " * (len(text) - len(text.lstrip()))
    return wrap_text(text, prefix=f"{' ' * indent}// {inner}", width=CPP_WIDTH)


def _python_tuple(items: Iterable[str]) -> str:
    """A tuple of these expressions."""
    texts = list(items)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
