"""The speed of transfers between cache slots and pinned host memory, against one copy of as many bytes."""

from __future__ import annotations

import torch
import triton.testing  # type: ignore[import-untyped, unused-ignore]

import kjit.benchmark
from kjit.ops.hicache import transfer_kv

LAYERS, SLOTS = 32, 4096
COUNTS = [64, 512, 4096]
CASES = {
    f"{op}, {row_bytes:,} bytes, {order}": (op == "load", row_bytes, order == "page first")
    for op in ("load", "store")
    for row_bytes in (128, 1024, 1152)
    for order in ("layer first", "page first")
}


def measure(slots: int, op: str, provider: str) -> kjit.benchmark.BenchTime:
    if not torch.cuda.is_available():
        raise RuntimeError("needs an NVIDIA GPU")
    is_load, row_bytes, is_page_first = CASES[op]
    gpu = torch.zeros(LAYERS, SLOTS, row_bytes, dtype=torch.uint8, device="cuda")
    shape = (SLOTS, LAYERS, row_bytes) if is_page_first else (LAYERS, SLOTS, row_bytes)
    host = torch.zeros(shape, dtype=torch.uint8, pin_memory=True)
    to, source = (gpu, host) if is_load else (host, gpu)
    count = slots * LAYERS * row_bytes
    if provider == "one copy":
        to, source = to.view(-1)[:count], source.view(-1)[:count]
        return kjit.benchmark.run_benchmark(lambda: to.copy_(source, non_blocking=True), device="cuda")
    to_slots, from_slots = (torch.randperm(SLOTS, device="cuda")[:slots] for _ in range(2))
    to, source = (cache.transpose(0, 1) if is_page_first and cache is host else cache for cache in (to, source))
    quota = int(provider.removeprefix("kjit, ").split()[0])
    return kjit.benchmark.run_benchmark(
        lambda: transfer_kv(to, source, to_slots, from_slots, block_quota=quota), device="cuda"
    )


def bytes_moved(slots: int, op: str) -> int:
    return slots * LAYERS * CASES[op][1]


benchmark = triton.testing.perf_report(
    [
        triton.testing.Benchmark(
            x_names=["slots"],
            x_vals=kjit.benchmark.get_benchmark_range(COUNTS, [512]),
            line_arg="provider",
            line_vals=["kjit, 2 blocks", "kjit, 4 blocks", "kjit, 8 blocks", "one copy"],
            line_names=["kjit, 2 blocks", "kjit, 4 blocks", "kjit, 8 blocks", "one copy"],
            ylabel="microseconds",
            plot_name=f"transfer_kv, {name}",
            args={"op": name},
        )
        for name in CASES
    ]
)(measure)

if __name__ == "__main__":
    kjit.benchmark.main(benchmark)
