"""How does a template become text?

Jinja, with everything undefined an error: a misspelt name in a template must not become a hole in someone's kernel. The
few functions that templates may call are the layout rules of `layout.py`; everything else comes in the context. C++
needs none: a statement that has become too long for its line is broken afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kjit.scaffold.cpp_layout import CPP_WIDTH, break_cpp, cpp_chain
from kjit.scaffold.layout import (
    python_expression,
    python_items,
    python_list,
    python_tuple,
    wrap_text,
)

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
        text = "".join(f"{break_cpp(line)}\n" for line in text.splitlines())
    return text


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
        cpp_chain=cpp_chain,
        comment=_cpp_comment,
        python_items=partial(python_items, width=python_width),
        python_list=partial(python_list, width=python_width),
        python_tuple=partial(python_tuple, width=python_width),
        python_expression=partial(python_expression, width=python_width),
        python_width=python_width,
        prose=partial(wrap_text, width=python_width),
    )
    return environment


def _cpp_comment(text: str, *, indent: int = 0) -> str:
    """A comment in as many lines as it needs; spaces at its start indent every line of it."""
    inner = " " * (len(text) - len(text.lstrip()))
    return wrap_text(text, prefix=f"{' ' * indent}// {inner}", width=CPP_WIDTH)
