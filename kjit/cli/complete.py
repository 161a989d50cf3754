"""Shell completion for names of ops."""

from __future__ import annotations

from kjit.errors import KjitError


def ops(incomplete: str) -> list[str]:
    """The project's ops with this prefix; none without a project, as completion must not print errors."""
    from kjit.project import find_project

    try:
        known = find_project().ops()
    except KjitError:
        return []
    return [op for op in known if op.startswith(incomplete)]
