"""Checks of the folders of a cache: whether libraries may be loaded from them.

Anyone who can write into a cache can change the code that is loaded, so only its owner may. Links in a cache are not
followed, so that kjit lists, counts and deletes only its own files.
"""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import re
import secrets
import shlex
import stat
from pathlib import Path

from kjit import env
from kjit.errors import CacheError
from kjit.runtime import OTHERS_MAY_WRITE, SOURCE_TEXTS, read_file
from kjit.runtime import own_users as own_users
from kjit.runtime import weakness as weakness

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_OWN_FOLDER = f"set {env.CACHE_DIR} to a folder of your own"
_name = operator.attrgetter("name")
_LAYOUT_OR_TEXTS = re.compile(rf"v\d+|{SOURCE_TEXTS}")


def is_unclaimed(folder: Path) -> bool:
    """Whether a folder does not exist, or only this user (or root) can change it."""
    try:
        return weakness(os.lstat(folder), own_users()) is None
    except OSError:
        return True


def read_own(path: Path, root: Path) -> bytes:
    """The content of a file of the cache `root` that only this user (or root) can change or replace.

    Raises:
        PermissionError: others can.
        OSError: it cannot be read.
    """
    content, status = read_file(str(path), os.O_NOFOLLOW)
    parts = path.relative_to(root).parts
    folders = [root.joinpath(*parts[:count]) for count in range(len(parts))]
    for each in (status, *(os.stat(folder, follow_symlinks=folder == root) for folder in folders)):
        if (weak := weakness(each, own_users())) is not None:
            raise PermissionError(errno.EPERM, weak, str(path))
    return content


def refuse_unsafe(
    folder: Path | str, *, follow: bool, root: Path | None = None, owners: tuple[int, ...] | None = None
) -> None:
    """Reject a folder that somebody other than its owners can change. It need not exist.

    Args:
        follow: a symbolic link to a folder is allowed.
        root: the cache that contains it; by default the folder itself.
        owners: the trusted users; by default this user and root.

    Raises:
        CacheError: it cannot be used as a cache, or as a part of one; the hint is about the whole cache.
    """
    try:
        status = os.stat(folder, follow_symlinks=follow)
    except OSError:
        return  # nothing is loaded from it, and `writable` reports why it cannot be created
    weak = weakness(status, own_users() if owners is None else owners)
    if weak is None or not (stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        return
    hint = how_to_close(folder if root is None else root)
    if owners is not None:
        hint = f"its owner can `chmod -R go-w {_quoted(root or folder)}`; or remove it from {env.SHARED_CACHE_DIR}"
    elif stat.S_ISLNK(status.st_mode):
        hint = f"remove the link, or set {env.CACHE_DIR} to the folder that it points to"
    raise CacheError(
        f"The {'' if owners is None else 'shared '}cache is not used, because somebody else could change the code that "
        f"you load: '{folder}' {weak}.",
        hint=hint,
    )


def how_to_close(root: Path | str) -> str:
    """The hint for a cache that others could write to. Files that they added may still be there.

    Args:
        root: the folder of the cache.
    """
    if not _is_only_a_cache(root):
        return _OWN_FOLDER
    whole = _quoted(root)
    return (
        f"`chmod -R go-w {whole}`, or `rm -r {whole}` if somebody else may have changed something in it; "
        f"or {_OWN_FOLDER}"
    )


def _is_only_a_cache(root: Path | str) -> bool:
    """Whether a folder has no other purpose, unlike `/tmp` or a home folder, and may be closed or removed."""
    try:
        is_for_all = bool(os.stat(root).st_mode & stat.S_ISVTX)
        return not is_for_all and all(map(_LAYOUT_OR_TEXTS.fullmatch, os.listdir(root)))
    except OSError:
        return False


def _quoted(root: Path | str) -> str:
    return shlex.quote(os.fspath(root))


def is_noexec(folder: Path | str) -> bool:
    """Whether the disk of `folder` is mounted noexec, so that no library can be loaded from it. The folder must exist.

    Raises:
        OSError: it does not.
    """
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))  # Linux only


def make_private(folder: Path) -> None:
    """Make a folder, and missing parents, writable by this user alone, whatever the umask."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def close_to_others(path: Path) -> None:
    """Make a file writable by its owner alone: a umask may have allowed a group to write."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS_MAY_WRITE:
        path.chmod(mode & ~OTHERS_MAY_WRITE)


def write_file(path: Path | str, content: bytes) -> None:
    """Write a file that its owner alone can change, under a temporary name, and rename it to `path`.

    Raises:
        OSError: it cannot be written; an earlier file is still there.
    """
    being_written = f"{path}.{secrets.token_hex(4)}"
    try:
        handle = os.open(being_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(being_written, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(being_written)
        # A network disk may fail to rename to a file that is in use, or after it has renamed.
        if not holds(path, content):
            raise


def holds(path: Path | str, content: bytes) -> bool:
    """Whether a file can be read and has this content."""
    try:
        return Path(path).read_bytes() == content
    except OSError:
        return False


def subfolders(folder: Path | str | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """The folders in `folder`, sorted by name, without links."""
    return [entry for entry in scan(folder) if entry.is_dir(follow_symlinks=False)]


def scan(folder: Path | str | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """The entries of `folder`, sorted by name; none if it is a link or cannot be read."""
    try:
        if folder.is_symlink() if isinstance(folder, os.DirEntry) else os.path.islink(folder):
            return []
        with os.scandir(folder) as entries:
            return sorted(entries, key=_name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def disk_full(folder: Path) -> CacheError:
    """The error for `NO_SPACE`."""
    return CacheError(
        f"No space is left on the disk of the cache '{folder}'.",
        hint=f"free some space (`kjit clean-cache`), or set {env.CACHE_DIR} to a folder on another disk",
    )
