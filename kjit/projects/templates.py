"""The templates of kjit as text.

Jinja, with everything undefined an error: a misspelt name in a template must not leave a gap in a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent.parent / "templates"


def fill(template: str, context: Mapping[str, object]) -> str:
    """The text of a template, which is named relative to `kjit/templates`."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    """The environment of all templates; it caches compiled ones, as compiling takes far longer than rendering."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
