"""`kjit cache`: what is in the cache."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kjit import env
from kjit.cli import console, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kjit.build.store import Artifact, Entry, Store

cache_app = typer.Typer(help="Show what is in the cache.", no_args_is_help=True)

_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@cache_app.command("path")
def path() -> None:
    """Print the cache's folder."""
    console.say(str(env.cache_dir()))


@cache_app.command("size")
def size(json: _Json = False) -> None:
    """Print how many artifacts there are, and how much space they take."""
    from kjit.build.store import Store

    store = Store.open()
    sizes: dict[str, list[int]] = {}
    for entry in store.entries():
        sizes.setdefault(entry.target, []).append(entry.size)
    shared = sum(file.stat().st_size for file in store.shared_code())
    artifacts, total = sum(map(len, sizes.values())), sum(map(sum, sizes.values())) + shared
    if json:
        targets = {target: {"artifacts": len(each), "bytes": sum(each)} for target, each in sizes.items()}
        console.print_json(
            {"path": str(store.root), "artifacts": artifacts, "bytes": total, "targets": targets, "shared": shared}
        )
        return
    console.say(f"{text.count(artifacts, 'artifact')}, {text.size(total)} in {store.root}")
    for target, each in sizes.items():
        console.say(f"  {target}: {text.count(len(each), 'artifact')}, {text.size(sum(each))}")
    if shared:
        console.say(f"  code that all modules share: {text.size(shared)}")


@cache_app.command("ls")
def ls(
    ops: Annotated[list[str] | None, typer.Argument(metavar="OP", help="Only these ops; default all.")] = None,
    json: _Json = False,
) -> None:
    """List the artifacts: variant, target, size, when it was built and last used (to the day)."""
    from kjit.build.store import Store

    store = Store.open()
    found = [(entry, store.read(entry)) for entry in _chosen(store, ops)]
    if json:
        console.print_json([_to_json(entry, artifact) for entry, artifact in found])
        return
    if not found:
        console.note(f"The cache {store.root} has no artifacts{' of these ops' if ops else ''}.")
        return

    table = text.table(("variant", "target"), ("size", "built", "used"), ("key",))
    for entry, artifact in found:
        if isinstance(artifact, str):
            label, built = f"{entry.op} [red](damaged)[/]", "-"
        else:
            label, built = artifact.label, text.age(artifact.built)
        # Enough of both keys to find the folder.
        key = "/".join(part[:8] for part in entry.key.split("/")[2:])
        table.add_row(label, entry.target, text.size(entry.size), built, text.age(entry.used), key)
    text.print_table(table)


@cache_app.command("verify")
def verify(
    ops: Annotated[list[str] | None, typer.Argument(metavar="OP", help="Only these ops; default all.")] = None,
    json: _Json = False,
) -> None:
    """Check every artifact against its record. A damaged one is never loaded: it is built again when it is needed.

    Exit status 1: an artifact is damaged.
    """
    from kjit.build.store import Store

    store = Store.open()
    checked = [(entry, store.read(entry)) for entry in _chosen(store, ops)]
    damaged = [(entry, artifact) for entry, artifact in checked if isinstance(artifact, str)]
    if json:
        damages = [{"key": entry.key, "path": str(entry.folder), "damage": damage} for entry, damage in damaged]
        console.print_json({"artifacts": len(checked), "damaged": damages})
    else:
        for entry, damage in damaged:
            console.say(f"{entry.folder}: {damage}")
        console.say(f"{text.count(len(checked), 'artifact')} checked, {len(damaged)} damaged")
    if damaged:
        raise typer.Exit(1)


def _chosen(store: Store, ops: list[str] | None) -> Iterator[Entry]:
    return (entry for entry in store.entries() if not ops or entry.op in ops)


def _to_json(entry: Entry, artifact: Artifact | str) -> dict[str, object]:
    document: dict[str, object] = {
        "op": entry.op,
        "target": entry.target,
        "bytes": entry.size,
        "used": _date(entry.used),
        "key": entry.key,
        "path": str(entry.folder),
    }
    if isinstance(artifact, str):
        return {**document, "damage": artifact}
    return {**document, "arguments": artifact.arguments, "built": _date(artifact.built)}


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
