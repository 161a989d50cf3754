"""Helpers of the tests of the cache: artifacts that were never compiled, and the state of everything in a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kjit.engine.cache.artifact import write_record
from kjit.engine.cache.store import Artifact, Store
from kjit.engine.key.key import Key
from kjit.engine.key.observation import Observation
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Spec, Target, Variant

LIBRARY = b"\x7fELF and so on"
BUILD = {"seconds": 1.5, "resources": [], "warnings": "", "commands": [], "compiler": "", "why_nvcc": ""}


def key_of(spec: Spec) -> Key:
    return Key.of(Variant(spec, Target.cpu()), Toolchain.for_target(Target.cpu()))


def publish(store: Store, key: Key, content: bytes = LIBRARY) -> Artifact:
    """Publish an artifact as a build does, with a library that is never loaded."""
    header = key.variant.spec.cpp_files[0].replace(".cpp", ".h")
    reads = Observation.of([header], key, Toolchain.for_target(Target.cpu())).reads
    writable = store.writable()
    with writable.lock(key), writable.staging() as staging:
        (staging / "built.so").write_bytes(content)
        return writable.publish(key, staging / "built.so", reads, BUILD, staging)


def everything_in(folder: Path) -> dict[str, tuple[int, int, int]]:
    """All that is in a folder, and it itself, with what any change to it would change: a file that came and went has
    left a new date on its folder."""
    paths = [folder, *folder.rglob("*")]
    status = {str(path): path.lstat() for path in paths}
    return {path: (each.st_size, each.st_mtime_ns, each.st_ctime_ns) for path, each in status.items()}


def rewrite(artifact: Artifact, line: int, *path: str, value: object) -> None:
    """Change one value of a line of a record."""
    documents = [json.loads(each) for each in artifact.lines]
    inner = documents[line]
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    write_record(artifact.folder, [json.dumps(each).encode() for each in documents])


def age(artifact: Artifact, seconds: float) -> None:
    """Make an artifact one that was last used so long ago."""
    used = artifact.used - seconds
    os.utime(artifact.folder / "record.jsonl", (used, used))
