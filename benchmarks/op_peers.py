"""The speed of kjit's ops against the kernels of FlashInfer's headers, and of transfers against SGLang's.

    python benchmarks/op_peers.py [--flashinfer DIR] [--sglang DIR] [--only flashinfer|sglang] [--json FILE]

- RMSNorm, RMSNorm of a sum, LayerNorm, SiLU and mul, and rows to a paged cache, at 1 to 8,192 rows in bf16, against
  `norm.cuh`, `activation.cuh` and `page.cuh` of flashinfer-python, compiled in a module of kjit: launched as
  FlashInfer's own wrappers do, PDL included. FlashInfer's LayerNorm takes its weights in fp32. Microseconds a call in a
  CUDA graph, with data that is in no cache; the two take turns twice, and the better median of each counts.
- `transfer_kv` from pinned host memory to the GPU and back, against SGLang 0.5.23's kernel with the same number of
  blocks, and against one copy of as many bytes.

Both wheels are fetched from PyPI into the user's cache folder, unless a folder is given in which they are unpacked.
Needs a GPU and nvcc; exits with status 2 where one is missing.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import torch
import tvm_ffi

import kjit
from kjit.benchmark import quick, rotated
from kjit.ops.activation import silu_and_mul
from kjit.ops.hicache import transfer_kv
from kjit.ops.kv_cache import store_kv_cache
from kjit.ops.norm import fused_add_rmsnorm, layernorm, rmsnorm

FLASHINFER_VERSION = "0.7.2.post1"
_ROWS = (1, 16, 256, 8192)
_BF16 = torch.bfloat16
_EPS = 1e-6
_HEADS, _HEAD_DIM, _PAGE = 8, 128, 16

_FLASHINFER = """
#include <flashinfer/activation.cuh>
#include <flashinfer/norm.cuh>
#include <flashinfer/page.cuh>

#include <kjit/launch.h>
#include <kjit/tensor.h>

using namespace kjit;
using T = __nv_bfloat16;

template <typename U>
U* data(TensorView tensor) {
  return static_cast<U*>(tensor.data_ptr());
}
cudaStream_t stream_of(TensorView tensor) { return host::LaunchKernel::resolve_device(tensor.device()); }
uint32_t size(TensorView tensor, int i) { return static_cast<uint32_t>(tensor.size(i)); }

void fi_rmsnorm(TensorView x, TensorView weight, TensorView out) {
  host::RuntimeDeviceCheck(flashinfer::norm::RMSNorm(data<T>(x), data<T>(weight), data<T>(out), size(x, 0), size(x, 1),
                                                     size(x, 1), size(x, 1), 1e-6f, true, stream_of(x)));
}
void fi_fused_add_rmsnorm(TensorView x, TensorView residual, TensorView weight) {
  host::RuntimeDeviceCheck(flashinfer::norm::FusedAddRMSNorm(data<T>(x), data<T>(residual), data<T>(weight), size(x, 0),
                                                             size(x, 1), size(x, 1), size(x, 1), 1e-6f, true,
                                                             stream_of(x)));
}
void fi_layernorm(TensorView x, TensorView weight, TensorView bias, TensorView out) {
  host::RuntimeDeviceCheck(flashinfer::norm::LayerNorm(data<T>(x), data<float>(weight), data<float>(bias), data<T>(out),
                                                       size(x, 0), size(x, 1), 1e-6f, stream_of(x)));
}

__device__ __forceinline__ float silu(const float& value) { return value / (1.0f + __expf(-value)); }

void fi_silu_and_mul(TensorView x, TensorView out) {
  const uint32_t columns = size(out, 1);
  host::LaunchKernel(size(out, 0), columns / 8 < 256u ? columns / 8 : 256u, out.device())
      .enable_pdl()(flashinfer::activation::act_and_mul_kernel<T, silu, 8>, data<T>(out), data<T>(x),
                    static_cast<int>(columns));
}
void fi_append(TensorView k, TensorView v, TensorView k_pages, TensorView v_pages, TensorView pages, TensorView indptr,
               TensorView last, TensorView batch, TensorView positions) {
  flashinfer::paged_kv_t<T, int32_t> cache(size(k_pages, 2), size(k_pages, 1), size(k_pages, 3), size(last, 0),
                                           flashinfer::QKVLayout::kNHD, data<T>(k_pages), data<T>(v_pages),
                                           data<int32_t>(pages), data<int32_t>(indptr), data<int32_t>(last));
  const size_t head = size(k, 2), token = size(k, 1) * head;
  host::RuntimeDeviceCheck(flashinfer::AppendPagedKVCache(cache, data<T>(k), data<T>(v), data<int32_t>(batch),
                                                          data<int32_t>(positions), size(k, 0), token, head, token,
                                                          head, stream_of(k)));
}
"""


@dataclass(frozen=True)
class Case:
    """One op at one width: `make` gives the tensors for a number of rows, which both sides are called with."""

    name: str
    kjit: Callable[..., Any]
    flashinfer: Callable[..., Any]
    make: Callable[[int], tuple[Any, ...]]
    nbytes: Callable[[int], int]


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashinfer", type=Path, help="a folder with the unpacked flashinfer-python")
    parser.add_argument("--sglang", type=Path, help=f"a folder with the unpacked sglang {common.SGLANG_VERSION}")
    parser.add_argument("--only", choices=["flashinfer", "sglang"], help="one of the two tables")
    parser.add_argument("--json", type=Path, help="write all results into this file too")
    options = parser.parse_args(args)
    common.require_gpu("op_peers.py")
    common.print_machine(gpu=True)
    results: list[dict[str, Any]] = []
    with quick(), tempfile.TemporaryDirectory() as folder:
        if options.only != "sglang":
            _against_flashinfer(_flashinfer_module(options.flashinfer, Path(folder)), results)
        if options.only != "flashinfer":
            _transfers(common.find_sglang(options.sglang), Path(folder), results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def _flashinfer_module(given: Path | None, folder: Path) -> tvm_ffi.Module:
    parts = [f"flashinfer/data/{part}" for part in ("include/", "cccl/libcudacxx/include/")]
    root = given or common.fetch("flashinfer-python", FLASHINFER_VERSION, parts)
    for header in ("cublasLt.h", "cublas_v2.h", "curand_kernel.h"):  # named by headers that use nothing of them
        (folder / header).write_text("")
    names = ["fi_rmsnorm", "fi_fused_add_rmsnorm", "fi_layernorm", "fi_silu_and_mul", "fi_append"]
    flags = ["-DENABLE_BF16", "--expt-relaxed-constexpr", "-diag-suppress=177"]
    return kjit.load_inline(
        "flashinfer_ops",
        cuda_sources=_FLASHINFER,
        functions=names,
        extra_cuda_cflags=flags,
        extra_include_paths=[*(root.resolve() / part for part in parts), folder],
    )


def _cases(peer: tvm_ffi.Module) -> Iterator[Case]:
    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(_BF16)

    def rmsnorm_case(width: int) -> Case:
        return Case(
            f"rmsnorm, {width:,}",
            lambda x, weight, out: rmsnorm(x, weight, _EPS, out=out),
            peer.fi_rmsnorm,
            lambda rows: (x := normal(rows, width), normal(width), torch.empty_like(x)),
            lambda rows: 4 * rows * width,
        )

    def fused_add_rmsnorm_case(width: int) -> Case:
        return Case(
            f"fused_add_rmsnorm, {width:,}",
            lambda x, residual, weight: fused_add_rmsnorm(x, residual, weight, _EPS),
            peer.fi_fused_add_rmsnorm,
            lambda rows: (normal(rows, width), normal(rows, width), normal(width)),
            lambda rows: 8 * rows * width,
        )

    def silu_and_mul_case(width: int) -> Case:
        return Case(
            f"silu_and_mul, 2 x {width:,}",
            lambda x, out: silu_and_mul(x, out=out),
            peer.fi_silu_and_mul,
            lambda rows: (normal(rows, 2 * width), normal(rows, width)),
            lambda rows: 6 * rows * width,
        )

    yield from map(rmsnorm_case, (1024, 4096, 8192))
    yield from map(fused_add_rmsnorm_case, (1024, 4096, 8192))

    def layer(rows: int) -> tuple[torch.Tensor, ...]:
        x, weight, bias = normal(rows, 4096), normal(4096), normal(4096)
        return x, torch.empty_like(x), weight, bias, weight.float(), bias.float()

    yield Case(
        "layernorm, 4,096",
        lambda x, out, weight, bias, *_: layernorm(x, weight, bias, _EPS, out=out),
        lambda x, out, *weights: peer.fi_layernorm(x, *weights[2:], out),
        layer,
        lambda rows: 4 * rows * 4096,
    )
    yield from map(silu_and_mul_case, (4096, 14_336))

    def cache(rows: int) -> tuple[torch.Tensor, ...]:
        """As many requests as rows, each with a page of its own, and one new token at its end."""
        k, v = normal(rows, _HEADS, _HEAD_DIM), normal(rows, _HEADS, _HEAD_DIM)
        k_pages, v_pages = (torch.zeros(rows, _PAGE, _HEADS, _HEAD_DIM, dtype=_BF16, device="cuda") for _ in range(2))
        pages, batch = torch.randperm(rows, device="cuda").int(), torch.arange(rows, device="cuda").int()
        last = torch.full_like(batch, _PAGE)
        indptr = torch.arange(rows + 1, device="cuda").int()
        slots = pages.long() * _PAGE + _PAGE - 1
        return k, v, k_pages, v_pages, pages, indptr, last, batch, last - 1, slots

    def store(*tensors: torch.Tensor) -> None:
        k, v, k_pages, v_pages = (tensor.view(-1, _HEADS * _HEAD_DIM) for tensor in tensors[:4])
        store_kv_cache(k, v, k_pages, v_pages, tensors[-1])

    yield Case(
        f"store_kv_cache, {_HEADS} heads of {_HEAD_DIM}",
        store,
        lambda *tensors: peer.fi_append(*tensors[:-1]),
        cache,
        lambda rows: 8 * rows * _HEADS * _HEAD_DIM,
    )


def _against_flashinfer(peer: tvm_ffi.Module, results: list[dict[str, Any]]) -> None:
    print(f"\nus a call, and the time of FlashInfer {FLASHINFER_VERSION} as a multiple of kjit's")
    print(f"  {'':<32}  {'rows':>6}  {'kjit':>8}  {'FlashInfer':>10}  {'ratio':>6}")
    for case in _cases(peer):
        for rows in _ROWS:
            sets = rotated(functools.partial(case.make, rows), nbytes=case.nbytes(rows), device="cuda")
            ours, theirs = _in_turn([case.kjit, case.flashinfer], sets)
            print(f"  {case.name:<32}  {rows:>6,}  {ours:>8.2f}  {theirs:>10.2f}  {theirs / ours:>5.2f}x", flush=True)
            results.append({"op": case.name, "rows": rows, "kjit_us": ours, "flashinfer_us": theirs})
            del sets
            torch.cuda.empty_cache()


def _in_turn(functions: Sequence[Callable[..., Any]], sets: Sequence[Sequence[Any]]) -> list[float]:
    times = [[common.time_calls(function, sets) for function in functions] for _ in range(2)]
    return [min(of_function) for of_function in zip(*times, strict=True)]


def _transfers(root: Path, folder: Path, results: list[dict[str, Any]]) -> None:
    """One layer of keys and values, from slots to slots, with two blocks, which is the default on both sides."""
    arch = "{}.{}a".format(*torch.cuda.get_device_capability())
    slots, blocks = 16_384, 2
    print(f"\n{slots:,} slots of keys and values, GB/s to the GPU or from it, {blocks} blocks")
    print(f"  {'':<24}  {'kjit':>6}  {'SGLang':>6}  {'one copy':>8}  {'SGLang / kjit, time':>19}")
    for row_bytes, unroll in ((128, 4), (512, 4), (1024, 2)):
        symbol = f"HiCacheKernel<{row_bytes}, {unroll}, {blocks}, 1024>::run_one"
        home = folder / str(row_bytes)
        home.mkdir()
        kernel = common.Kernel("launch_one", "kvcacheio/hicache.cuh", symbol)
        theirs = tvm_ffi.load_module(str(common.build_sglang(kernel, root, arch, home)))["launch_one"]
        for direction in ("load", "store"):
            gpu = [torch.zeros(slots, row_bytes, dtype=torch.uint8, device="cuda") for _ in range(2)]
            host = [torch.zeros(slots, row_bytes, dtype=torch.uint8).pin_memory() for _ in range(2)]
            to, source = (gpu, host) if direction == "load" else (host, gpu)
            at, since = (torch.randperm(slots, device="cuda") for _ in range(2))
            layer = [tensor[None] for tensor in (to[0], source[0], to[1], source[1])]

            def ours(layer: list[torch.Tensor] = layer, at: torch.Tensor = at, since: torch.Tensor = since) -> None:
                transfer_kv(layer[0], layer[1], at, since, layer[2], layer[3], blocks)

            def peer(
                to: list[torch.Tensor] = to,
                source: list[torch.Tensor] = source,
                at: torch.Tensor = at,
                since: torch.Tensor = since,
                run: Callable[..., Any] = theirs,
            ) -> None:
                run(to[0], to[1], at, source[0], source[1], since)

            def copy(to: list[torch.Tensor] = to, source: list[torch.Tensor] = source) -> None:
                to[0].copy_(source[0], non_blocking=True)
                to[1].copy_(source[1], non_blocking=True)

            times = _in_turn([ours, peer, copy], [()])
            rates = [2 * slots * row_bytes / each / 1e3 for each in times]
            print(
                f"  {direction + f', {row_bytes:,} bytes a row':<24}  {rates[0]:>6.1f}  {rates[1]:>6.1f}  "
                f"{rates[2]:>8.1f}  {times[1] / times[0]:>18.2f}x",
                flush=True,
            )
            names = ("kjit_us", "sglang_us", "copy_us")
            results.append({"op": f"transfer_kv, {direction}, {row_bytes}", **dict(zip(names, times, strict=True))})


if __name__ == "__main__":
    main()
