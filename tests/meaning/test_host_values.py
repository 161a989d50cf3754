"""Host code has the values that nvcc gives it, whichever compiler builds a unit."""

from __future__ import annotations

from pathlib import Path

import pytest
from both import compare

pytestmark = pytest.mark.nvcc

MATH = "#include <cmath>\n#include <limits>\n"


def test_math_of_the_host_is_nvccs(tmp_path: Path) -> None:
    expressions = [
        f"{prefix}{name}({value})"
        for name in ("sqrt", "exp", "log", "sin", "fabs", "abs", "cbrt", "floor")
        for value in ("2", "2.5f", "-0.0", "NAN", "3u")
        for prefix in ("", "std::")
    ] + [
        f"{name}({a}, {b})"
        for name in ("pow", "fmax", "fmin", "max", "min")
        for a in ("1", "2.5f", "NAN", "1.5")
        for b in ("2", "0.5f", "(float)NAN", "-0.0", "7ull", "3u")
    ]
    found = compare(expressions, tmp_path, MATH)
    assert found.different == []
    assert found.equal > 150
