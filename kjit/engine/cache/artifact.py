"""One artifact on disk: its record, and checks of its integrity.

A folder with two files: the library, and `record.jsonl` with what it was built from and the size and hash of the
library. The record is written to another name and renamed, so that no reader sees half of it. A library that differs
from the record counts as damaged, which has the same effect as missing. So does a record with a wrong checksum: one
without the line about some header would otherwise be trusted forever.

A load reads the whole library and compares a CRC-32. It detects damage by disks, copies and crashes, at five times the
speed of a cryptographic hash, which took up to half of a look-up. Neither protects against an attacker, because the
record is beside the library. Libraries from a shared cache, and all libraries in `kjit cache verify`, are also compared
by SHA-256.

The lines of a record are read one by one (`manifest.intact_lines`): a list of ten thousand artifacts reads only the
first ones, and a hit does not parse the last.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kjit.engine.key.headers import compare
from kjit.engine.key.key import Key
from kjit.runtime import ALTERED, digest, read_file, read_library, weakness
from kjit.runtime.manifest import FORMAT, Reads, checksum, intact_lines, reads_on
from kjit.runtime.manifest import RECORD as RECORD

_LONGEST_SUMMARY = 8192
RECORD_BEING_WRITTEN = re.compile(r"record\.jsonl\.[0-9a-f]+")
DAMAGED = "the artifact in the cache is damaged:"
"""The beginning of a reason for damaged artifacts."""
UNTRUSTED = "the artifact in the cache is not trusted:"
"""The beginning of a reason for artifacts that somebody other than the cache's owner may have changed."""


@dataclass(frozen=True)
class Artifact:
    """A built library and its record.

    Attributes:
        path: its folder, which contains the library and the record, and nothing else.
        used: the last use, within half an hour; seconds since 1970.
        is_outdated: the record on disk has older times of headers than `record`.
    """

    path: str
    record: Mapping[str, object]
    used: float
    is_outdated: bool = False

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

    @property
    def op(self) -> str:
        return str(self.record["op"])

    @property
    def label(self) -> str:
        """For display: `scale<fp32_t>`."""
        return str(self.record["label"])

    @property
    def target(self) -> str:
        return str(self.record["target"])

    @property
    def size(self) -> int:
        """Bytes of the library."""
        size = self.record["size"]
        assert isinstance(size, int)  # checked when it was read
        return size

    @property
    def project(self) -> str:
        """The folder of its project at build time; empty if there was none."""
        return str(self.record.get("project", ""))

    def is_of(self, folders: Iterable[str]) -> bool:
        """Whether its project is in one of these folders, or is one of them; `folders` are real paths."""
        home = os.path.realpath(self.project) if self.project else ""
        return any(f"{home}/".startswith(f"{folder}/") for folder in folders)

    @property
    def arguments(self) -> list[str]:
        """The arguments that distinguish the variant from others of the op."""
        arguments = self.record["arguments"]
        assert isinstance(arguments, list)  # checked when it was read
        return [str(argument) for argument in arguments]

    @property
    def build(self) -> Mapping[str, object]:
        """The report of the build: `seconds`, `resources`, `commands`, `warnings`."""
        build = self.record["build"]
        assert isinstance(build, dict)  # checked when it was read
        return build

    @property
    def built(self) -> float:
        """The time of the build, in seconds since 1970."""
        built = self.record["built"]
        assert isinstance(built, float)  # checked when it was read
        return built


def read_artifact(folder: str, owners: tuple[int, ...] | None = None) -> Artifact | str:
    """The artifact in `folder` according to its record, or what is wrong with it. The library is not read.

    Args:
        owners: only these users may be able to change the record; None if nothing is loaded from it.
    """
    try:
        content, status = read_file(f"{folder}/{RECORD}", os.O_NOFOLLOW)
    except FileNotFoundError:
        return f"{DAMAGED} its record is missing"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"{DAMAGED} its record is a symbolic link"
        return f"its record cannot be read ({error.strerror})"
    if owners is not None and (weak := weakness(status, owners)) is not None:
        return f"{UNTRUSTED} its record {weak}"
    try:
        lines = intact_lines(content)
        summary = json.loads(lines[0])
    except (ValueError, RecursionError):
        return f"{DAMAGED} its record was altered"
    return _fault(summary) or Artifact(folder, Record(summary, *lines[1:]), status.st_mtime)


def read_summary(folder: str) -> dict[str, Any] | str:
    """Like `read_artifact`, but only the first part of the record: without `reads`, `inputs` and `build`."""
    try:
        handle = os.open(f"{folder}/{RECORD}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            lines = os.read(handle, _LONGEST_SUMMARY).split(b"\n")
        finally:
            os.close(handle)
        summary = json.loads(lines[1]) if len(lines) > 2 else None
    except (OSError, ValueError, RecursionError):
        summary = None
    if summary is None or _fault(summary) is not None:
        artifact = read_artifact(folder)  # this has the reason
        return artifact if isinstance(artifact, str) else dict(artifact.record)
    assert isinstance(summary, dict)
    return summary


def _fault(summary: Any) -> str | None:
    """The mistake in the summary of a record; None if there is none."""
    if not isinstance(summary, dict):
        return f"{DAMAGED} its record is not a JSON object"
    if summary.get("format") != FORMAT:
        return f"it was written by another version of kjit (format {summary.get('format')})"
    for field, kind in _SUMMARY.items():
        if type(summary.get(field)) is not kind:
            return f"{DAMAGED} its record has no {field}"
    if not _OP.fullmatch(summary["op"]):
        return f"{DAMAGED} its record names no op"
    return None


class Record(Mapping[str, object]):
    """A record whose second and third parts are parsed on first use."""

    def __init__(self, summary: dict[str, object], compared: bytes, reports: bytes) -> None:
        """The first part parsed, the others as text."""
        self._parsed = summary
        self._compared = compared
        self._reports = reports

    @property
    def reads(self) -> Reads:
        """The files that were read.

        Raises:
            LookupError, TypeError, ValueError: it has none.
        """
        return reads_on(self._compared)

    def __getitem__(self, field: str) -> object:
        return self._parsed[field] if field in self._parsed else self._whole()[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def _whole(self) -> dict[str, object]:
        if self._reports:
            self._parsed |= {"reads": json.loads(self._compared), **json.loads(self._reports)}
            self._reports = b""
        return self._parsed


_SUMMARY = {
    "op": str,
    "label": str,
    "arguments": list,
    "target": str,
    "key1": str,
    "key2": str,
    "source_key": str,
    "size": int,
    "digest": str,
    "crc32": int,
    "built": float,
}
_REPORTS = ("inputs", "build")
_OP = re.compile(r"\w+")


def match(folder: str, key: Key, owners: tuple[int, ...], *, thorough: bool = False) -> Artifact | str:
    """The artifact in `folder` if it is intact and up to date for `key`, else the reason.

    The loader opens the library again, by its path. It is the same file, because nobody else can replace it, its folder
    or the folders above, which store.py checks.

    Args:
        owners: only these users may be able to change anything in it.
        thorough: also compare the cryptographic hash of its library.
    """
    artifact = untrusted(folder, owners) or read_artifact(folder, owners)
    if isinstance(artifact, str):
        return artifact
    record = artifact.record
    if record["key1"] != key.key1 or record["op"] != key.variant.spec.name:
        return f"{DAMAGED} its record belongs to another artifact"
    assert isinstance(record, Record)  # of `read_artifact`
    try:
        before = record.reads
        after = compare(before, key.project)
    except (LookupError, TypeError, ValueError):
        return f"{DAMAGED} its record lists no headers"
    if isinstance(after, str):
        return after
    broken = damage(artifact, owners, thorough=thorough)
    if broken is not None:
        return broken
    if after is before:
        return artifact
    return Artifact(artifact.path, {**record, "reads": after.to_json()}, artifact.used, is_outdated=True)


def describe(library: bytes) -> dict[str, object]:
    """The fields of a record about its library."""
    return {"size": len(library), "digest": digest(library), "crc32": binascii.crc32(library)}


def untrusted(folder: str, owners: tuple[int, ...]) -> str | None:
    """Why the folder of an artifact is not trusted: somebody not in `owners` can change it. None if nobody can, or if
    there is no such folder."""
    try:
        weak = weakness(os.lstat(folder), owners)
    except OSError:
        return None
    return None if weak is None else f"{UNTRUSTED} its folder {weak}"


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
        difference = read.difference(artifact.record)
        if difference is None and thorough:
            content, _ = read_file(artifact.library_path, os.O_NOFOLLOW)
            difference = None if digest(content) == artifact.record["digest"] else ALTERED
    except FileNotFoundError:
        return f"{DAMAGED} its library is missing"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"{DAMAGED} its library is a symbolic link"
        return f"its library cannot be read ({error.strerror})"
    return None if difference is None else f"{DAMAGED} its library {difference}"


def write_record(folder: Path, record: Mapping[str, object]) -> None:
    """Write the record of `folder`, replacing an earlier one.

    Raises:
        OSError: it cannot be written; an earlier one is still there.
    """
    being_written = folder / f"{RECORD}.{secrets.token_hex(4)}"
    try:
        # No group may write to it, whatever the umask.
        handle = os.open(being_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(handle, "wb") as file:
            file.write(_written(record))
        os.replace(being_written, folder / RECORD)
    except OSError:
        with contextlib.suppress(OSError):
            being_written.unlink()
        raise


def _written(record: Mapping[str, object]) -> bytes:
    summary = {field: value for field, value in record.items() if field not in ("reads", *_REPORTS)}
    parts = (summary, record["reads"], {field: record[field] for field in _REPORTS})
    body = b"\n".join(json.dumps(part, separators=(",", ":")).encode("ascii") for part in parts)
    return checksum(body) + b"\n" + body
