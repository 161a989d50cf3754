"""Ops without an `OpTest`, on another stream and in a CUDA graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kjit.ops.embedding import embedding
from kjit.ops.hicache import transfer_kv
from kjit.ops.kv_cache import store_kv_cache
from kjit.ops.moe import topk_softmax
from kjit.ops.norm import qknorm_across_heads
from kjit.ops.quant import per_tensor_quant_fp8, per_token_group_quant, per_token_quant_fp8, static_quant_fp8
from kjit.ops.rope import qknorm, qknorm_rope, rope

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
cuda: Any = torch.cuda  # which is not typed throughout


class Calls:
    """Every op once, on what was computed by the one before where it can be."""

    def __init__(self) -> None:
        self.x = torch.zeros(32, 6 * 128, dtype=torch.bfloat16, device="cuda")
        self.weight = torch.rand(6 * 128, device="cuda").bfloat16()
        self.scale = torch.full((1,), 0.1, device="cuda")
        self.angles = torch.rand(64, 128, device="cuda")
        self.slots = torch.randperm(64, device="cuda")[:32]
        self.cache = torch.zeros(2, 64, 256, dtype=torch.bfloat16, device="cuda")
        self.host = torch.zeros(2, 64, 256, dtype=torch.bfloat16, pin_memory=True)

    def __call__(self) -> list[torch.Tensor]:
        x = self.x.clone()
        heads = x.view(32, 6, 128)
        q, k, weight = heads[:, :4], heads[:, 4:], self.weight[:128]
        qknorm_across_heads(x[:, :512], x[:, 512:], self.weight[:512], self.weight[512:])
        qknorm(q, k, weight, weight)
        rope(q, k, self.angles, self.slots)
        qknorm_rope(q, k, weight, weight, self.angles, self.slots, False)
        store_kv_cache(x[:, :256], x[:, 256:512], *self.cache, self.slots)
        transfer_kv(self.host, self.cache, self.slots, self.slots)
        back = torch.zeros_like(self.cache)
        transfer_kv(back, self.host, self.slots, self.slots)
        quantised = [*per_tensor_quant_fp8(x), *per_token_quant_fp8(x), *per_token_group_quant(x)]
        chosen = [*topk_softmax(x[:, :64].contiguous(), 4), embedding(self.slots, back[0])]
        return [x, back, *chosen, *quantised, static_quant_fp8(x, self.scale)]


def check(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one.float(), other.float())


def test_they_run_on_the_current_stream() -> None:
    calls, x = Calls(), torch.randn(32, 6 * 128, device="cuda").bfloat16()
    calls.x.copy_(x)
    expected = calls()
    calls.x.zero_()
    calls.cache.zero_()
    calls.host.zero_()
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        cuda._sleep(100_000_000)
        calls.x.copy_(x)
        actual = calls()
    stream.synchronize()
    check(actual, expected)


def test_they_are_captured_in_a_cuda_graph() -> None:
    calls, x = Calls(), torch.randn(32, 6 * 128, device="cuda").bfloat16()
    calls()  # loads the modules
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = calls()
    calls.x.copy_(x)
    graph.replay()
    torch.cuda.synchronize()
    check(actual, calls())
