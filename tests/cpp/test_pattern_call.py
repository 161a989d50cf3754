"""kjit/detail/pattern_call.h: outputs of patterns that share memory with other tensors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

CASES = "pattern_call_cases"

OVERLAP = r"pattern_call_cases.cpp:\d+: an output overlaps an input in memory: tensors {} and {} of {}\(\)"


def overlaps(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether two tensors of float32 share an element."""
    places = [
        {
            tensor.storage_offset() + sum(i * s for i, s in zip(at, tensor.stride(), strict=True))
            for at in ndindex(tensor)
        }
        for tensor in (x, out)
    ]
    return not places[0].isdisjoint(places[1])


def ndindex(tensor: torch.Tensor) -> itertools.product[tuple[int, ...]]:
    return itertools.product(*map(range, tensor.shape))


class TestElementwise:
    @pytest.mark.parametrize("shift", [1, -1, 15, -15])
    def test_an_output_that_overlaps_an_input_in_part_is_refused(self, module: Any, shift: int) -> None:
        memory = torch.zeros(32)
        x, out = memory[max(-shift, 0) :][:16], memory[max(shift, 0) :][:16]
        with pytest.raises(RuntimeError, match=OVERLAP.format(1, 3, "elementwise")):
            module.add(x, torch.zeros(16), out)
        with pytest.raises(RuntimeError, match=OVERLAP.format(2, 3, "elementwise")):
            module.add(torch.zeros(16), x, out)

    def test_an_output_may_be_an_input_and_lie_beside_one(self, module: Any) -> None:
        memory = torch.arange(48.0)
        x, y, out = memory.split(16)
        expected = x + y
        module.add(x, y, out)
        assert torch.equal(out, expected)
        module.add(x, y, x)
        assert torch.equal(x, expected)

    def test_inputs_may_share_memory(self, module: Any) -> None:
        memory, out = torch.arange(17.0), torch.zeros(16)
        module.add(memory[1:], memory[:-1], out)
        assert torch.equal(out, memory[1:] + memory[:-1])

    def test_an_output_may_be_an_input_whose_elements_have_the_same_size(self, module: Any) -> None:
        x = torch.arange(17, dtype=torch.int32)
        out = x.view(torch.float32)
        module.to_float(x[1:], out[1:])
        assert torch.equal(out[1:], torch.arange(1.0, 17))
        with pytest.raises(RuntimeError, match=OVERLAP.format(1, 2, "elementwise")):
            module.to_float(x[1:], out[:-1])

    def test_an_output_is_not_another_output(self, module: Any) -> None:
        out = torch.zeros(16)
        with pytest.raises(RuntimeError, match=r"two outputs overlap in memory: tensors 2 and 3 of elementwise\(\)"):
            module.two(torch.zeros(16), out, out)

    def test_tensors_without_elements_share_nothing(self, module: Any) -> None:
        empty = torch.zeros(4)[2:2]
        module.two(empty, empty, empty)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(("stride", "out_stride"), [(7, 7), (3, 7), (7, 3), (3, 3)])
def test_strided_rows_are_refused_if_and_only_if_they_share_an_element(
    module: Any, rows: int, stride: int, out_stride: int
) -> None:
    memory = torch.zeros(200)
    for offset, out_offset in itertools.product([80], range(40, 120)):
        x = memory.as_strided((rows, 3), (stride, 1), offset)
        out = memory.as_strided((rows, 3), (out_stride, 1), out_offset)
        is_same = offset == out_offset and (stride == out_stride or rows == 1)
        if overlaps(x, out) and not is_same:
            with pytest.raises(RuntimeError, match=OVERLAP.format(1, 2, "elementwise")):
                module.copy_rows(x, out)
        else:
            module.copy_rows(x, out)


class TestRowwise:
    def test_an_output_that_overlaps_rows_or_columns_is_refused(self, module: Any) -> None:
        memory, weight = torch.zeros(9, 16), torch.zeros(16)
        with pytest.raises(RuntimeError, match=OVERLAP.format(1, 3, "rowwise")):
            module.add_sum(memory[:-1], weight, memory[1:])
        with pytest.raises(RuntimeError, match=OVERLAP.format(2, 3, "rowwise")):
            module.add_sum(torch.zeros(9, 16), memory[4], memory)

    def test_an_output_may_be_the_rows(self, module: Any) -> None:
        x, weight = torch.arange(48.0).reshape(3, 16), torch.ones(16)
        expected = x.sum(1, keepdim=True) + x + 1
        module.add_sum(x, weight, x)
        assert torch.equal(x, expected)


class TestTables:
    def test_a_result_in_the_table_is_refused(self, module: Any) -> None:
        table, index = torch.zeros(9, 16), torch.tensor([1, 8])
        with pytest.raises(RuntimeError, match=OVERLAP.format(2, 3, "gather")):
            module.take(index, table, table[:2])
        with pytest.raises(RuntimeError, match=OVERLAP.format(2, 3, "scatter")):
            module.store(index, table, table[:2])

    def test_a_table_is_not_the_rows_of_the_same_shape(self, module: Any) -> None:
        table, index = torch.zeros(2, 16), torch.tensor([1, 0])
        with pytest.raises(RuntimeError, match=OVERLAP.format(2, 3, "gather")):
            module.take(index, table, table)

    def test_a_result_in_the_index_is_refused(self, module: Any) -> None:
        index = torch.tensor([1, 8])
        with pytest.raises(RuntimeError, match=OVERLAP.format(1, 3, "gather")):
            module.take(index, torch.zeros(9, 4), index.view(torch.float32).reshape(1, 4))
