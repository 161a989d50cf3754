"""Pages of the site that are not in `docs/`: files of the checkout's root, docstrings of Python, comments of headers.

A hook of mkdocs (`mkdocs.yml`). Links are written for the checkout, where the README and the changelog are above
`docs/`; here they are rewritten for the site. A link to a file that is not a page is replaced by its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import header_names

import kjit
import kjit.benchmark
import kjit.testing

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
# Page of the site -> file of the checkout.
OUTSIDE = {"tour.md": "README.md", "changelog.md": "CHANGELOG.md"}
NAMES = "python-names.md"
CPP_NAMES = "cpp-names.md"
PUBLIC = (kjit, kjit.testing, kjit.benchmark)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in `docs/`."""
    from mkdocs.structure.files import File

    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, NAMES, content=python_names()))
    files.append(File.generated(config, CPP_NAMES, content=header_names.page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite the links of a page for the site."""
    del config
    source = OUTSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    pages = {f"docs/{file.src_uri}": file.src_uri for file in files.documentation_pages()}
    pages |= {source: page for page, source in OUTSIDE.items()}
    return with_links_to(markdown, source, pages)


def with_links_to(markdown: str, source: str, pages: dict[str, str]) -> str:
    """`markdown` of the file `source` with its links to files turned to `pages`, which are named by their files."""

    def turned(found: re.Match[str]) -> str:
        text, link = found.groups()
        target, mark, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not target:
            return found[0]
        page = pages.get(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
        return text if page is None else f"[{text}]({page}{mark}{anchor})"

    return re.sub(r"\[([^\[\]]+)\]\(([^()\s]+)\)", turned, markdown)


def python_names() -> str:
    """The page of docstrings; mkdocstrings replaces each line `::: name`."""
    lines = ["# Python names", "", "Every public name with its docstring. [Python API](python-api.md) has examples."]
    for module in PUBLIC:
        lines += ["", f"## {module.__name__}"]
        for name in sorted(module.__all__):
            if (home := home_of(module, name)) is not None:
                shown = f"{module.__name__}.{name}"
                lines += ["", f"::: {home}", "    options:", f"      heading: {shown}", f"      toc_label: {shown}"]
    return "\n".join(lines)


def home_of(module: ModuleType, name: str) -> str | None:
    """The full name of the definition of a public name of `module`; None for modules and constants."""
    value = getattr(module, name)
    if not (isinstance(value, type) or callable(value)):
        return None
    return f"{value.__module__}.{value.__qualname__}"
