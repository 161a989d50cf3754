"""Checks of the folders of a cache: whether libraries may be loaded from them.

Anyone who can write into a cache can change the code that is loaded, so only its owner may. Links in a cache are not
followed, so that kjit lists, counts and deletes only its own files.
"""

from __future__ import annotations

import errno
import operator
import os
import re
import shlex
import stat
from pathlib import Path

from kjit import env
from kjit.errors import CacheError
from kjit.runtime import OTHERS_MAY_WRITE, SOURCE_TEXTS
from kjit.runtime import own_users as own_users
from kjit.runtime import weakness as weakness
from kjit.runtime import weakness_of as weakness_of

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
    parts = path.relative_to(root).parts
    folders = [root.joinpath(*parts[:count]) for count in range(len(parts))]
    for folder in folders:
        _demand_own(os.stat(folder, follow_symlinks=folder == root), folder)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(handle, "rb") as file:
        _demand_own(os.fstat(handle), path)
        return file.read()


def _demand_own(status: os.stat_result, path: Path) -> None:
    if (weak := weakness(status, own_users())) is not None:
        raise PermissionError(errno.EPERM, weak, str(path))


def refuse_unsafe(folder: Path | str, *, follow: bool, root: Path | None = None) -> None:
    """Reject a folder that somebody other than this user (or root) can change. It need not exist.

    Args:
        follow: a symbolic link to a folder is allowed.
        root: the cache that contains it; by default the folder itself.

    Raises:
        CacheError: it cannot be used as a cache, or as a part of one; the hint is about the whole cache.
    """
    try:
        status = os.stat(folder, follow_symlinks=follow)
    except OSError:
        return  # nothing is loaded from it, and `writable` reports why it cannot be created
    is_folder = stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)
    if not is_folder or weakness(status, own_users()) is None:
        return
    if stat.S_ISLNK(status.st_mode):
        raise CacheError(
            f"'{folder}' is a symbolic link, and links inside a cache are not followed.",
            hint=f"remove the link, or set {env.CACHE_DIR} to the folder that it points to",
        )
    whole = folder if root is None else root
    if status.st_uid not in own_users():
        raise CacheError(
            f"The cache folder '{folder}' belongs to another user (id {status.st_uid}), who can change the code in it.",
            hint=_OWN_FOLDER + (f", or remove this one (`rm -r {_quoted(whole)}`)" if _is_only_a_cache(whole) else ""),
        )
    raise CacheError(
        f"Other users may write to the cache folder '{folder}' and so change the code that you load.",
        hint=how_to_close(whole),
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


def distrust(folder: Path, *, owner: int | None = None, follow: bool = False) -> str | None:
    """Why nothing may be loaded from a part of a shared cache; None if it may, or if the part does not exist.

    A shared cache is named by this user and usually belongs to somebody else, who is trusted. Everything in it must
    belong to that one user (or root, or this user), and no group may write to it.

    Args:
        owner: the user that the shared cache belongs to; None for its topmost folder.
        follow: a symbolic link is allowed.
    """
    try:
        status = os.stat(folder, follow_symlinks=follow)
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"'{folder}' is a symbolic link"
    if owner is not None and status.st_uid not in (owner, 0, os.geteuid()):
        return f"'{folder}' belongs to another user (id {status.st_uid}) than the cache (id {owner})"
    if status.st_mode & OTHERS_MAY_WRITE:
        return f"users other than its owner may write to '{folder}'"
    return None


def is_noexec(folder: Path | str) -> bool:
    """Whether the disk of `folder` is mounted noexec, so that no library can be loaded from it. The folder must exist.

    Raises:
        OSError: it does not.
    """
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))  # Linux only


def make_private(folder: Path) -> None:
    """Make a folder, and missing parents, writable by this user alone, whatever the umask."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        try:
            is_taken = not stat.S_ISDIR(folder.stat().st_mode)
        except FileNotFoundError:
            is_taken = folder.is_symlink()  # to nowhere
            if not is_taken:
                make_private(folder)  # another process has removed it meanwhile
        if is_taken:
            raise
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
