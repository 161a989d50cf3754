"""kjit.engine.compile.math_names: names that NVRTC does not declare."""

from __future__ import annotations

import re

import pytest

from kjit.engine.compile.math_names import definitions, restored, restored_symbols, without_builtins

NAMES = dict(re.findall(r"^#define (\w+) ([\w$]+)$", definitions(), re.MULTILINE))


def test_every_name_has_one_of_its_own() -> None:
    assert {"pow", "abs", "isnan", "llround"} <= NAMES.keys()
    assert len({*NAMES.values()}) == len(NAMES)
    assert all(len(new) == len(name) and "$" in new for name, new in NAMES.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_restored(name: str) -> None:
    new = NAMES[name]
    assert restored(f"error in '{new}({new}f, my{new})'") == f"error in '{name}({name}f, my{name})'"
    symbol = f"_ZN1q{len(name)}{new}I{len(name) + 2}my{name}EvPf"
    assert restored_symbols(f"\0{symbol}\0.text.{symbol}\0".encode()) == (
        f"\0{symbol}\0.text.{symbol}\0".replace(new, name).encode()
    )


def test_names_of_nvrtcs_stay() -> None:
    names = b"\0$__internal_3_$__cuda_sm20_dsqrt_rn\0.nv.constant2._Z1kPf\0"
    assert restored_symbols(names) == names


def test_cudas_declarations_are_no_builtins() -> None:
    builtin = "__attribute__((host)) __attribute__((device)) __attribute__((device_builtin))"
    text = (
        f"extern {builtin} double pow(double);\nextern {builtin} float powf(float);\nextern {builtin} int abs(int);\n"
    )
    assert without_builtins(text).count("device_builtin") == 1
