"""Shell completion for names of ops."""

from __future__ import annotations

from kjit.errors import KjitError


def ops(incomplete: str) -> list[str]:
    """The project's ops that begin so; none where there is no project, as a shell is no place for an error."""
    from kjit.project import find_project

    try:
        known = find_project().ops()
    except KjitError:
        return []
    return [op for op in known if op.startswith(incomplete)]
