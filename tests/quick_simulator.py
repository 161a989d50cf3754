"""The simulator's modules compiled with less optimisation and without descriptions of variables, in half the CPU time.

A pytest plugin, for runs that tests start in projects (`-p quick_simulator`); `tests/ops` uses it too. The nightly run
compiles as users do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kjit.spec import Spec

FLAGS = ("-O1", "-Xcompiler=-g1")


def compile_quickly(patch: pytest.MonkeyPatch) -> None:
    """Have each spec with CUDA sources begin its CUDA flags with `FLAGS`, until the patch ends.

    Flags of a spec are part of its key, so these modules are not mistaken for those of users' flags.
    """
    plain = Spec.__init__

    def init(
        self: Spec,
        name: str,
        *args: str,
        cuda_files: Iterable[Any] = (),
        extra_cuda_cflags: Iterable[str] = (),
        **parts: Any,
    ) -> None:
        files = list(cuda_files)
        flags = [*FLAGS, *extra_cuda_cflags] if files else extra_cuda_cflags
        plain(self, name, *args, cuda_files=files, extra_cuda_cflags=flags, **parts)

    patch.setattr(Spec, "__init__", init)


def is_for_users_flags(config: pytest.Config) -> bool:
    """Whether this run compiles everything as users do: `make test-all`, whose tests are not selected by marker."""
    return not config.getoption("markexpr")


def pytest_configure() -> None:
    compile_quickly(pytest.MonkeyPatch())
