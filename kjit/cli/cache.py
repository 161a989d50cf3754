"""`kjit cache`: the contents of the cache and of shared caches."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING

import typer

from kjit.cli import console, text
from kjit.cli.options import Json, Ops
from kjit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kjit.engine.cache.artifact import Artifact
    from kjit.engine.cache.contents import Entry
    from kjit.engine.cache.store import Store

cache_app = typer.Typer(help="Show, verify and clean the cache.", no_args_is_help=True)


@cache_app.command("path")
def path() -> None:
    """Print the cache's folder, and on stderr those of shared caches."""
    from kjit import env

    console.say(str(env.cache_dir()))
    for shared in env.shared_cache_dirs():
        console.note(f"shared: {shared}{'' if shared.is_dir() else ' (not there)'}")


@cache_app.command("size")
def size(json: Json = False) -> None:
    """Print the number of artifacts and their size."""
    from kjit import env
    from kjit.engine.cache.store import Store

    store = Store.open()
    support = store.support_size()
    targets: dict[str, list[int]] = {}
    for entry in store.entries():
        targets.setdefault(entry.target, []).append(entry.size)
    sizes = [size for each in targets.values() for size in each]
    shared = [(cache.root, [entry.size for entry in cache.entries()]) for cache in store.shared_caches()]
    if json:
        console.print_json(
            {
                "path": str(store.root),
                "artifacts": len(sizes),
                "bytes": sum(sizes) + support,
                "limit": env.cache_max_size(),
                "targets": {target: {"artifacts": len(each), "bytes": sum(each)} for target, each in targets.items()},
                "support": support,
                "shared": [{"path": str(root), "artifacts": len(each), "bytes": sum(each)} for root, each in shared],
            }
        )
        return
    console.say(f"{text.count(len(sizes), 'artifact')}, {text.size(sum(sizes) + support)} in {store.root}")
    for target, each in targets.items():
        console.say(f"  {target}: {text.count(len(each), 'artifact')}, {text.size(sum(each))}")
    if support:
        console.say(f"  code that all modules share: {text.size(support)}")
    for root, each in shared:
        console.say(f"{text.count(len(each), 'artifact')}, {text.size(sum(each))} in {root} (shared)")


@cache_app.command("ls")
def ls(ops: Ops = None, json: Json = False) -> None:
    """List the artifacts: variant, target, size, build time, last use.

    The libraries themselves are not checked; `kjit cache verify` does that.
    """
    from kjit.engine.cache.store import Store

    store = Store.open()
    found = [(cache, entry, cache.read(entry, thorough=False)) for cache, entry in _chosen(store, ops)]
    if json:
        console.print_json_rows([_to_json(*each) for each in found])
        return
    if not found:
        console.note(f"The cache {store.root} has no artifacts{' of these ops' if ops else ''}.")
        return

    shared = store.shared_caches()
    rows = []
    for cache, entry, record in found:
        # Prefixes of both keys that identify the folder.
        key = "/".join(part[:8] for part in entry.key.split("/")[2:])
        where = [str(cache.root)] if cache.is_shared else []
        if isinstance(record, str):
            label, built = f"{entry.op} (damaged)", "-"
        else:
            label, built = record.label, text.age(record.built)
        rows.append((label, entry.target, text.size(entry.size), built, text.age(entry.used), key, *where))
    text.print_rows(
        ("variant", "target", "size", "built", "used", "key", *(["shared cache"] if shared else [])),
        rows,
        right=("size", "built", "used"),
    )


@cache_app.command("verify")
def verify(ops: Ops = None, json: Json = False) -> None:
    """Check every artifact against its record. A damaged one is never loaded: it is built again when needed.

    Also reports parts that others than the cache's owner can change, which are not loaded either.

    Exit status 1: an artifact is damaged, or others can change something.
    """
    from kjit.engine.cache.artifact import UNTRUSTED
    from kjit.engine.cache.folders import how_to_close
    from kjit.engine.cache.store import Store

    store = Store.open()
    check_ops(ops or (), (entry for _, entry in _chosen(store, None)))
    checked = [(cache, entry, cache.read(entry)) for cache, entry in _chosen(store, ops)]
    damaged = [(cache, entry, artifact) for cache, entry, artifact in checked if isinstance(artifact, str)]
    open_ = [(cache, *part) for cache in (store, *store.shared_caches()) for part in cache.unsafe_parts()]
    if json:
        damages = [{"key": entry.key, "path": entry.path, "damage": damage} for _, entry, damage in damaged]
        unsafe = [{"path": path, "reason": f"it {weak}"} for _, path, weak in open_]
        console.print_json({"artifacts": len(checked), "damaged": damages, "unsafe": unsafe})
    else:
        for _, entry, damage in damaged:
            console.say(f"{entry.path}: {damage}")
        for _, path, weak in open_:
            console.say(f"{path}: it {weak}")
        console.say(f"{text.count(len(checked), 'artifact')} checked, {len(damaged)} damaged")
        if open_ or any(damage.startswith(UNTRUSTED) for _, _, damage in damaged):
            root = (open_[0] if open_ else damaged[0])[0].root
            console.note(f"Others could change code there: {how_to_close(root)}.")
    if damaged or open_:
        raise typer.Exit(1)


def check_ops(ops: Sequence[str], entries: Iterable[Entry]) -> None:
    """Refuse ops without artifacts in `entries`.

    Raises:
        UsageError: an op has none.
    """
    known = sorted({entry.op for entry in entries}) if ops else []
    for op in ops:
        if op not in known:
            near = difflib.get_close_matches(op, known, n=3)
            raise UsageError(
                f"the cache has nothing of an op '{op}'.",
                hint=f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(known) or 'nothing'}",
            )


def _chosen(store: Store, ops: list[str] | None) -> Iterator[tuple[Store, Entry]]:
    for cache in (store, *store.shared_caches()):
        for entry in cache.entries():
            if not ops or entry.op in ops:
                yield cache, entry


def _to_json(cache: Store, entry: Entry, record: Artifact | str) -> dict[str, object]:
    document: dict[str, object] = {
        "op": entry.op,
        "target": entry.target,
        "bytes": entry.size,
        "used": _date(entry.used),
        "key": entry.key,
        "path": entry.path,
        "shared": cache.is_shared,
    }
    if isinstance(record, str):
        return {**document, "damage": record}
    return {**document, "arguments": record.arguments, "built": _date(record.built)}


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
