from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose package has a name of its own, so that several tests can import theirs."""
    package = f"kernels_{re.sub(r'[^a-z0-9]', '_', tmp_path.name.lower())}"
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.kjit]\npackage = "{package}"\n\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
    )
    return tmp_path
