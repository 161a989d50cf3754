"""One artifact on disk: its record, and checks of its integrity.

A folder `<target>/<op>/<key1>/<key2>` with two files: the library, and `record.jsonl` with what it was built from and
the size and hash of the library. The record is written to another name and renamed, so that no reader sees half of it.
A library that differs from the record counts as damaged, which has the same effect as missing. So does a record with a
wrong checksum: one without the line about some header would otherwise be trusted forever.

A load reads the whole library and compares a CRC-32. It detects damage by disks, copies and crashes, at five times the
speed of a cryptographic hash, which took up to half of a look-up. Neither protects against an attacker, because the
record is beside the library. Libraries from a shared cache, and all libraries in `kjit cache verify`, are also compared
by SHA-256.

A record has three JSON objects, one a line (`manifest.intact_lines`), each parsed when it is needed: a summary for
lists, what look-ups compare, and what was built how.
"""

from __future__ import annotations

import binascii
import errno
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kjit.engine.cache.folders import write_file
from kjit.engine.key.headers import compare
from kjit.engine.key.key import Key
from kjit.runtime import ALTERED, digest, read_file, read_library, weakness
from kjit.runtime.manifest import FORMAT, Reads, checksum, intact_lines, reads_on
from kjit.runtime.manifest import RECORD as RECORD

DAMAGED = "the artifact in the cache is damaged:"
"""The beginning of a reason for damaged artifacts."""
UNTRUSTED = "the artifact in the cache is not trusted:"
"""The beginning of a reason for artifacts that somebody other than the cache's owner may have changed."""

_SUMMARY = {
    "op": str,
    "label": str,
    "arguments": list,
    "target": str,
    "project": str,
    "key1": str,
    "key2": str,
    "size": int,
    "digest": str,
    "crc32": int,
    "built": float,
}
_OP = re.compile(r"\w+")


@dataclass(frozen=True)
class Artifact:
    """A built library and its record.

    Attributes:
        path: its folder, which contains the library and the record, and nothing else.
        lines: of the record.
        used: the last use, within half an hour; seconds since 1970.
        is_renewed: `lines` have newer times of headers than the record on disk.
    """

    path: str
    lines: tuple[bytes, ...]
    used: float
    is_renewed: bool = False

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def library(self) -> Path:
        return Path(self.library_path)

    @property
    def library_path(self) -> str:
        """`library` as a string, for loads: making a `Path` takes as long as reading a record."""
        return f"{self.path}/{self.op}.so"

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The fields of `_SUMMARY`."""
        return json.loads(self.lines[0])  # type: ignore[no-any-return]

    @property
    def reads(self) -> Reads:
        """The files that were read.

        Raises:
            LookupError, TypeError, ValueError: there are none.
        """
        return reads_on(self.lines[1])

    @cached_property
    def _reports(self) -> dict[str, Any]:
        return json.loads(self.lines[2])  # type: ignore[no-any-return]

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The documents of its key (`Key.inputs`)."""
        return self._reports["inputs"]  # type: ignore[no-any-return]

    @property
    def build(self) -> Mapping[str, Any]:
        """The report of the build: `seconds`, `resources`, `commands`, `warnings`."""
        return self._reports["build"]  # type: ignore[no-any-return]

    @property
    def op(self) -> str:
        return str(self.summary["op"])

    @property
    def label(self) -> str:
        """For display: `scale<fp32_t>`."""
        return str(self.summary["label"])

    @property
    def target(self) -> str:
        return str(self.summary["target"])

    @property
    def size(self) -> int:
        """Bytes of the library."""
        return int(self.summary["size"])

    @property
    def built(self) -> float:
        """The time of the build, in seconds since 1970."""
        return float(self.summary["built"])

    @property
    def arguments(self) -> list[str]:
        """The arguments that distinguish the variant from others of the op."""
        return [*map(str, self.summary["arguments"])]

    @property
    def project(self) -> str:
        """The folder of its project at build time; empty if there was none."""
        return str(self.summary["project"])

    def is_of(self, folders: Iterable[str]) -> bool:
        """Whether its project is in one of these folders, or is one of them; `folders` are real paths."""
        home = os.path.realpath(self.project) if self.project else ""
        return any(f"{home}/".startswith(f"{folder}/") for folder in folders)


def read_artifact(folder: str, owners: tuple[int, ...] | None = None) -> Artifact | str:
    """The artifact in `folder` according to its record, or what is wrong with it. The library is not read.

    Args:
        owners: only these users may be able to change its folder and its record; None if nothing is loaded from it.
    """
    try:
        if owners is not None and (weak := weakness(os.lstat(folder), owners)) is not None:
            return f"{UNTRUSTED} its folder {weak}"
        content, status = read_file(f"{folder}/{RECORD}", os.O_NOFOLLOW)
    except OSError as error:
        return _unreadable("record", error)
    if owners is not None and (weak := weakness(status, owners)) is not None:
        return f"{UNTRUSTED} its record {weak}"
    try:
        artifact = Artifact(folder, tuple(intact_lines(content)), status.st_mtime)
        summary: Any = artifact.summary
    except (ValueError, RecursionError):
        return f"{DAMAGED} its record was altered"
    if not isinstance(summary, dict):
        return f"{DAMAGED} its record is not a JSON object"
    if summary.get("format") != FORMAT:
        return f"it was written by another version of kjit (format {summary.get('format')})"
    for field, kind in _SUMMARY.items():
        if type(summary.get(field)) is not kind:
            return f"{DAMAGED} its record has no {field}"
    place = [artifact.target.replace(":", "-"), artifact.op, summary["key1"], summary["key2"]]
    if not _OP.fullmatch(artifact.op) or folder.split("/")[-4:] != place:
        return f"{DAMAGED} its record belongs to another artifact"
    return artifact


def match(folder: str, key: Key, owners: tuple[int, ...], *, thorough: bool = False) -> Artifact | str:
    """The artifact in `folder` if it is intact and up to date for `key`, else the reason. If headers have newer times
    than its record, it has those.

    The loader opens the library again, by its path. It is the same file, because nobody else can replace it, its folder
    or the folders above, which store.py checks.

    Args:
        owners: only these users may be able to change anything in it.
        thorough: also compare the cryptographic hash of its library.
    """
    artifact = read_artifact(folder, owners)
    if isinstance(artifact, str):
        return artifact
    try:
        before = artifact.reads
        after = compare(before, key.project)
    except (LookupError, TypeError, ValueError):
        return f"{DAMAGED} its record lists no headers"
    if isinstance(after, str):
        return after
    broken = damage(artifact, owners, thorough=thorough)
    if broken is not None or after is before:
        return broken or artifact
    lines = (artifact.lines[0], _as_json(after.to_json()), artifact.lines[2])
    return Artifact(folder, lines, artifact.used, is_renewed=True)


def describe(library: bytes) -> dict[str, Any]:
    """The fields of a record about its library."""
    return {"size": len(library), "digest": digest(library), "crc32": binascii.crc32(library)}


def damage(artifact: Artifact, owners: tuple[int, ...], *, thorough: bool = False) -> str | None:
    """The damage to the library of an artifact, as a sentence; None if it is intact.

    Args:
        owners: only these users may be able to change it.
        thorough: also compare the cryptographic hash.
    """
    try:
        read = read_library(artifact.library_path, os.O_NOFOLLOW)
        if (weak := weakness(read.status, owners)) is not None:
            return f"{UNTRUSTED} its library {weak}"
        difference = read.difference(artifact.summary)
        if difference is None and thorough:
            content, _ = read_file(artifact.library_path, os.O_NOFOLLOW)
            difference = None if digest(content) == artifact.summary["digest"] else ALTERED
    except OSError as error:
        return _unreadable("library", error)
    return None if difference is None else f"{DAMAGED} its library {difference}"


def _unreadable(what: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{DAMAGED} its {what} is missing"
    if error.errno == errno.ELOOP:
        return f"{DAMAGED} its {what} is a symbolic link"
    return f"its {what} cannot be read ({error.strerror})"


def lines_of(summary: Mapping[str, object], reads: Reads, reports: Mapping[str, object]) -> tuple[bytes, ...]:
    """The lines of a record.

    Args:
        summary: the fields of `_SUMMARY`.
        reports: `inputs` and `build`.
    """
    return _as_json({"format": FORMAT, **summary}), _as_json(reads.to_json()), _as_json(reports)


def write_record(folder: Path, lines: Iterable[bytes]) -> None:
    """Write the record of `folder`, replacing an earlier one.

    Raises:
        OSError: it cannot be written; an earlier one is still there.
    """
    body = b"\n".join(lines)
    write_file(folder / RECORD, checksum(body) + b"\n" + body)


def _as_json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii")
