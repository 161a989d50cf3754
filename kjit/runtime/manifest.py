"""Manifests: what a library was built from, and whether building it now would give the same.

    <cache>/v2/toolchains/<digest of a question>            which toolchain a search for compilers finds
    <cache>/v2/<target>/<op>/<key1>/<key2>/record.jsonl    an artifact, and the files that it was built from

A search for compilers, and everything derived from them, imports about fifty modules of the compiling side. It is not
necessary while nothing has changed that it depends on. So its result is kept as a digest: its name is a hash of the
target, of the values of the variables that are read, of the versions of kjit, tvm-ffi and Python, and of the CPU; its
content is every state of the disk that the search has read. `find` compares these states, with a few dozen calls of
`stat`. The digest and the request (names, flags, paths and contents of sources) make the key of the artifact, whose
record lists the files that were read.

If a state differs, is missing or cannot be read, nothing is found here, and `kjit.engine.miss` looks again: it compares
contents instead of times, writes newer times into the record, and knows the reasons for a compile.

Whoever can change a manifest chooses the library that is loaded. So it is trusted by the rule for artifacts: the cache,
the folders in it that lead to a file, and the files themselves must belong to this user or root, and nobody else may be
able to write to them.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import marshal
import os
import sys
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import kjit
from kjit import env
from kjit.runtime import (
    LAYOUT,
    cpu_identity,
    digest,
    digest_of_file,
    own_users,
    read_file,
    read_library,
    tvm_ffi_home,
    tvm_ffi_version,
    weakness,
)
from kjit.spec import KINDS

if TYPE_CHECKING:
    from kjit.spec import Spec, Target, TargetKind, Variant

FORMAT = 6
"""Changes when the same inputs would be built differently, or a manifest is written differently."""

TOOLCHAINS = "toolchains"
RECORD = "record.jsonl"

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

# They affect the search for compilers and headers, the location of the memo about compilers (memo.py), and what a shell
# reads before it runs a compiler that is a script.
_DISCOVERY_ENVIRONMENT = ("PATH", "HOME", "XDG_CACHE_HOME", env.CACHE_DIR, "BASH_ENV")

LAST_USE_STEP_S = 1800.0
_AT_ONCE = 65536
ABSENT = -1
YOUNG = 0
"""Replaces a time that cannot distinguish two versions of a file."""
_SETTLING_NS = 2_000_000_000

# The errors of a file that is missing, cannot be read, or has another format.
_UNFIT = (OSError, EOFError, LookupError, RecursionError, TypeError, ValueError)

# The kinds of questions to the disk.
FILE, FOLDER_THERE, THERE, PROGRAM, STAMP, DATED, PACKAGE = range(7)

# kjit's code that derives keys and records; what compiles is not part of a key either. Each file costs a `stat`.
_CODE_FOLDERS = ("", "runtime/", "engine/cache/", "engine/key/", "engine/toolchain/")

Probe = tuple[Any, ...]
"""A question to the disk and its answer: `(FILE | FOLDER_THERE | THERE | PROGRAM, path, yes)`,
`(STAMP, path, size, mtime_ns, inode)`, `(DATED, path, inode, ctime_ns)`, `(PACKAGE, name, folders)`."""


def variables(kind: TargetKind) -> tuple[str, ...]:
    """The variables that affect compilers for a kind of target, and the search for them.

    The only list of them: a toolchain, and the file about it, depend on these values.
    """
    data = KINDS[kind]
    return (*_DISCOVERY_ENVIRONMENT, *COMPILER_ENVIRONMENT, *data.environment, *data.search)


def written(path: str) -> str:
    """`path`, relative to kjit or tvm-ffi if it is in there: `{kjit}/include/kjit/tensor.h`. These are in another
    folder in each environment."""
    for home, name in _homes():
        if path.startswith(home):
            return f"{name}{path[len(home) - 1 :]}"
    return path


def absolute(path: str) -> str:
    """The inverse of `written`."""
    if path[:1] == "{":
        for home, name in _homes():
            if path.startswith(f"{name}/"):
                return f"{home}{path[len(name) + 1 :]}"
    return path


@lru_cache(maxsize=1)
def _homes() -> tuple[tuple[str, str], ...]:
    home = os.path.dirname(os.path.abspath(kjit.__file__))
    # A package may be reached through a link: both paths are its own.
    return (f"{os.path.realpath(home)}/", "{kjit}"), (f"{home}/", "{kjit}"), (f"{tvm_ffi_home()}/", "{tvm_ffi}")


class FileState:
    """A file at the time of reading. `ctime_ns` is the kernel's time of the last change, which no tool can set."""

    __slots__ = ("ctime_ns", "digest", "inode", "path", "size")

    def __init__(self, path: str, size: int, inode: int, ctime_ns: int, digest: str) -> None:
        self.path = path
        self.size = size
        self.inode = inode
        self.ctime_ns = ctime_ns
        self.digest = digest

    @classmethod
    def read(cls, path: str) -> FileState:
        """Read and hash the file.

        Raises:
            OSError: it cannot be read.
        """
        content, status = read_file(path)
        hash_ = _digest_at_once(content) if len(content) <= _AT_ONCE else digest(content)
        return cls(path, status.st_size, status.st_ino, status.st_ctime_ns, hash_)


_digest_at_once = lru_cache(maxsize=64)(digest)  # the variants of an op have the same sources


def module_digest(spec: Spec, target: str, sources: Iterable[FileState]) -> str:
    """The half of a key that is about the spec, without the compilers.

    Each source is read on every look-up (five microseconds), although its size and time would usually be sufficient. In
    return, an edited source is never missed.

    Args:
        target: in the form of `str(Target)`.
        sources: those of CUDA first.
    """
    words = [target, spec.name]
    for part in (
        spec.args,
        map(written, spec.cpp_files),
        map(written, spec.cuda_files),
        [word for export in spec.cpp_wrappers for word in export],
        [word for export in spec.cuda_wrappers for word in export],
        spec.extra_cflags,
        spec.extra_cuda_cflags,
        spec.extra_ldflags,
        map(written, spec.extra_include_paths),
        [source.digest for source in sources],
    ):
        part = tuple(part)
        words += [str(len(part)), *part]
    return digest("\0".join(words).encode("utf-8", "surrogatepass"))


def key_of(module: str, toolchain: str) -> str:
    """The name of the folder of an artifact, from the digests of its two halves."""
    return digest(f"{module}{toolchain}".encode())


def folder_of(variant: Variant, key: str) -> str:
    """The folder of the artifacts of a key, relative to that of the layout."""
    # No colon in the name: it is special in depfiles, PATH-like variables and some file systems.
    return f"{str(variant.target).replace(':', '-')}/{variant.spec.name}/{key}"


def find(variant: Variant, root: str) -> str | None:
    """The folder of the artifact that serves `variant`, if the times of all files say so; else None.

    Args:
        root: the folder of the cache.
    """
    try:
        return _find(variant, root)
    except _UNFIT:
        return None


def library_in(folder: str) -> str:
    """The library of an artifact."""
    return f"{folder}/{folder.split('/')[-3]}.so"


def _find(variant: Variant, root: str) -> str | None:
    owners = own_users()
    layout = f"{root}/{LAYOUT}"
    if weakness(os.stat(root), owners) is not None or weakness(os.lstat(layout), owners) is not None:
        return None
    toolchain = toolchain_in(root, variant.target)
    if toolchain is None:
        return None
    spec = variant.spec
    sources = map(FileState.read, (*spec.cuda_files, *spec.cpp_files))
    key = key_of(module_digest(spec, str(variant.target), sources), toolchain)
    folder = f"{layout}/{folder_of(variant, key)}"
    op = os.path.dirname(folder)
    if any(weakness(os.lstat(each), owners) is not None for each in (os.path.dirname(op), op, folder)):
        return None
    for name in os.listdir(folder):
        artifact = f"{folder}/{name}"
        with contextlib.suppress(*_UNFIT):  # another one may serve
            if _serves(artifact, key, spec.name, owners):
                return artifact
    return None


def _serves(artifact: str, key: str, op: str, owners: tuple[int, ...]) -> bool:
    """Whether an artifact is intact and up to date by times; its use is noted.

    Raises:
        one of `_UNFIT`: a file is missing or cannot be read, or has another format.
    """
    content, status = read_file(f"{artifact}/{RECORD}", os.O_NOFOLLOW)
    if weakness(os.lstat(artifact), owners) is not None or weakness(status, owners) is not None:
        return False
    lines = intact_lines(content)
    summary = json.loads(lines[0])
    if summary["format"] != FORMAT or summary["key1"] != key or not reads_on(lines[1]).is_as_recorded():
        return False
    library = read_library(f"{artifact}/{op}.so", os.O_NOFOLLOW)
    if library.difference(summary) is not None or weakness(library.status, owners) is not None:
        return False
    if abs(time.time() - status.st_mtime) > LAST_USE_STEP_S:
        note_use(artifact)
    return True


def intact_lines(content: bytes) -> list[bytes]:
    """The lines of a record after the first, which is their checksum. Each is a JSON object: one for lists; one for
    look-ups, ten times as long; one for reports.

    Raises:
        ValueError: it was altered.
    """
    seal, _, body = content.partition(b"\n")
    lines = body.split(b"\n")
    if seal != checksum(body) or len(lines) != 3:
        raise ValueError("it was altered")
    return lines


def checksum(body: bytes) -> bytes:
    """The first line of a record, from the others."""
    return b'"%08x"' % binascii.crc32(body)


class Reads:
    """The files that a compile read in addition to the direct sources. Paths are as by `written`.

    Attributes:
        headers: path, size, inode, change time and digest, a list of each. The time is `YOUNG` if it cannot distinguish
            two versions. (Lists, because an object for each of a thousand headers can trigger a full garbage
            collection, which takes 80 ms in a process that has imported torch.)
        system: the names of the headers that are not compared, and those tested by `__has_include`; each after a `/`,
            joined by `//`.
        roots: the folders that the compiler searches before those of system headers.
        folders: path, inode and change time of the roots, and of the folders in them where a new file could shadow a
            header. The time is `YOUNG` while it is too recent, and `ABSENT` if there is no folder.
        present: the files in them with the name of a header: those that were read, and those found later in the search.
        sought: paths outside of these folders at which a compiler or linker looks for a file, and whether there was
            one.
    """

    __slots__ = ("_places", "folders", "headers", "present", "roots", "sought", "system")

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Raises LookupError, TypeError or ValueError if `document` is not one of `to_json`."""
        self.headers: list[list[Any]] = document["headers"]
        self.system: str = document["system"]
        self.roots: list[str] = document["roots"]
        self.folders: list[list[Any]] = document["folders"]
        self.present: list[str] = document["present"]
        self.sought: list[list[Any]] = document["sought"]
        if not isinstance(self.system, str):
            raise TypeError("not the files of a compile")
        # Computed once: most loads compare only these.
        self._places = tuple(list(map(absolute, each[0])) for each in (self.headers, self.folders, self.sought))

    def to_json(self) -> dict[str, object]:
        """As JSON."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "_places"}

    def is_as_recorded(self) -> bool:
        """Whether everything is unchanged by times. Only headers without a time are compared by content.

        Raises:
            OSError: a header is gone.
            TypeError, ValueError: the record was malformed.
        """
        headers, folders, sought = self._places
        _, sizes, inodes, times, digests = self.headers
        stat = os.stat
        for number, where in enumerate(headers):
            status = stat(where)
            if status.st_ctime_ns == times[number]:
                if status.st_size != sizes[number] or status.st_ino != inodes[number]:
                    return False
            elif (
                times[number] != YOUNG
                or status.st_size != sizes[number]
                or trusted_ctime(status.st_ctime_ns) != YOUNG  # a look-up by key records the time
                or digest_of(where, status) != digests[number]
            ):
                return False
        for where, inode, ctime_ns in zip(folders, *self.folders[1:], strict=True):
            if inode_and_ctime(where) != (inode, ctime_ns):
                return False
        return all(os.path.isfile(where) == is_there for where, is_there in zip(sought, self.sought[1], strict=True))


def digest_of(path: str, status: os.stat_result) -> str:
    """The hash of a file with this status."""
    return digest_of_file(path, status, is_settled=settled_ctime(status.st_ctime_ns) != YOUNG)


@lru_cache(maxsize=256)
def reads_on(line: bytes) -> Reads:
    """The second line of a record, parsed once for all modules that read the same headers, such as the variants of an
    op.

    Raises:
        LookupError, TypeError, ValueError: it is malformed.
    """
    return Reads(json.loads(line))


def note_use(folder: str) -> None:
    """Set the time of an artifact's record to now: the least recently used artifacts are evicted first."""
    with contextlib.suppress(OSError):  # in a read-only cache nothing is evicted either
        os.utime(f"{folder}/{RECORD}")


def question(target: Target, root: str) -> str | None:
    """The name of the file about a toolchain in the cache `root`; None if kjit or tvm-ffi cannot be identified."""
    here = _here()
    if here is None:
        return None
    values = [os.environ.get(name) for name in variables(target.kind)]
    given = [f"={value}" if value is not None else "" for value in values]
    try:
        # Relative paths in variables depend on it.
        where = os.getcwd()
    except OSError:
        where = ""
    if all(map(_is_absolute, filter(None, values[:1] + values[len(_DISCOVERY_ENVIRONMENT) :]))):
        where = ""
    return digest("\0".join([here, root, str(target), where, *given]).encode("utf-8", "surrogatepass"))


def toolchain_in(root: str, target: Target) -> str | None:
    """The digest of the toolchain for `target`, if a search would find the same as before; else None.

    Raises:
        OSError, EOFError, LookupError, TypeError, ValueError: nothing is known, or a file is gone.
    """
    name = question(target, root)
    folder = f"{root}/{LAYOUT}/{TOOLCHAINS}"
    if name is None or weakness(os.lstat(folder), own_users()) is not None:
        return None
    content, status = read_file(f"{folder}/{name}", os.O_NOFOLLOW)
    known = unsealed(content, name)
    if known is None or weakness(status, own_users()) is not None or not are_unchanged(known[1]):
        return None
    return known[0]


def sealed(toolchain: str, probes: Iterable[Probe], name: str) -> bytes:
    """The content of a file about a toolchain: a checksum, its name, the digest, the states of the disk."""
    body = marshal.dumps((FORMAT, name, toolchain, tuple(probes)), 2)  # newer versions write equal values differently
    return b"%08x" % binascii.crc32(body) + body


def unsealed(content: bytes, name: str) -> tuple[str, tuple[Probe, ...]] | None:
    """The inverse of `sealed`; None if `content` is not that of a file of this name.

    Raises:
        EOFError, TypeError, ValueError: it is none.
    """
    body = memoryview(content)[8:]
    if content[:8] != b"%08x" % binascii.crc32(body):
        return None
    format_, of, toolchain, probes = marshal.loads(body)
    return (toolchain, probes) if format_ == FORMAT and of == name else None


def are_unchanged(probes: Iterable[Probe]) -> bool:
    """Whether the disk still gives the same answers.

    Raises:
        OSError, LookupError, TypeError, ValueError: a file is gone, or has other contents.
    """
    for probe in probes:
        kind, path = probe[0], probe[1]
        if kind == STAMP:
            status = os.stat(path)
            is_same = (status.st_size, status.st_mtime_ns, status.st_ino) == probe[2:]
        elif kind == DATED:
            is_same = inode_and_ctime(path) == probe[2:]
        elif kind == PACKAGE:
            is_same = _package_folders(path, tuple(sys.path)) == probe[2]
        else:
            is_same = answer(kind, path) == probe[2]
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


def inode_and_ctime(folder: str) -> tuple[int, int]:
    """A folder's inode and change time (ctime); `(0, ABSENT)` if there is no such folder."""
    try:
        status = os.stat(folder)
    except OSError:
        return 0, ABSENT
    return status.st_ino, status.st_ctime_ns


def settled_ctime(ctime_ns: int) -> int:
    """A change time, or `YOUNG` if it is recent: a later change, within one tick of the clock, may have the same."""
    return ctime_ns if ctime_ns < time.time_ns() - _SETTLING_NS else YOUNG


def trusted_ctime(ctime_ns: int) -> int:
    """The change time of a header, or `YOUNG` if it cannot distinguish two versions of it: one in whole seconds was set
    by the tool that made the disk image, not by the kernel."""
    return settled_ctime(ctime_ns) if ctime_ns % 1_000_000_000 else YOUNG


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


def code_states() -> list[tuple[str, int, int, int]]:
    """Name, size, and times (of the content, of any change) of kjit's own code that derives keys and records.

    Raises:
        OSError: it is not in a folder.
    """
    home = os.path.dirname(os.path.abspath(kjit.__file__))
    states = []
    for folder in _CODE_FOLDERS:
        with os.scandir(f"{home}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    states.append((f"{folder}{entry.name}", status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return sorted(states)


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
