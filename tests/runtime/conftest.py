from __future__ import annotations

import pytest

from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Target


@pytest.fixture(scope="module")
def records() -> None:
    """Skip a module if artifacts are not recorded."""
    if Toolchain.for_target(Target.cpu()).probes() is None:
        pytest.skip("the C++ compiler is a script on this machine, and may run another one each time: no records")
