"""What is an artifact on disk, and is it whole?

A folder with two files: the library, and `record.json`, which says what the library was built from, how large it is and
its hash. The record is written beside its place and renamed, so that nobody ever reads half of one. Whatever is not as
the record says counts as damaged, which is as good as missing. So does a record that is not as it was written: one that
lost a line about a header would be believed for as long as it lies there.

A load reads all of the library and compares a CRC-32: that finds what disks, copies and crashes do to a file, at five
times the speed of a cryptographic hash, which took up to half of a whole look-up. Against somebody who means harm
neither would help, as the record lies beside the library. What comes from a shared cache is compared by SHA-256 too,
and `kjit cache verify` compares all of them so.

A record is one JSON object on two lines. The first is what lists show; the second, ten times as long, what a look-up
compares. So a list of ten thousand artifacts reads the first lines only.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kjit.build.headers import Reads
from kjit.build.key import FORMAT, Key, digest

RECORD = "record.json"
_LONGEST_SUMMARY = 8192
RECORD_BEING_WRITTEN = re.compile(r"record\.json\.[0-9a-f]+")
DAMAGED = "the artifact in the cache is damaged:"
"""How the reasons begin why an artifact cannot be used that once was one."""


@dataclass(frozen=True)
class Artifact:
    """A built library and the record of what it was built from.

    Attributes:
        folder: holds the library and the record, and nothing else.
        used: when it was last used, give or take half an hour; seconds since 1970.
        is_outdated: the record on disk has older dates of headers than `record`.
    """

    folder: Path
    record: Mapping[str, object]
    used: float
    is_outdated: bool = False

    @property
    def library(self) -> Path:
        return self.folder / f"{self.op}.so"

    @property
    def op(self) -> str:
        return str(self.record["op"])

    @property
    def label(self) -> str:
        """For people: `scale<fp32_t>`."""
        return str(self.record["label"])

    @property
    def target(self) -> str:
        return str(self.record["target"])

    @property
    def size(self) -> int:
        """Bytes of the library."""
        size = self.record["size"]
        assert isinstance(size, int)  # parse_record has checked it
        return size

    @property
    def project(self) -> str:
        """The folder of the project that it was built for, as it was then; empty if it was for none."""
        return str(self.record.get("project", ""))

    @property
    def arguments(self) -> list[str]:
        """What tells the variant from others of the op."""
        arguments = self.record["arguments"]
        assert isinstance(arguments, list)  # parse_record has checked it
        return [str(argument) for argument in arguments]

    @property
    def build(self) -> Mapping[str, object]:
        """What the build told: `seconds`, `resources`, `commands`, `warnings`."""
        build = self.record["build"]
        assert isinstance(build, dict)  # parse_record has checked it
        return build

    @property
    def built(self) -> float:
        """When it was built; seconds since 1970."""
        built = self.record["built"]
        assert isinstance(built, float)  # parse_record has checked it
        return built


def read_artifact(folder: str) -> Artifact | str:
    """The artifact in `folder` by its record, or what is wrong with it. The library is not looked at."""
    try:
        with open(f"{folder}/{RECORD}", "rb") as file:
            content = file.read()
            used = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return f"{DAMAGED} its record is missing"
    except OSError as error:
        return f"its record cannot be read ({error.strerror})"
    seal = _SEAL.match(content)
    if seal is not None and seal[1] != _seal(content[seal.end() :]):
        return f"{DAMAGED} its record was altered"
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return f"{DAMAGED} its record is not JSON"
    if seal is None and isinstance(document, dict) and document.get("format") == FORMAT:
        return f"{DAMAGED} its record was altered"
    return parse_record(Path(folder), document, used)


def read_summary(folder: str, used: float) -> Artifact | str:
    """As `read_artifact`, from the first line of the record: `record` lacks `reads`, `inputs` and `build`."""
    try:
        handle = os.open(f"{folder}/{RECORD}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            line, end, _ = os.read(handle, _LONGEST_SUMMARY).partition(b",\n")
        finally:
            os.close(handle)
        document = json.loads(line + b"}") if end else None
    except (OSError, ValueError, RecursionError):
        document = None
    # Written otherwise, or not to be read: `read_artifact` says why.
    return read_artifact(folder) if document is None else parse_record(Path(folder), document, used, summary=True)


def parse_record(folder: Path, document: object, used: float, *, summary: bool = False) -> Artifact | str:
    """The artifact whose record is `document`, or what is wrong with that."""
    if not isinstance(document, dict):
        return f"{DAMAGED} its record is not a JSON object"
    if document.get("format") != FORMAT:
        return f"it was written by another version of kjit (format {document.get('format')})"
    for field, kind in (_SUMMARY if summary else _FIELDS).items():
        if type(document.get(field)) is not kind:
            return f"{DAMAGED} its record has no {field}"
    if not re.fullmatch(r"\w+", document["op"]):
        return f"{DAMAGED} its record names no op"
    return Artifact(folder, document, used)


# What a record begins with: the checksum of all that follows.
_SEAL = re.compile(rb'\{"seal":"([0-9a-f]{8})",')


def _seal(content: bytes) -> bytes:
    return b"%08x" % binascii.crc32(content)


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
_DETAILS = {"reads": dict, "inputs": dict, "build": dict}
_FIELDS = {**_SUMMARY, **_DETAILS}


def match(folder: str, key: Key, *, thorough: bool = False) -> Artifact | str:
    """The artifact in `folder` if it is whole and what `key` would be built to now, else why it is not.

    Args:
        thorough: compare the cryptographic hash of its library, too.
    """
    artifact = read_artifact(folder)
    if isinstance(artifact, str):
        return artifact
    record = artifact.record
    if record["key1"] != key.key1 or record["op"] != key.variant.spec.name:
        return f"{DAMAGED} its record belongs to another artifact"
    reads = record["reads"]
    assert isinstance(reads, dict)  # parse_record has checked it
    try:
        before = Reads.from_json(reads)
        after = before.compare(key.anchors)
    except (KeyError, TypeError, ValueError):
        return f"{DAMAGED} its record lists no headers"
    if isinstance(after, str):
        return after
    broken = damage(artifact, thorough=thorough)
    if broken is not None:
        return broken
    if after is before:
        return artifact
    return Artifact(artifact.folder, {**record, "reads": after.to_json()}, artifact.used, is_outdated=True)


def describe(library: bytes) -> dict[str, object]:
    """What a record says of its library."""
    return {"size": len(library), "digest": digest(library), "crc32": binascii.crc32(library)}


def damage(artifact: Artifact, *, thorough: bool = False) -> str | None:
    """What is wrong with the library of an artifact, None where it is the one that was built.

    Args:
        thorough: compare the cryptographic hash, too.
    """
    try:
        with open(f"{artifact.folder}/{artifact.op}.so", "rb", opener=_open_no_link) as file:
            content = file.read()
    except FileNotFoundError:
        return f"{DAMAGED} its library is missing"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"{DAMAGED} its library is a symbolic link"
        return f"its library cannot be read ({error.strerror})"
    if len(content) != artifact.size:
        return f"{DAMAGED} its library has {len(content)} bytes and not {artifact.size}"
    record = artifact.record
    if binascii.crc32(content) != record["crc32"] or (thorough and digest(content) != record["digest"]):
        return f"{DAMAGED} its library was altered"
    return None


def write_record(folder: Path, record: Mapping[str, object]) -> None:
    """Put a record into `folder`, in the place of one that may be there.

    Raises:
        OSError: it cannot be written; what was there still is.
    """
    being_written = folder / f"{RECORD}.{secrets.token_hex(4)}"
    try:
        with open(being_written, "x", encoding="ascii") as file:
            file.write(_written(record))
        os.replace(being_written, folder / RECORD)
    except OSError:
        with contextlib.suppress(OSError):
            being_written.unlink()
        raise


def _written(record: Mapping[str, object]) -> str:
    summary = {field: value for field, value in record.items() if field not in ("seal", *_DETAILS)}
    details = {field: record[field] for field in _DETAILS}
    first, second = (json.dumps(part, separators=(",", ":")) for part in (summary, details))
    sealed = f"{first[1:-1]},\n{second[1:]}"
    return f'{{"seal":"{_seal(sealed.encode()).decode()}",{sealed}'


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
