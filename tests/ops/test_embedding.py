"""The look-up in a table against indexing."""

from __future__ import annotations

import pytest
import torch

import kjit.testing
from kjit.ops.embedding import embedding

device = kjit.testing.device_fixture("cuda")


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("columns", [1, 7, 1024])
@pytest.mark.parametrize("count", [0, 1, 77])
def test_rows_are_those_of_the_table(count: int, columns: int, index: torch.dtype, device: str) -> None:
    table = kjit.testing.random_tensor((50, columns), torch.bfloat16, device)
    ids = torch.randint(50, (count,), dtype=index, device=device)
    assert torch.equal(embedding(ids, table), table[ids.long()])


def test_an_id_without_a_row_gives_zeros(device: str) -> None:
    table = torch.ones(3, 8, device=device)
    out = embedding(torch.tensor([-1, 2, 3, 2**31 - 1], dtype=torch.int32, device=device), table)
    assert out[:, 0].tolist() == [0, 1, 0, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_results_past_two_to_the_31_are_right() -> None:
    table = kjit.testing.random_tensor((8, 2**16), torch.bfloat16, "cuda")
    ids = torch.randint(8, (2**15 + 3,), device="cuda")
    assert torch.equal(embedding(ids, table)[-9:], table[ids[-9:]])


def test_what_does_not_fit_is_refused(device: str) -> None:
    table, ids = torch.ones(3, 8, device=device), torch.zeros(2, dtype=torch.int32, device=device)
    with pytest.raises(TypeError, match="neither"):
        embedding(ids.short(), table)
    with pytest.raises(TypeError, match="float64 is not one of"):
        embedding(ids, table.double())
    with pytest.raises(RuntimeError, match="not contiguous"):
        embedding(ids, table[:, :4])


@pytest.mark.nightly
def test_torch_compile_takes_it_whole(device: str) -> None:
    table, ids = torch.randn(3, 8, device=device), torch.tensor([2, 0], dtype=torch.int32, device=device)
    assert torch.equal(torch.compile(embedding, fullgraph=True)(ids, table), table[ids.long()])
