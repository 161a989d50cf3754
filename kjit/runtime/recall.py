"""Recalls: finding the artifact of an earlier request without deriving its key.

    <cache>/v1/recalls/<digest of the request>

Deriving a key imports about fifty modules of the compiling side. It is not necessary if nothing has changed that the
key depends on. So when an artifact was found by its key, or published, `engine/cache/recall_writer.py` writes a record.
Its name is a hash of the request: the spec, the target, the cache, the values of the variables that are read, the
versions of kjit, tvm-ffi and Python, and the CPU. Its content is every state of the disk that deriving the key has
read. `find` compares these states, with a few dozen calls of `stat`, and reads the sources and the library.

If a state differs, is missing or cannot be read, nothing is recalled. The key is then derived as if there were no
record, and errors and reasons for a compile come from there. A record never says that something is not built.

Whoever can change a record chooses the library that is loaded. So records are trusted by the rule for artifacts: the
cache, the folders in it that lead to the record and to the artifact, and the files themselves must belong to this user
or root, and nobody else may be able to write to them.
"""

from __future__ import annotations

import binascii
import contextlib
import marshal
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
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

FORMAT = 3
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
    # The value of `__DATE__` and `__TIME__`.
    "SOURCE_DATE_EPOCH",
)
"""Variables that affect a C++ compiler, and are therefore part of a toolchain's identity."""

NVCC_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables with flags for nvcc."""

NVCC_ENVIRONMENT = (*NVCC_FLAGS, "CUDA_HOME")
"""The additional variables for nvcc."""

HOST_VARIABLE = "NVCC_CCBIN"
"""The variable of nvcc that names its host compiler."""

# They affect the search for compilers and headers, the location of the memo about compilers (memo.py), and what a shell
# reads before it runs a compiler that is a script.
_DISCOVERY_ENVIRONMENT = ("PATH", "HOME", "XDG_CACHE_HOME", env.CACHE_DIR, "BASH_ENV")

LAST_USE_STEP_S = 1800.0
ABSENT = -1
YOUNG = 0
"""Replaces a time that cannot distinguish two versions of a file."""
_SETTLING_NS = 2_000_000_000

# The kinds of questions to the disk.
FILE, FOLDER_THERE, THERE, PROGRAM, STAMP, DATED, PACKAGE, LEARNED = range(8)

# kjit's code that derives keys and records; what compiles is not part of a key either. Each file costs a `stat`.
_CODE = ("env.py", "project.py", "spec.py", "runtime/__init__.py", "runtime/recall.py")
_CODE_FOLDERS = ("engine/cache", "engine/key", "engine/toolchain")

Look = tuple[Any, ...]
"""A question to the disk and its answer: `(FILE | FOLDER_THERE | THERE | PROGRAM, path, yes)`,
`(STAMP, path, size, mtime_ns, inode)`, `(DATED, path, inode, ctime_ns)`, `(PACKAGE, name, folders)`,
`(LEARNED, path, program, ((question, answers), ...))`."""


def variables(kind: TargetKind) -> tuple[str, ...]:
    """The variables that affect compilers for a kind of target, and the search for them.

    The only list of them: toolchains and recalls both depend on these values.
    """
    cuda = (*NVCC_ENVIRONMENT, HOST_VARIABLE, env.CUDA_COMPILER) if kind == "cuda" else ("CUDA_HOME",)
    others = () if kind == "cpu" else (env.CUDA_HOME, *cuda)
    return (*_DISCOVERY_ENVIRONMENT, *COMPILER_ENVIRONMENT, *others)


def words_of(variant: Variant) -> list[str]:
    """A variant as words without NUL characters."""
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
    """The name of the record for a request in the cache `root`; None if kjit or tvm-ffi cannot be identified.

    Args:
        words: the variant (`words_of`).
        kind: the kind of its target.
    """
    here = _here()
    if here is None:
        return None
    values = [os.environ.get(name) for name in variables(kind)]
    given = [f"={value}" if value is not None else "" for value in values]
    try:
        # Relative paths in variables and flags depend on it.
        where = os.getcwd()
    except OSError:
        where = ""
    if all(map(_is_absolute, filter(None, values[:1] + values[len(_DISCOVERY_ENVIRONMENT) :]))):
        where = ""
    text = "\0".join([here, root, kind, where, *given, *words])
    return digest(text.encode("utf-8", "surrogatepass"))


def find(name: str | None, root: str) -> str | None:
    """The folder of the artifact that serves a request; None if its key has to be derived.

    Args:
        name: the name of the record (`request`).
        root: the folder of the cache.
    """
    if name is None:
        return None
    try:
        return _find(name, root)
    except (OSError, EOFError, LookupError, RecursionError, TypeError, ValueError):
        return None  # a file is missing or cannot be read, or the record has another format


def library_in(folder: str) -> str:
    """The library of an artifact."""
    return f"{folder}/{folder.split('/')[-3]}.so"


def _find(name: str, root: str) -> str | None:
    owners = own_users()
    layout = f"{root}/{LAYOUT}"
    if (
        weakness(os.stat(root), owners) is not None
        or weakness(os.lstat(layout), owners) is not None
        or weakness(os.lstat(f"{layout}/{FOLDER}"), owners) is not None
    ):
        return None
    content, status = read_file(f"{layout}/{FOLDER}/{name}", os.O_NOFOLLOW)
    record = unsealed(content, name)
    if record is None or weakness(status, owners) is not None:
        return None
    artifact, library_size, library_crc, sources, names, states, recent, folders, sought, looks = record
    if not are_same_headers(names, states):
        return None
    for path, size, hash_ in _rows(recent, 3):
        status = os.stat(path)
        # Compared by content. If its time is sufficient by now, a look-up by key records that.
        if status.st_size != size or telling(status.st_ctime_ns) != YOUNG or digest(read_file(path)[0]) != hash_:
            return None
    for path, inode, ctime_ns in _rows(folders, 3):
        if dated(path) != (inode, ctime_ns):
            return None
    for path, is_there in _rows(sought, 2):
        if os.path.isfile(path) != is_there:
            return None
    if not are_unchanged(looks):
        return None
    for path, size, hash_ in sources:
        content, _ = read_file(path)
        if len(content) != size or digest(content) != hash_:
            return None
    target, op, key1, _ = artifact.split("/")
    folder = f"{layout}/{artifact}"
    for each in (f"{layout}/{target}", f"{layout}/{target}/{op}", f"{layout}/{target}/{op}/{key1}", folder):
        if weakness(os.lstat(each), owners) is not None:
            return None
    # Only its owner and its time matter: a record that was altered describes the same library.
    used = os.lstat(f"{folder}/record.json")
    if weakness(used, owners) is not None:
        return None
    library = read_library(f"{folder}/{op}.so", os.O_NOFOLLOW)
    if library.size != library_size or library.crc32 != library_crc or weakness(library.status, owners) is not None:
        return None
    if abs(time.time() - used.st_mtime) > LAST_USE_STEP_S:
        note_use(folder)
    return folder


def flat(rows: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    """The fields of all rows in one tuple: a tuple for each can trigger a full garbage collection, which takes 80 ms in
    a process that has imported torch."""
    return tuple(field for row in rows for field in row)


def _rows(fields: Sequence[Any], width: int) -> Iterator[tuple[Any, ...]]:
    """The inverse of `flat`."""
    return zip(*[iter(fields)] * width, strict=True)


def packed(headers: Iterable[tuple[str, int, int, int, str]]) -> tuple[tuple[str, ...], bytes, tuple[Any, ...]]:
    """Headers (path, size, inode, change time, hash) as few objects, as a module may have read a thousand.

    Returns:
        Folders, each followed by the names of the headers in it; their states, three numbers each; and as `flat` path,
        size and hash of those whose time is `YOUNG`.

    Raises:
        OverflowError: a number has more than 64 bits, or a time is before 1970.
    """
    import array

    names: dict[str, list[str]] = {}
    numbers: dict[str, array.array[int]] = {}
    recent = []
    for path, size, inode, ctime_ns, hash_ in headers:
        if ctime_ns == YOUNG:
            recent.append((path, size, hash_))
            continue
        folder, _, name = path.rpartition("/")
        names.setdefault(folder, []).append(name)
        numbers.setdefault(folder, array.array("Q")).extend((size, inode, ctime_ns))
    states = b"".join(each.tobytes() for each in numbers.values())
    return flat((folder, "\0".join(each)) for folder, each in names.items()), states, flat(recent)


def are_same_headers(names: Sequence[str], states: bytes) -> bool:
    """Whether the headers of `packed` are unchanged.

    Raises:
        OSError: one is gone.
    """
    stat = os.stat
    numbers = iter(memoryview(states).cast("Q"))
    for folder, joined in _rows(names, 2):
        for name in joined.split("\0"):
            status = stat(f"{folder}/{name}")
            if (
                status.st_size != next(numbers, None)
                or status.st_ino != next(numbers, None)
                or status.st_ctime_ns != next(numbers, None)
            ):
                return False
    return next(numbers, None) is None


def note_use(folder: str) -> None:
    """Set the time of an artifact's record to now: the least recently used artifacts are evicted first."""
    with contextlib.suppress(OSError):  # in a read-only cache nothing is evicted either
        os.utime(f"{folder}/record.json")


def sealed(record: Sequence[Any], name: str) -> bytes:
    """The content of a record's file: a checksum, the record's name, its fields."""
    body = marshal.dumps((FORMAT, name, *record), 2)  # newer versions write equal values in different ways
    return b"%08x" % binascii.crc32(body) + body


def unsealed(content: bytes, name: str) -> Sequence[Any] | None:
    """The inverse of `sealed`; None if `content` is not a record of this name.

    Raises:
        EOFError, TypeError, ValueError: it is not a record.
    """
    body = memoryview(content)[8:]
    if content[:8] != b"%08x" % binascii.crc32(body):
        return None
    format_, of, *record = marshal.loads(body)
    return record if format_ == FORMAT and of == name else None


def are_unchanged(looks: Iterable[Look]) -> bool:
    """Whether the disk still gives the same answers.

    Raises:
        OSError, LookupError, TypeError, ValueError: a file is gone, or has other contents.
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
            learned = _learned(path, status.st_size, status.st_mtime_ns, status.st_ino)[look[2]]
            is_same = all(learned[question] == list(answers) for question, answers in look[3])
        else:
            is_same = answer(kind, path) == look[2]
        if not is_same:
            return False
    return True


def answer(kind: int, path: str) -> bool:
    """Whether `path` is a file (`FILE`), a folder (`FOLDER_THERE`), either (`THERE`), or a program (`PROGRAM`)."""
    if kind == FILE:
        return os.path.isfile(path)
    if kind == FOLDER_THERE:
        return os.path.isdir(path)
    if kind == THERE:
        return os.path.exists(path)
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def dated(folder: str) -> tuple[int, int]:
    """A folder's inode and change time (ctime); `(0, ABSENT)` if there is no such folder."""
    try:
        status = os.stat(folder)
    except OSError:
        return 0, ABSENT
    return status.st_ino, status.st_ctime_ns


def aged(ctime_ns: int) -> int:
    """A change time, or `YOUNG` if it is recent: a later change, within one tick of the clock, may have the same."""
    return ctime_ns if ctime_ns < time.time_ns() - _SETTLING_NS else YOUNG


def telling(ctime_ns: int) -> int:
    """The change time of a header, or `YOUNG` if it cannot distinguish two versions of it: one in whole seconds was set
    by the tool that made the disk image, not by the kernel."""
    return aged(ctime_ns) if ctime_ns % 1_000_000_000 else YOUNG


def package_folders(name: str) -> tuple[str, ...]:
    """The folders of a Python package; empty if there is none."""
    import importlib.util

    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module in `sys.modules` without a spec, such as a test's
        return ()
    return () if spec is None else tuple(spec.submodule_search_locations or ())


@lru_cache(maxsize=8)
def _package_folders(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """As `package_folders`, cached: a process searches for a toolchain once, too."""
    del path  # only part of the key of lru_cache
    return package_folders(name)


@lru_cache(maxsize=4)
def _learned(path: str, *_status: int) -> dict[str, dict[str, object]]:
    """The memo about compilers, by path (engine/toolchain/memo.py)."""
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
        states.append(_code_state("_version.py", os.stat(f"{home}/_version.py")))
    for name in _CODE:
        states.append(_code_state(name, os.stat(f"{home}/{name}")))
    for folder in _CODE_FOLDERS:
        with os.scandir(f"{home}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    states.append(_code_state(f"{folder}/{entry.name}", entry.stat()))
    return sorted(states)


def _code_state(name: str, status: os.stat_result) -> tuple[str, int, int, int]:
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=1)
def _here() -> str | None:
    """The part that all requests of a process share: kjit, tvm-ffi, Python, the CPU."""
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
