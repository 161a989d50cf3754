"""Code that pages show as written before kjit works, and has the same results as the code after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pages import read_page

from kjit.engine.toolchain.programs import find_ninja

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-torch-extensions.md"


@pytest.mark.nightly  # torch's headers take a minute
def test_the_extension_of_torch_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import cpp_extension

    source = tmp_path / "before.cpp"
    source.write_text(
        next(block.text for block in read_page(PAGE, PAGE.name).blocks if "PYBIND11_MODULE" in block.text)
    )
    monkeypatch.setenv("PATH", str(find_ninja().parent), prepend=":")
    module = cpp_extension.load("before", [str(source)], build_directory=str(tmp_path))
    assert module.scale(torch.arange(6.0).reshape(2, 3).T, 2.0).tolist() == [[0, 6], [2, 8], [4, 10]]
    with pytest.raises(RuntimeError, match="x must be float32"):
        module.scale(torch.ones(3, dtype=torch.float64), 2.0)
