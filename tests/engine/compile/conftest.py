"""NVRTC, for tests that call it themselves."""

from __future__ import annotations

import pytest

from kjit.engine.toolchain.nvrtc import Nvrtc
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.spec import Target


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    try:
        found = Toolchain.for_target(Target.cuda("9.0")).nvrtc
    except ToolchainError as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip("NVRTC is not here")
    return found
