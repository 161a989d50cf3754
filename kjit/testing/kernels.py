"""Expectations about the machine code of kernels, checked without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kjit.engine.cache.store import Artifact
    from kjit.engine.diagnostics.machine_code import Kernel


@dataclass(frozen=True)
class Kernels:
    """Expectations about the kernels of a module; None is not checked.

        class TestScale(kjit.testing.OpTest, ...):
            kernels = kjit.testing.Kernels(max_registers=32, load_bits=128)

    Args:
        spills: whether threads may spill registers to memory.
        max_registers: the most registers per thread.
        max_shared: the most static shared memory per block, in bytes.
        load_bits, store_bits: the minimum width of the widest load from and store to global memory; 128 is sixteen
            bytes. Of several kernels in a module, one has to have them, as others are for unaligned data.
        name: only kernels with this in their name.

    Raises:
        ValueError: no GPU has loads of this width.
    """

    spills: bool = False
    max_registers: int | None = None
    max_shared: int | None = None
    load_bits: int | None = None
    store_bits: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        for bits in (self.load_bits, self.store_bits):
            if bits not in (None, 8, 16, 32, 64, 128, 256):
                raise ValueError(f"no load or store is {bits} bits wide: 8, 16, 32, 64, 128 and 256 there are")

    def check(self, artifact: Artifact) -> None:
        """Compare the kernels of a module with the expectations.

        Raises:
            AssertionError: an expectation is not met; the message names each kernel.
            ToolchainError: a width is expected, and there is no cuobjdump or no nvdisasm.
        """
        faults = self.faults_of(self._kernels(artifact))
        assert not faults, f"{artifact.label}: {'; '.join(faults)}"

    def _kernels(self, artifact: Artifact) -> list[Kernel]:
        from kjit.engine.diagnostics.machine_code import Kernel, read_library
        from kjit.engine.reports import report_of

        resources = report_of(artifact)[1]
        if self.load_bits is None and self.store_bits is None:  # registers and spills are in the compiler's report
            return [Kernel(each.kernel, each.arch, (), each) for each in resources]
        return read_library(artifact.library, resources)

    def faults_of(self, kernels: list[Kernel]) -> list[str]:
        """Unmet expectations, one sentence each."""
        from kjit.engine.diagnostics.symbols import short_names

        chosen = [kernel for kernel in kernels if self.name in kernel.name]
        if not chosen:
            return [f"no kernel has '{self.name}' in its name" if self.name else "there is no kernel"]
        faults = []
        for name, kernel in zip(short_names([kernel.name for kernel in chosen]), chosen, strict=True):
            used = kernel.resources
            if used is None:
                continue
            spilled = used.spill_stores + used.spill_loads
            if spilled and not self.spills:
                faults.append(f"{name} spills {spilled} bytes")
            if self.max_registers is not None and used.registers > self.max_registers:
                faults.append(
                    f"{name} needs {used.registers} registers, and {self.max_registers} were expected at most"
                )
            if self.max_shared is not None and used.shared > self.max_shared:
                faults.append(
                    f"{name} needs {used.shared} bytes of shared memory, and {self.max_shared} were expected at most"
                )
        for kind, bits in (("global loads", self.load_bits), ("global stores", self.store_bits)):
            if bits is not None:
                widest = max((max(kernel.widths(kind), default=0) for kernel in chosen), default=0)
                if widest < bits:
                    found = f"the widest is {widest} bits wide" if widest else "there are none"
                    faults.append(f"{kind} of {bits} bits were expected, and {found}")
        return faults
