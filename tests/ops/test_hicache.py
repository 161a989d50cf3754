"""Transfers between caches against indexing."""

from __future__ import annotations

import pytest
import torch

import kjit.testing
from kjit.ops.hicache import transfer_kv

device = kjit.testing.device_fixture("cuda")
LAYERS = 3


def on_host(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy in memory that a GPU reaches."""
    return tensor.cpu().pin_memory() if device == "cuda" else tensor.clone()


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("row_bytes", [128, 1024, 1152])
@pytest.mark.parametrize("page_first", [False, True])
@pytest.mark.parametrize("count", [0, 1, 300])
def test_slots_come_to_the_host_and_back(
    count: int, page_first: bool, row_bytes: int, index: torch.dtype, device: str
) -> None:
    columns, is_mla = row_bytes // 2, row_bytes == 1152
    on_gpu = [
        kjit.testing.random_tensor((LAYERS, 400, columns), torch.bfloat16, device) for _ in range(1 if is_mla else 2)
    ]
    shape = (700, LAYERS, columns) if page_first else (LAYERS, 700, columns)
    memory = [on_host(torch.zeros(shape, dtype=torch.bfloat16), device) for _ in on_gpu]
    host = [cache.transpose(0, 1) if page_first else cache for cache in memory]
    gpu_slots, host_slots = torch.randperm(400)[:count], torch.randperm(700)[:count]
    slots = {"gpu": gpu_slots.to(device, index), "host": host_slots.to(device, index)}

    v = {} if is_mla else {"v_to": host[1], "v_from": on_gpu[1]}
    transfer_kv(host[0], on_gpu[0], slots["host"], slots["gpu"], **v)
    if device == "cuda":
        torch.cuda.synchronize()
    for cache, source in zip(host, on_gpu, strict=True):
        expected = torch.zeros(LAYERS, 700, columns, dtype=torch.bfloat16)
        expected[:, host_slots] = source.cpu()[:, gpu_slots]
        assert torch.equal(cache, expected)

    back = [torch.zeros_like(cache) for cache in on_gpu]
    layer = slice(1, 2)  # one of them
    v = {} if is_mla else {"v_to": back[1][layer], "v_from": host[1][layer]}
    transfer_kv(back[0][layer], host[0][layer], slots["gpu"], slots["host"], **v, block_quota=1)
    for cache, source in zip(back, on_gpu, strict=True):
        expected = torch.zeros_like(cache)
        expected[layer, gpu_slots] = source[layer, gpu_slots]
        assert torch.equal(cache, expected)


def test_what_does_not_fit_is_refused(device: str) -> None:
    cache, slots = torch.zeros(2, 4, 64, device=device), torch.arange(2, device=device)
    with pytest.raises(RuntimeError, match="Size mismatch"):
        transfer_kv(cache, cache[:1].clone(), slots, slots)
    with pytest.raises(RuntimeError, match="v_to and v_from are given together"):
        transfer_kv(cache, cache.clone(), slots, slots, v_to=cache.clone())
    with pytest.raises(RuntimeError, match="a row has 24 bytes, not a multiple of 16"):
        transfer_kv(cache[..., :6], cache.clone()[..., :6], slots, slots)
    with pytest.raises(RuntimeError, match="block_quota is 0"):
        transfer_kv(cache, cache.clone(), slots, slots, block_quota=0)
    with pytest.raises(TypeError, match="float32 is neither"):
        transfer_kv(cache, cache.clone(), slots.float(), slots.float())
