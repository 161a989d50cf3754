"""Host code has the values that nvcc gives it, whichever compiler builds a unit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from both import compare_host, is_for_nvrtc
from expressions import BITS, CATEGORIES, LITERALS, OF_GNU, PREPARED, REFUSED_WORDS, Category, math
from structs import DEFINITIONS, INCLUDES

pytestmark = pytest.mark.nvcc

_DAILY, _PER_UNIT = 90, 600
"""The expressions of each category in the daily unit; the nightly ones of a unit."""

_KNOWN = (
    "sizeof(NULL)",
    "1'024",
    "std::numeric_limits<__int128>::max()",
    "sqrt(2.5f)",
    "exp(2.5f)",
    "pow(2.5f, 2.5f)",
    "max(NAN, 1.0f)",
    "min(1.0, (double)NAN)",
    "M_PI",
    "INFINITY",
    "__NVCC__",
    "(int)(ULONG_MAX > 0xffffffffUL)",
    'R"(some_kernel<<<1, 2>>>(x);)"',
    '"__device__ void f() {}"',
)
"""What once differed, each an example of its kind."""


def test_a_sample_of_every_category_has_nvccs_values(tmp_path: Path) -> None:
    sampled = [each for category in CATEGORIES for each in category.sample(_DAILY) if is_for_nvrtc(each)]
    # A word in a literal is no reason to refuse a unit.
    words = [form.format(word) for word in REFUSED_WORDS for form in ('"{}"', 'R"-({})-"', 'sizeof("{}")')]
    compare_host([*_KNOWN, *words, *sampled], tmp_path, PREPARED).hold(least=0.97)


@pytest.mark.parametrize(
    "headers", ["", *(pytest.param(f"#include <{each}>", marks=pytest.mark.nightly) for each in ("cmath", "math.h"))]
)
def test_math_is_nvccs_with_few_headers(headers: str, tmp_path: Path) -> None:
    """CUDA's own headers, which nvcc includes first, declare the functions of <math.h> for every type."""
    rest = ["2", "-1.5f", "0.5", "-0.0f", "NAN", "7u", "'a'"]
    chosen = [each for each in math() if headers or "std::" not in each]
    chosen = [each for each in chosen if any(each.endswith(f"{number})") for number in rest)]
    chosen = [each for each in chosen if not any(word in each for word in ("FLT_", "DBL_", "UINT_", "INT_"))]
    compare_host(chosen[:: len(chosen) // 150], tmp_path, headers).hold(least=0.8)


def test_macros_that_count_and_name_places_are_nvccs(tmp_path: Path) -> None:
    names = (
        "__COUNTER__",
        "__LINE__",
        "__FILE__",
        "__BASE_FILE__",
        "__INCLUDE_LEVEL__",
        "__func__",
        "__builtin_LINE()",
    )
    compare_host([*names, "__COUNTER__ + 1", "__builtin_FILE()", "__builtin_FUNCTION()"], tmp_path).hold(least=1)


@pytest.mark.parametrize("count", [1, pytest.param(len(OF_GNU), marks=pytest.mark.nightly)])
def test_what_nvrtc_lacks_is_refused_or_equal(count: int, tmp_path: Path) -> None:
    compare_host(
        OF_GNU[-count:], tmp_path, f"{INCLUDES}{DEFINITIONS}\n#include <stdlib.h>\nstatic int getpid_like = 3;\n{BITS}"
    ).hold(least=0)


def _parts() -> list[object]:
    return [
        pytest.param(category.expressions[first : first + _PER_UNIT], id=f"{category.name}-{first}")
        for category in CATEGORIES
        for first in range(0, len(category.expressions), _PER_UNIT)
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("expressions", _parts())
def test_all_have_nvccs_values(expressions: Sequence[str], tmp_path: Path) -> None:
    compare_host(expressions, tmp_path, PREPARED).hold()


@pytest.mark.nightly
@pytest.mark.parametrize("flag", ["-use_fast_math", "-std=c++17", "-DNDEBUG", "--extended-lambda", "-Xcompiler=-O0"])
def test_a_flag_means_the_same(flag: str, tmp_path: Path) -> None:
    """Flags of nvcc set macros, and choose C++'s standard or the math of CUDA's headers."""
    chosen = [
        each for category in CATEGORIES if category.name not in ("literals", "std") for each in category.sample(60)
    ]
    compare_host(chosen, tmp_path, PREPARED, [flag]).hold()


@pytest.mark.nightly
def test_text_in_literals_is_unchanged_beside_kernels_and_launches(tmp_path: Path) -> None:
    literal = Category("literals", LITERALS)
    kernels = "".join(
        f'__global__ void kernel{n}(const char* s = {each}) {{ if (s != {each}) printf("%s", {each}); }}\n'
        for n, each in enumerate(e for e in literal.sample(60) if e.startswith(('"', 'R"')))
    )
    compare_host(LITERALS, tmp_path, f"{PREPARED}\n#include <cstdio>\n{kernels}").hold()
