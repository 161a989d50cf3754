from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kjit.engine.compile import eager_calls
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import load, native
from kjit.spec import Target

if TYPE_CHECKING:
    from kjit.runtime.native import Native


@pytest.fixture(scope="session")
def compiled() -> Native:
    """The compiled code for eager calls."""
    built = eager_calls.build()
    assert built is not None
    return built


@pytest.fixture(scope="module")
def records() -> None:
    """Skip a module if artifacts are not recorded."""
    if Toolchain.for_target(Target.cpu()).looks() is None:
        pytest.skip("the C++ compiler is a script on this machine, and may run another one each time: no records")


@pytest.fixture
def unsettled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test begins as a process does: nothing was looked for, and all runs in Python."""
    before = native.in_use()
    native.use(None)
    monkeypatch.setattr(load, "_origins", set())
    monkeypatch.setattr(native, "_tried", set())
    yield
    monkeypatch.undo()
    native.use(before)
