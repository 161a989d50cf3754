"""The store into a paged cache against `index_copy_`."""

from __future__ import annotations

import pytest
import torch

import kjit.testing
from kjit.ops.kv_cache import store_kv_cache

device = kjit.testing.device_fixture("cuda")


def stored(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    kept = (slots >= 0) & (slots < len(k_cache))
    for cache, rows in ((k_cache, k), (v_cache, v)):
        cache[slots[kept]] = rows[kept]
    return k_cache, v_cache


REFERENCES = {store_kv_cache: stored}


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("dtype", "columns"),
    [(torch.bfloat16, 64), (torch.bfloat16, 1024), (torch.uint8, 576), (torch.float32, 1), (torch.float16, 7)],
)
@pytest.mark.parametrize("rows", [0, 1, 77])
def test_rows_are_where_the_slots_say(
    rows: int, dtype: torch.dtype, columns: int, index: torch.dtype, device: str
) -> None:
    qkv = kjit.testing.random_tensor((rows, 3 * columns), dtype, device)  # k and v are slices of one projection
    k, v = qkv[:, columns : 2 * columns], qkv[:, 2 * columns :]
    layers = kjit.testing.random_tensor((100, 4 * columns), dtype, device)  # and the caches layers of one tensor
    k_cache, v_cache = layers[:, columns : 2 * columns], layers[:, 3 * columns :]
    slots = torch.randperm(100)[:rows].to(index)
    slots[::3] = -1
    expected = layers.clone()
    kept = slots >= 0
    expected[slots[kept].long(), columns : 2 * columns] = k[kept]
    expected[slots[kept].long(), 3 * columns :] = v[kept]
    store_kv_cache(k, v, k_cache, v_cache, slots.to(device))
    assert torch.equal(layers, expected)


def test_a_slot_past_the_end_of_the_cache_is_skipped(device: str) -> None:
    k = torch.ones(2, 8, device=device)
    room = torch.zeros(4, 8, device=device)
    store_kv_cache(k, k, room[:3], room[:3], torch.tensor([3, 2**31 - 1], dtype=torch.int32, device=device))
    assert not bool(room.any())


def test_what_does_not_fit_is_refused(device: str) -> None:
    k, cache = torch.ones(2, 8, device=device), torch.zeros(4, 8, device=device)
    slots = torch.arange(2, device=device)
    with pytest.raises(RuntimeError, match="Size mismatch"):
        store_kv_cache(k, k[:, :4], cache, cache, slots)
    with pytest.raises(RuntimeError, match="DType mismatch"):
        store_kv_cache(k, k, cache, cache.half(), slots)
    with pytest.raises(TypeError, match="float32 is neither"):
        store_kv_cache(k, k, cache, cache.clone(), slots.float())


@pytest.mark.inductor
def test_torch_compile_takes_it_whole(device: str) -> None:
    def call(k: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        store_kv_cache(k * 2, k + 1, cache[0], cache[1], slots)
        return cache + 1

    k, cache = torch.ones(2, 8, device=device), torch.zeros(2, 4, 8, device=device)
    out = torch.compile(call, fullgraph=True)(k, cache, torch.tensor([3, 1], device=device))
    assert out[:, :, 0].tolist() == [[1, 3, 1, 3], [1, 3, 1, 3]]
