"""Recalls: libraries that served a request before, and the conditions for serving it again.

    <cache>/v1/recalls/<digest of the request>

To derive the key of a module takes the side of kjit that compiles, half a hundred modules. It need not be derived
again where nothing has changed that it was derived from. So whoever finds an artifact by its key, or publishes one,
writes a record of it (`engine/cache/recall_writer.py`): under the request as it was made (what is built, for which
target, in which cache, with which values of the variables that are read, by which kjit, tvm-ffi and Python, on which
CPU) every answer that the disk gave on the way. `find` asks the disk the same questions, in a few dozen calls of
`stat`, and reads what a look-up by the key reads: the sources, the artifact's record, the library.

If anything differs, is missing or is unknown, nothing is recalled: the key is derived, as if there were no record, and
that is where reasons are given. A record never says that something is not built.

Who can change a record chooses what is loaded, so it is believed by the rule for artifacts: the cache, all folders in
it that lead to the record and to the artifact, and the files themselves belong to this user or root, and nobody else
may write to them.
"""

from __future__ import annotations

import binascii
import contextlib
import marshal
import os
import sys
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import kjit
from kjit import env
from kjit.runtime import (
    LAYOUT,
    cpu_identity,
    digest,
    own_users,
    read_file,
    read_library,
    tvm_ffi_home,
    tvm_ffi_version,
    weakness,
)

if TYPE_CHECKING:
    from kjit.spec import TargetKind, Variant

FORMAT = 1
FOLDER = "recalls"

COMPILER_ENVIRONMENT = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "CXX",
    # Where GCC finds its own parts, and what clang changes in its command line.
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
    # What `__DATE__` and `__TIME__` say.
    "SOURCE_DATE_EPOCH",
)
"""Variables that change what a C++ compiler does, and therefore belong to a toolchain's identity."""

NVCC_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables with flags for nvcc."""

NVCC_ENVIRONMENT = (*NVCC_FLAGS, "CUDA_HOME")
"""As `COMPILER_ENVIRONMENT`, where nvcc is used too."""

HOST_VARIABLE = "NVCC_CCBIN"
"""The variable of nvcc that names its host compiler."""

# Where compilers and headers are looked for, the memo of what is known about them, and what a shell reads ahead of a
# compiler that is a script.
_DISCOVERY_ENVIRONMENT = ("PATH", "HOME", "XDG_CACHE_HOME", env.CACHE_DIR, "BASH_ENV")

LAST_USE_STEP_S = 1800.0
ABSENT = -1
YOUNG = 0
"""In the place of a date that tells too little."""
_SETTLING_NS = 2_000_000_000

# The kinds of questions to the disk, each with what follows in a record.
FILE, FOLDER_THERE, THERE, PROGRAM, STAMP, DATED, PACKAGE, LEARNED = range(8)

_CODE = ("engine", "engine/cache", "engine/key", "engine/toolchain", "runtime")
"""The folders of kjit's code that derives keys and records. What compiles is not part of a key either."""

Look = tuple[Any, ...]
"""A question to the disk and its answer: `(FILE | FOLDER_THERE | THERE | PROGRAM, path, yes)`,
`(STAMP, path, size, mtime_ns, inode)`, `(DATED, path, inode, ctime_ns)`, `(PACKAGE, name, folders)`,
`(LEARNED, path, program, ((question, answers), ...))`."""


def variables(kind: TargetKind) -> tuple[str, ...]:
    """The variables that decide which compilers there are for a kind of target, and what they do.

    The only list of them: a toolchain is found by these values, and so is what is recalled.
    """
    cuda = (*NVCC_ENVIRONMENT, HOST_VARIABLE, env.CUDA_COMPILER) if kind == "cuda" else ("CUDA_HOME",)
    others = () if kind == "cpu" else (env.CUDA_HOME, *cuda)
    return (*_DISCOVERY_ENVIRONMENT, *COMPILER_ENVIRONMENT, *others)


def words_of(variant: Variant) -> list[str]:
    """A variant as words, none of which has a NUL character inside."""
    spec = variant.spec
    words = [str(variant.target), spec.name]
    for part in (
        spec.args,
        spec.cpp_files,
        spec.cuda_files,
        [word for export in spec.cpp_wrappers for word in export],
        [word for export in spec.cuda_wrappers for word in export],
        spec.extra_cflags,
        spec.extra_cuda_cflags,
        spec.extra_ldflags,
        spec.extra_include_paths,
    ):
        words += [str(len(part)), *part]
    return words


def request(words: Iterable[str], kind: TargetKind, root: str) -> str | None:
    """The name of the record for a request in the cache `root`; None where none can be told from others.

    Args:
        words: what is asked for (`words_of`).
        kind: of the target.
    """
    here = _here()
    if here is None:
        return None
    values = [os.environ.get(name) for name in variables(kind)]
    given = [f"={value}" if value is not None else "" for value in values]
    try:
        # What a relative path in a variable or a flag means.
        where = os.getcwd()
    except OSError:
        where = ""
    if all(map(_is_absolute, filter(None, values[:1] + values[len(_DISCOVERY_ENVIRONMENT) :]))):
        where = ""
    text = "\0".join([here, root, kind, where, *given, *words])
    return digest(text.encode("utf-8", "surrogatepass"))


def find(name: str | None, root: str) -> str | None:
    """The folder of the artifact that serves a request as it did before; None where that is unknown.

    Args:
        name: of the record (`request`).
        root: the folder of the cache.
    """
    if name is None:
        return None
    try:
        return _find(name, root)
    except (OSError, EOFError, LookupError, TypeError, ValueError):
        return None  # not there, or not to be read, or not what this kjit writes


def library_in(folder: str) -> str:
    """The library of an artifact."""
    return f"{folder}/{folder.split('/')[-3]}.so"


def _find(name: str, root: str) -> str | None:
    owners = own_users()
    v1 = f"{root}/{LAYOUT}"
    if (
        weakness(os.stat(root), owners) is not None
        or weakness(os.lstat(v1), owners) is not None
        or weakness(os.lstat(f"{v1}/{FOLDER}"), owners) is not None
    ):
        return None
    content, status = read_file(f"{v1}/{FOLDER}/{name}", os.O_NOFOLLOW)
    record = unsealed(content, name)
    if record is None or weakness(status, owners) is not None:
        return None
    artifact, summary, library_size, library_crc, sources, headers, folders, sought, looks = record
    stat = os.stat
    for path, size, inode, ctime_ns, hash_ in headers:
        status = stat(path)
        if status.st_size != size:
            return None
        if ctime_ns == YOUNG:
            # Known by its content; by its date from now on, if that tells more, and who derives the key records it.
            if telling(status.st_ctime_ns) != YOUNG or digest(read_file(path)[0]) != hash_:
                return None
        elif status.st_ctime_ns != ctime_ns or status.st_ino != inode:
            return None
    for path, inode, ctime_ns in folders:
        if dated(path) != (inode, ctime_ns):
            return None
    for path, is_there in sought:
        if os.path.isfile(path) != is_there:
            return None
    if not is_as_it_was(looks):
        return None
    for path, size, hash_ in sources:
        content, _ = read_file(path)
        if len(content) != size or digest(content) != hash_:
            return None
    target, op, key1, _ = artifact.split("/")
    folder = f"{v1}/{artifact}"
    for each in (f"{v1}/{target}", f"{v1}/{target}/{op}", f"{v1}/{target}/{op}/{key1}", folder):
        if weakness(os.lstat(each), owners) is not None:
            return None
    content, status = read_file(f"{folder}/record.json", os.O_NOFOLLOW)
    if summary_of(content) != summary or weakness(status, owners) is not None:
        return None
    library = read_library(f"{folder}/{op}.so", os.O_NOFOLLOW)
    if library.size != library_size or library.crc32 != library_crc or weakness(library.status, owners) is not None:
        return None
    if abs(time.time() - status.st_mtime) > LAST_USE_STEP_S:
        note_use(folder)
    return folder


_SEAL = b'{"seal":"'
_SEAL_END = len(_SEAL) + 8 + len(b'",')


def summary_of(content: bytes) -> int | None:
    """The checksum of the first line of an artifact's record, which says what it is; None where the record was altered.

    What follows says when its headers had which dates, which is not the same for two copies of a project.
    """
    end = content.find(b"\n")
    seal = content[len(_SEAL) : len(_SEAL) + 8]
    if not content.startswith(_SEAL) or end < 0 or seal != b"%08x" % binascii.crc32(memoryview(content)[_SEAL_END:]):
        return None
    return binascii.crc32(memoryview(content)[_SEAL_END:end])


def note_use(folder: str) -> None:
    """Note by the date of its record that an artifact was used now: what was not used for longest goes first."""
    with contextlib.suppress(OSError):  # in a read-only cache nothing is evicted either
        os.utime(f"{folder}/record.json")


def sealed(record: Sequence[Any], name: str) -> bytes:
    """A record as it is written: its checksum, its name, its fields."""
    body = marshal.dumps((FORMAT, name, *record), 2)  # newer versions write equal values in different ways
    return b"%08x" % binascii.crc32(body) + body


def unsealed(content: bytes, name: str) -> Sequence[Any] | None:
    """What `sealed` was given; None where this is not what it wrote for `name`.

    Raises:
        EOFError, TypeError, ValueError: as None.
    """
    body = memoryview(content)[8:]
    if content[:8] != b"%08x" % binascii.crc32(body):
        return None
    format_, of, *record = marshal.loads(body)
    return record if format_ == FORMAT and of == name else None


def is_as_it_was(looks: Iterable[Look]) -> bool:
    """Whether the disk gives the same answers as it did.

    Raises:
        OSError, LookupError, TypeError, ValueError: one of the files is not there any more, or has other things in it.
    """
    for look in looks:
        kind, path = look[0], look[1]
        if kind == STAMP:
            status = os.stat(path)
            is_same = (status.st_size, status.st_mtime_ns, status.st_ino) == look[2:]
        elif kind == DATED:
            is_same = dated(path) == look[2:]
        elif kind == PACKAGE:
            is_same = _package_folders(path, tuple(sys.path)) == look[2]
        elif kind == LEARNED:
            status = os.stat(path)
            said = _learned(path, status.st_size, status.st_mtime_ns, status.st_ino)[look[2]]
            is_same = all(said[question] == list(answers) for question, answers in look[3])
        else:
            is_same = answer(kind, path) == look[2]
        if not is_same:
            return False
    return True


def answer(kind: int, path: str) -> bool:
    """Whether there is a file (`FILE`), a folder (`FOLDER_THERE`), any of them (`THERE`), a program (`PROGRAM`)."""
    if kind == FILE:
        return os.path.isfile(path)
    if kind == FOLDER_THERE:
        return os.path.isdir(path)
    if kind == THERE:
        return os.path.exists(path)
    return os.path.exists(path) and os.access(path, os.X_OK) and not os.path.isdir(path)


def dated(folder: str) -> tuple[int, int]:
    """A folder's inode and the kernel's date of its last change; `(0, ABSENT)` where there is none."""
    try:
        status = os.stat(folder)
    except OSError:
        return 0, ABSENT
    return status.st_ino, status.st_ctime_ns


def aged(ctime_ns: int) -> int:
    """A date that is old enough to tell a later change, as a file may be written twice within one tick of its clock."""
    return ctime_ns if ctime_ns < time.time_ns() - _SETTLING_NS else YOUNG


def telling(ctime_ns: int) -> int:
    """The date of a header, where it tells one version of the header from another: one in whole seconds is not the
    kernel's, but of whoever made the disk's image."""
    return aged(ctime_ns) if ctime_ns % 1_000_000_000 else YOUNG


def package_folders(name: str) -> tuple[str, ...]:
    """Where the parts of a Python package are; nothing where there is none."""
    import importlib.util

    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # it is in `sys.modules`, and was put there by hand
        return ()
    return () if spec is None else tuple(spec.submodule_search_locations or ())


@lru_cache(maxsize=8)
def _package_folders(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """As `package_folders`, asked once a process, as a toolchain is found."""
    del path  # what the answer depends on
    return package_folders(name)


@lru_cache(maxsize=4)
def _learned(path: str, *_as_it_was: int) -> dict[str, dict[str, object]]:
    """What was learned about compilers, by their paths (engine/toolchain/memo.py)."""
    import json

    programs: dict[str, dict[str, object]] = json.loads(read_file(path)[0])["programs"]
    return programs


def code_states() -> list[tuple[str, int, int, int]]:
    """Name, size, and times (of the content, of any change) of kjit's own code that derives keys and records, and of
    the file with its version, if there is one.

    Raises:
        OSError: it is not in a folder.
    """
    home = os.path.dirname(os.path.abspath(kjit.__file__))
    states = []
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(f"{home}/_version.py")
        states.append(("_version.py", status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    for folder in _CODE:
        with os.scandir(f"{home}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    states.append((f"{folder}/{entry.name}", status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return sorted(states)


@lru_cache(maxsize=1)
def _here() -> str | None:
    """What is the same for all requests of a process: which kjit, tvm-ffi, Python and CPU."""
    tvm_ffi = tvm_ffi_home()
    if tvm_ffi is None:
        return None
    home = os.path.dirname(os.path.abspath(kjit.__file__))
    try:
        code = [f"{name} {size} {mtime_ns}" for name, size, mtime_ns, _ in code_states()]
        version = tvm_ffi_version(tvm_ffi)
    except (OSError, ImportError):
        return None
    python = f"{sys.version} {sys.implementation.cache_tag}"
    parts = [str(FORMAT), home, os.path.realpath(home), tvm_ffi, version, python, sys.prefix]
    return digest("\0".join([*parts, cpu_identity(), *code]).encode("utf-8", "surrogatepass"))


def _is_absolute(value: str) -> bool:
    return all(part.startswith("/") for part in value.split(os.pathsep))
