"""Device code has the constants that nvcc gives it, whichever compiler builds a unit."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from both import VALUES, Compared, compare, is_for_nvrtc
from cubins import variable_of
from expressions import CATEGORIES, PREPARED

pytestmark = pytest.mark.nvcc

_DAILY, _PER_UNIT = 60, 600

# A constant as two numbers: its value (the bits of a floating-point number, a hash of a text) and its size.
_PRELUDE = """
namespace meaning {
struct Entry { long long number, value, size; };
template <typename T> constexpr bool is_floating = false;
template <> constexpr bool is_floating<float> = true;
template <> constexpr bool is_floating<double> = true;
template <> constexpr bool is_floating<long double> = true;
template <typename T> constexpr __host__ __device__ long long value_of(const T& value) {
  if constexpr (__is_class(T)) return -1;
  else if constexpr (is_floating<T>) return __builtin_bit_cast(long long, (double)value);
  else return (long long)value;
}
constexpr __host__ __device__ long long value_of(decltype(nullptr)) { return 0; }
template <typename T, int kCount> constexpr __host__ __device__ long long value_of(const T (&text)[kCount]) {
  unsigned long long hash = 1469598103934665603ull;
  for (T each : text) hash = (hash ^ (unsigned)each) * 1099511628211ull;
  return (long long)hash;
}
}
"""
_TEXT = """{before}{prelude}
template <int kNumber> struct At {{ static constexpr meaning::Entry kEntry{{-1, 0, 0}}; }};
{lines}
__device__ const meaning::Entry entries[] = {{{entries}}};
__global__ void some_kernel(int* x) {{ *x = 1; }}
__global__ void read(meaning::Entry* to, int i) {{ *to = entries[i]; }}
extern "C" __attribute__((visibility("default"))) void {name}() {{ read<<<1, 1>>>(nullptr, 0); }}
"""


def _entries(library: Path) -> dict[int, str]:
    content = variable_of(library, "entries")
    return {
        number: f"{value:#x} of {size} bytes"
        for number, value, size in struct.iter_unpack("<qqq", content)
        if number >= 0
    }


def _compare(expressions: Sequence[str], folder: Path, flags: Sequence[str] = ()) -> Compared:
    lines = "\n".join(
        f"template <> struct At<{number}> {{ static constexpr meaning::Entry kEntry{{{number}, meaning::value_of(({each})), "
        f"(long long)sizeof(({each}))}}; }}; /*#{number}*/"
        for number, each in enumerate(expressions)
    )
    entries = ", ".join(f"At<{number}>::kEntry" for number in range(len(expressions)))
    text = _TEXT.format(before=PREPARED, prelude=_PRELUDE, lines=lines, entries=entries, name=VALUES)
    return compare(expressions, text, folder, flags, read=_entries)


CONSTANT = [category for category in CATEGORIES if category.is_constant]


def test_a_sample_of_constants_has_nvccs_values(tmp_path: Path) -> None:
    sampled = [each for category in CONSTANT for each in category.sample(_DAILY) if is_for_nvrtc(each)]
    _compare(sampled, tmp_path).hold(least=0.9)


@pytest.mark.nightly
@pytest.mark.parametrize("category", CONSTANT, ids=lambda category: category.name)
def test_all_constants_have_nvccs_values(category: object, tmp_path: Path) -> None:
    expressions = category.expressions  # type: ignore[attr-defined]
    for first in range(0, len(expressions), _PER_UNIT):
        _compare(expressions[first : first + _PER_UNIT], tmp_path).hold(least=0.7)
