"""The choice of experts against PyTorch's softmax and topk in float64."""

from __future__ import annotations

import pytest
import torch

import kjit.testing
from kjit.ops.moe import topk_softmax

device = kjit.testing.device_fixture("cuda")


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(
    ("dtype", "experts", "k"),
    [(torch.float32, 8, 2), (torch.float32, 8, 8), (torch.float32, 60, 4), (torch.bfloat16, 256, 8)],
)
@pytest.mark.parametrize("tokens", [0, 1, 77])
def test_the_largest_are_chosen(
    tokens: int, dtype: torch.dtype, experts: int, k: int, renormalize: bool, device: str
) -> None:
    # Numbers of which no two of a token are the same, in bfloat16 too.
    gates = torch.stack([torch.randperm(experts) for _ in range(tokens)] or [torch.zeros(0, experts)])
    gates = ((gates.view(tokens, experts) - experts // 2) / 32).to(device, dtype)
    weights, numbers = topk_softmax(gates, k, renormalize)
    expected, places = torch.softmax(gates.double(), -1).topk(k)
    if renormalize:
        expected = expected / expected.sum(-1, keepdim=True)
    assert numbers.tolist() == places.tolist()
    torch.testing.assert_close(weights, expected.float())


def test_of_equal_gates_the_first_are_chosen(device: str) -> None:
    weights, numbers = topk_softmax(torch.zeros(2, 60, device=device), 4)
    assert numbers.tolist() == [[0, 1, 2, 3]] * 2
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 60))


@pytest.mark.parametrize("largest", [0, 5])
def test_gates_of_minus_infinity_are_chosen_last_and_once(largest: int, device: str) -> None:
    gates = torch.full((1, 60), -torch.inf, device=device)
    gates[0, largest] = 1
    weights, numbers = topk_softmax(gates, 4)
    assert numbers.tolist() == [[largest, *[n for n in range(5) if n != largest][:3]]]
    assert weights.tolist() == [[1, 0, 0, 0]]


@pytest.mark.parametrize("k", [0, 9])
def test_more_than_there_are_is_refused(k: int, device: str) -> None:
    with pytest.raises(RuntimeError, match=f"k is {k}, and must be 1 to 32"):
        topk_softmax(torch.zeros(2, 8, device=device), k)


def test_torch_compile_takes_it_whole(device: str) -> None:
    gates = torch.randn(3, 8, device=device)
    weights, numbers = torch.compile(topk_softmax, fullgraph=True)(gates, 2, True)
    assert numbers.tolist() == gates.topk(2).indices.tolist()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, device=device))
