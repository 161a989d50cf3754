"""kjit.testing.Kernels: expectations about machine code, and the messages if they are not met."""

from __future__ import annotations

import pytest

from kjit.engine.diagnostics.machine_code import Instruction, Kernel
from kjit.engine.diagnostics.printed import KernelResources
from kjit.testing import Kernels


def kernel(name: str = "scale", *, registers: int = 32, shared: int = 0, spills: int = 0, code: str = "") -> Kernel:
    told = KernelResources(name, "sm_90a", registers, shared, spills, spills, 0)
    return Kernel(name, "sm_90a", tuple(Instruction(0, text, ()) for text in code.split(";") if text), told)


@pytest.mark.parametrize(
    ("expected", "kernels", "faults"),
    [
        (Kernels(), [kernel()], []),
        (Kernels(), [kernel(spills=8)], ["scale spills 16 bytes"]),
        (Kernels(spills=True), [kernel(spills=8)], []),
        (Kernels(max_registers=32), [kernel()], []),
        (
            Kernels(max_registers=31),
            [kernel("a", registers=31), kernel("b")],
            ["b needs 32 registers, and 31 were expected at most"],
        ),
        (
            Kernels(max_shared=1024),
            [kernel(shared=2048)],
            ["scale needs 2048 bytes of shared memory, and 1024 were expected at most"],
        ),
        (Kernels(load_bits=128), [kernel("a", code="LDG.E R0;STG.E.128 R0"), kernel("b", code="LDG.E.128 R0")], []),
        (
            Kernels(load_bits=128, store_bits=64),
            [kernel(code="LDG.E.64 R0;LDS.128 R1")],
            [
                "global loads of 128 bits were expected, and the widest is 64 bits wide",
                "global stores of 64 bits were expected, and there are none",
            ],
        ),
        (Kernels(max_registers=16, name="a<"), [kernel("a<int>", registers=16), kernel("b<int>")], []),
        (Kernels(name="c"), [kernel("a")], ["no kernel has 'c' in its name"]),
    ],
)
def test_each_unmet_expectation_is_reported(expected: Kernels, kernels: list[Kernel], faults: list[str]) -> None:
    assert expected.faults_of(kernels) == faults


def test_a_width_that_no_gpu_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no load or store is 100 bits wide"):
        Kernels(load_bits=100)
