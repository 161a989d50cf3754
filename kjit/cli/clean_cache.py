"""`kjit clean-cache`: remove built modules from the cache."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from kjit.cli import console, text
from kjit.cli.cache import check_ops
from kjit.cli.options import Ops, Yes
from kjit.errors import CacheError, UsageError

if TYPE_CHECKING:
    from kjit.engine.cache.contents import Entry
    from kjit.engine.cache.store import Store


def clean_cache(
    ops: Ops = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Only artifacts not used for this long, like 30d."),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only artifacts that no current source of this project can hit.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON; needs --yes or --dry-run.")] = False,
) -> None:
    """Remove built modules from the cache.

    They are shown first, with their sizes. Running programs keep what they have loaded. Files that are not kjit's stay,
    and nothing is ever removed from a shared cache.

    Exit status 1: something could not be deleted; the rest was.
    """
    from kjit.engine.cache.store import Store

    if json and not yes and not dry_run:
        raise UsageError("--json cannot ask.", hint="add --yes, or see the changes with --dry-run")
    store = Store.open()
    everything = list(store.entries())
    check_ops(ops or (), everything)
    latest = time.time() - text.duration(older_than) if older_than is not None else math.inf
    reasons = _find_stale(store) if stale else {}
    chosen = [
        entry
        for entry in everything
        if (not ops or entry.op in ops) and entry.used <= latest and (not stale or entry.path in reasons)
    ]
    is_all = not ops and older_than is None and not stale
    others: dict[str, int] = {}
    if is_all:
        support = store.support_size()
        others = {"(shared code)": support, "(sources given as text)": store.texts_size()}
    has_some = bool(chosen or any(others.values()))
    if not json and has_some:
        _show(chosen, others, reasons)
    elif not json:
        console.note(
            f"Nothing to remove: of {text.count(len(everything), 'artifact')} in {store.root} none was chosen."
        )
    if not json and dry_run:
        console.note("Nothing was removed (--dry-run).")
        return
    if not dry_run and has_some and not console.confirm("Remove", nothing="Nothing was removed.", yes=yes):
        return
    freed, errors = 0, list[CacheError]()
    if not dry_run:
        freed, chosen, errors = _remove(store, chosen, is_all)
        if swept := store.sweep():
            console.note(f"removed the remains of {text.count(swept, 'aborted build')}")
    if json:
        removed = [{"key": entry.key, "bytes": entry.size, "reason": reasons.get(entry.path)} for entry in chosen]
        document = {"path": str(store.root), "dry_run": dry_run, "artifacts": removed, "freed": freed}
        console.print_json({**document, "errors": [error.message for error in errors]})
    elif has_some:
        console.say(f"removed {text.count(len(chosen), 'artifact')}, {text.size(freed)}, from {store.root}")
    for error in errors:
        console.print_error(error.message, error.hint)
    if errors:
        raise typer.Exit(1)


def _remove(store: Store, chosen: list[Entry], is_all: bool) -> tuple[int, list[Entry], list[CacheError]]:
    """Remove artifacts: the freed bytes, the removed artifacts, and the reasons why others could not be removed."""
    freed = 0
    gone: list[Entry] = []
    errors: list[CacheError] = []
    for entry in chosen:
        try:
            freed += store.remove(entry)
            gone.append(entry)
        except CacheError as error:
            errors.append(error)
    if is_all:
        try:
            freed += store.remove_rest()
        except CacheError as error:
            errors.append(error)
    return freed, gone, errors


def _find_stale(store: Store) -> dict[str, str]:
    """The folders of the stale artifacts, with the reasons."""
    from kjit.engine.cache.stale import find_stale
    from kjit.project import find_project

    return {entry.path: reason for entry, reason in find_stale(store, find_project().root)}


def _show(entries: list[Entry], others: Mapping[str, int], reasons: Mapping[str, str]) -> None:
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.op, entry.target, reasons.get(entry.path, "")), []).append(entry)
    rows = [
        (
            op,
            target,
            str(len(group)),
            text.size(sum(entry.size for entry in group)),
            text.age(max(entry.used for entry in group)),
            reason,
        )
        for (op, target, reason), group in sorted(groups.items())
    ]
    rows += [(name, "", "", text.size(size), "", "") for name, size in others.items() if size]
    total = sum(entry.size for entry in entries) + sum(others.values())
    rows.append(("all", "", str(len(entries)), text.size(total), "", ""))
    header = ("op", "target", "artifacts", "size", "last used", "why" if reasons else "")
    text.print_rows(header, rows, header[2:5])
