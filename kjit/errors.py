"""kjit's exceptions: a sentence, and a hint if possible.

The command line prints `message` and `hint` and exits with `exit_code`; a Python caller sees both in `str(error)`.
"""

from __future__ import annotations

from typing import Any


class KjitError(RuntimeError):
    """The base of every error that kjit raises on purpose.

    Args:
        message: one sentence with the subject, the expected and the actual state.
        hint: what to do next, usually a command; or None.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, an exception is unpickled from `args`, which lack the hint and required arguments of subclasses,
        # so that it could not be passed between processes (`ProcessPoolExecutor`, `multiprocessing.Pool`).
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[KjitError], args: tuple[Any, ...], state: dict[str, Any]) -> KjitError:
    """A pickled or copied error, created without `__init__`."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class UsageError(KjitError):
    """Invalid usage (a bad name, an unknown architecture, a broken `pyproject.toml`): exit status 2."""

    exit_code = 2


class ToolchainError(KjitError):
    """A compiler, ninja or a part of CUDA is missing, or parts do not fit each other."""


class CacheError(KjitError):
    """The artifact cache cannot be used (permissions, owner, a full disk)."""


class NotPrebuiltError(KjitError):
    """`KJIT_NO_COMPILE=1` is set, and a required artifact is not built."""


class CompileError(KjitError):
    """The sources do not compile or link.

    Attributes:
        log: the full output of the tools.
        command: a shell command that repeats the failed step.
        is_repeated: whether this is an earlier failure, and nothing was compiled, as nothing that it depends on has
            changed.
    """

    is_repeated = False

    def __init__(self, message: str, *, log: str, command: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log = log
        self.command = command
