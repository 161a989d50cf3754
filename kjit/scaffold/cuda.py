"""What does an op look like in a CUDA kernel?

What an op's kernels have in common with those for the CPU is in `cpp.py`: here is what a call is made of where vectors
are in registers, and how many of them there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kjit.scaffold.cpp import CppView, TensorView
from kjit.scaffold.held import Held
from kjit.scaffold.patterns import Kind


@dataclass(frozen=True)
class CudaView:
    """An op in CUDA.

    Args:
        cpp: the op.
    """

    cpp: CppView

    @property
    def launch_arguments(self) -> list[str]:
        """Behind the kernel: a launch converts them to the kernel's parameters."""
        tensors = [tensor.data if tensor.optional else f"{tensor.name}.data_ptr()" for tensor in self.cpp.tensors]
        return [*tensors, *self.cpp.scalar_names(), "numel"]

    def term_arguments(self, element: str, index: str = "") -> list[str]:
        """The arguments of the function for what is summed: `element` follows a tensor's name, or an index."""
        return [self._row_element(t, index) if index else f"{t.name}{element}" for t in self.cpp.of_term]

    def _row_element(self, tensor: TensorView, index: str) -> str:
        pointer = f"params.{tensor.name}" if tensor.kind == "column" else f"{tensor.name}_row"
        return tensor.at(pointer, index)

    @property
    def element_call_vectors(self) -> list[str]:
        """The arguments of the function for one element, which are parts of vectors."""

        def of_vectors(tensor: TensorView) -> str:
            part = "" if tensor.role == "out" else "[i % kColumns]" if tensor.kind == "column" else "[i]"
            return f"{tensor.name}_vec{part}[j]"

        return self._element_call(of_vectors)

    @property
    def element_call_singles(self) -> list[str]:
        """The same for an element in memory."""
        return self._element_call(lambda tensor: self._row_element(tensor, "at"))

    @property
    def packed_term_call(self) -> list[str]:
        """The arguments of the function for what is summed, where rows are packed: a column has one vector then."""
        return [f"{t.name}_vec{'[i]' if t.kind == 'element' else ''}[j]" for t in self.cpp.of_term]

    @property
    def packed_call(self) -> list[str]:
        """Those of the function for one element, which may be of the next row."""

        def of_vectors(tensor: TensorView) -> str:
            held = tensor.kind == "element" and tensor.role != "out"
            return f"{tensor.name}_vec{'[i]' if held else ''}[j]"

        return self._element_call(of_vectors, may_be_next=True)

    @property
    def packed_single_call(self) -> list[str]:
        """The same for an element behind the last vector."""
        return self._element_call(self._tail_element)

    @property
    def packed_single_term_call(self) -> list[str]:
        """Those of the function for what is summed, for such an element."""
        return [self._tail_element(tensor) for tensor in self.cpp.of_term]

    def _tail_element(self, tensor: TensorView) -> str:
        tail = "tail_at" if tensor.kind == "element" else "tail_column"
        return tensor.at(f"params.{tensor.name}", f"packing.{tail}() + j")

    def _element_call(self, argument: Callable[[TensorView], str], *, may_be_next: bool = False) -> list[str]:
        """The arguments of the function for one element: `argument` says what is a tensor's, but for those that have a
        number for each row."""

        def of_row(number: str, of_next: str) -> str:
            return f"is_next ? {of_next} : {number}" if may_be_next else number

        tensors = [
            of_row(f"{tensor.name}_row", f"{tensor.name}_next") if tensor.kind == "number" else argument(tensor)
            for tensor in self.cpp.of_element
        ]
        factor = self.cpp.start.factor
        return [*tensors, *self.cpp.element_numbers("params.", of_row(factor, f"next_{factor}"))]

    @property
    def held(self) -> Held:
        """How much a thread of a CUDA kernel holds."""
        rows, columns = self.cpp.of("element", roles=("in", "mut")), self.cpp.of("column")
        return Held(len(rows), len(columns), self.cpp.start.writes_rows)

    def pointers(self, *kinds: Kind) -> list[str]:
        """Those of the kernel's parameters that tensors of these kinds have."""
        return [f"params.{tensor.name}" for tensor in self.cpp.of(*kinds)]

    @property
    def elements(self) -> list[str]:
        """The element types that vectors are made of, each once."""
        return list(dict.fromkeys(t.element for t in self.cpp.tensors if t.kind in ("element", "column")))
