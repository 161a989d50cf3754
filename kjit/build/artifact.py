"""What is an artifact on disk, and is it whole?

A folder with two files: the library, and `record.json`, which says what the library was built from, how large it is and
its hash. The record is written beside its place and renamed, so that nobody ever reads half of one. Whatever is not as
the record says counts as damaged, which is as good as missing.

A load reads all of the library and compares a CRC-32: that finds what disks, copies and crashes do to a file, at five
times the speed of a cryptographic hash, which took up to half of a whole look-up. Against somebody who means harm
neither would help, as the record lies beside the library. `kjit cache verify` compares SHA-256 too.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kjit.build.key import FORMAT, digest

RECORD = "record.json"
RECORD_BEING_WRITTEN = re.compile(r"record\.json\.[0-9a-f]+")
DAMAGED = "the artifact in the cache is damaged:"
"""How the reasons begin why an artifact cannot be used that once was one."""


@dataclass(frozen=True)
class Artifact:
    """A built library and the record of what it was built from.

    Attributes:
        folder: holds the library and the record, and nothing else.
        used: when it was last used, give or take a day; seconds since 1970.
    """

    folder: Path
    record: Mapping[str, object]
    used: float

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
            document = json.loads(file.read())
            used = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return f"{DAMAGED} its record is missing"
    except OSError as error:
        return f"its record cannot be read ({error.strerror})"
    except ValueError:
        return f"{DAMAGED} its record is not JSON"
    return parse_record(Path(folder), document, used)


def parse_record(folder: Path, document: object, used: float) -> Artifact | str:
    """The artifact whose record is `document`, or what is wrong with that."""
    if not isinstance(document, dict):
        return f"{DAMAGED} its record is not a JSON object"
    if document.get("format") != FORMAT:
        return f"it was written by another version of kjit (format {document.get('format')})"
    for field, kind in _FIELDS.items():
        if type(document.get(field)) is not kind:
            return f"{DAMAGED} its record has no {field}"
    if not re.fullmatch(r"\w+", document["op"]):
        return f"{DAMAGED} its record names no op"
    return Artifact(folder, document, used)


_FIELDS = {
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
    "reads": dict,
    "inputs": dict,
    "build": dict,
    "built": float,
}


def describe(library: bytes) -> dict[str, object]:
    """What a record says of its library."""
    return {"size": len(library), "digest": digest(library), "crc32": binascii.crc32(library)}


def damage(artifact: Artifact, *, thorough: bool = False) -> str | None:
    """What is wrong with the library of an artifact, None where it is the one that was built.

    Args:
        thorough: compare the cryptographic hash, too.
    """
    try:
        with open(f"{artifact.folder}/{artifact.op}.so", "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return f"{DAMAGED} its library is missing"
    except OSError as error:
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
            file.write(json.dumps(record, separators=(",", ":")))
        os.replace(being_written, folder / RECORD)
    except OSError:
        with contextlib.suppress(OSError):
            being_written.unlink()
        raise
