"""kjit's exceptions: one plain sentence and, where possible, a hint.

The command line prints `message` and `hint` and exits with `exit_code`; a Python caller sees both in `str(error)`.
"""

from __future__ import annotations

from typing import Any


class KjitError(RuntimeError):
    """The base of every error that kjit raises on purpose.

    Args:
        message: one sentence: the thing, what was expected, what was found.
        hint: what to do next, usually a command; None where there is nothing to advise.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is made anew from `args`, which have no hint, and lack what a subclass requires: it
        # could leave a process (`ProcessPoolExecutor`, `multiprocessing.Pool`), and not arrive in another.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[KjitError], args: tuple[Any, ...], state: dict[str, Any]) -> KjitError:
    """An error that was pickled or copied, without its `__init__`."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class UsageError(KjitError):
    """The request itself is wrong (a bad name, an unknown architecture, a broken `pyproject.toml`): exit status 2."""

    exit_code = 2


class ToolchainError(KjitError):
    """A compiler, ninja or a part of CUDA is missing, or the parts do not fit each other."""


class CacheError(KjitError):
    """The artifact cache cannot be used as it is (permissions, owner, a full disk)."""


class NotPrebuiltError(KjitError):
    """`KJIT_NO_COMPILE=1` is set and an artifact that is needed has not been built."""


class CompileError(KjitError):
    """The compiler or the linker refused the sources.

    Attributes:
        log: everything that the tools printed.
        command: the shell command that repeats the step that failed.
        is_repeated: nothing was compiled: it failed before, and nothing that it depends on has changed since.
    """

    is_repeated = False

    def __init__(self, message: str, *, log: str, command: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log = log
        self.command = command
