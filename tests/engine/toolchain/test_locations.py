"""kjit.engine.toolchain.locations: headers and libraries."""

from __future__ import annotations

import sys

from kjit.engine.toolchain import locations


def test_tvm_ffis_folders_are_found_without_importing_it() -> None:
    loaded = "tvm_ffi" in sys.modules
    assert (locations.tvm_ffi_include() / "tvm" / "ffi" / "c_api.h").is_file()
    assert locations.tvm_ffi_library().is_file()
    assert ("tvm_ffi" in sys.modules) == loaded
