"""`kjit clean-cache`: remove built modules from the cache."""

from __future__ import annotations

import difflib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from kjit.cli import console, text
from kjit.errors import UsageError

if TYPE_CHECKING:
    from kjit.build.store import Entry, Store


def clean_cache(
    ops: Annotated[list[str] | None, typer.Argument(metavar="OP", help="Only these ops; default all.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Only what was not used for so long, like 30d.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove built modules from the cache, after showing what goes and how large it is.

    Programs that run keep what they have loaded. What kjit did not put into the folder stays.
    """
    from kjit.build.store import Store

    store = Store.open()
    everything = list(store.entries())
    chosen = _choose(everything, ops or [], older_than)
    is_all = not ops and older_than is None
    shared = sum(file.stat().st_size for file in store.support_code()) if is_all else 0
    if not chosen and not shared:
        console.note(f"Nothing to remove: the cache {store.root} has {_what_there_is(everything, is_all)}.")
        _sweep(store, dry_run)
        return
    _show(chosen, shared)
    if dry_run:
        console.note("Nothing was removed (--dry-run).")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("there is nobody to ask whether to remove this.", hint="add --yes, or look with --dry-run")
        if not typer.confirm("Remove?", err=True):
            console.note("Nothing was removed.")
            return
    freed = sum(store.remove(entry) for entry in chosen)
    if is_all:
        freed += store.remove_support_code()
    _sweep(store, dry_run)
    console.say(f"removed {text.count(len(chosen), 'artifact')}, {text.size(freed)}, from {store.root}")


def _choose(entries: list[Entry], ops: list[str], older_than: str | None) -> list[Entry]:
    known = sorted({entry.op for entry in entries})
    for op in ops:
        if op not in known:
            near = difflib.get_close_matches(op, known, n=3)
            raise UsageError(
                f"nothing of an op '{op}' is in the cache.",
                hint=f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(known) or 'nothing'}",
            )
    latest = time.time() - text.duration(older_than) if older_than is not None else float("inf")
    return [entry for entry in entries if (not ops or entry.op in ops) and entry.used <= latest]


def _show(entries: list[Entry], shared: int) -> None:
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.op, entry.target), []).append(entry)
    table = text.table(("op", "target"), ("artifacts", "size", "last used"))
    for (op, target), group in sorted(groups.items()):
        newest = max(entry.used for entry in group)
        table.add_row(op, target, str(len(group)), text.size(sum(each.size for each in group)), text.age(newest))
    if shared:
        table.add_row("(shared code)", "", "", text.size(shared), "")
    total = sum(entry.size for entry in entries) + shared
    table.add_row("[bold]all[/]", "", str(len(entries)), text.size(total), "")
    text.print_table(table)


def _what_there_is(everything: list[Entry], is_all: bool) -> str:
    if is_all or not everything:
        return "no artifacts"
    return f"{text.count(len(everything), 'artifact')}, and none that was not used for so long"


def _sweep(store: Store, dry_run: bool) -> None:
    swept = 0 if dry_run else store.sweep()
    if swept:
        console.note(f"removed what {text.count(swept, 'build')} left behind that did not end well")
