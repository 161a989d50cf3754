"""The kernels of benchmarks/kernels, on a GPU or in the simulator: right against torch, at the edges too.

They are what users would write with kjit's headers: a fault here is a fault of the headers or of their documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from machine import DEVICE, gpu_only, many

import kjit

KERNELS = Path(__file__).parents[2] / "benchmarks" / "kernels"
CPP = {torch.float16: "fp16_t", torch.bfloat16: "bf16_t", torch.float32: "fp32_t"}
BYTES = {torch.uint8: "uint8_t", torch.bfloat16: "bf16_t"}
WIDTHS = [128, 257, 1024, 4096, 16384]
HEAD_DIMS = [64, 128, 256]
EPS = 1e-5
# Half a unit in the last place, for the last rounding, and what float arithmetic adds: see test_norm_header.py.
HALF_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
SMALLEST = {torch.float16: 2.0**-25, torch.bfloat16: 0.0, torch.float32: 0.0}
FLOAT_ERROR = 2.0**-17
HUGE = 2**31 + 4099  # elements: past 32 bits, and no multiple of a vector

Load = Callable[[str, list[tuple[str, str]]], Any]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    def build(source: str, exports: list[tuple[str, str]]) -> Any:
        name = source.removesuffix(".cuh")
        return kjit.load_jit(
            f"{name}_kernels",
            cuda_files=[KERNELS / source],
            cuda_wrappers=exports,
            build_directory=tmp_path_factory.mktemp(name),
        )

    return build


@pytest.fixture(scope="module")
def copies(load: Load) -> Any:
    return load("copy.cuh", [(f"copy_{cpp}", f"Copy<{cpp}>::run") for cpp in BYTES.values()])


@pytest.fixture(scope="module")
def add_constant(load: Load) -> Any:
    return load("add_constant.cuh", [("add_constant", "add_constant<7>")]).add_constant


@pytest.fixture(scope="module")
def rmsnorm(load: Load) -> Any:
    exports = [(f"{cpp}_{width}", f"RMSNorm<{cpp}, {width}>::run") for cpp in CPP.values() for width in WIDTHS]
    return load("rmsnorm.cuh", exports)


@pytest.fixture(scope="module")
def qk_norm(load: Load) -> Any:
    exports = [(f"bf16_t_{dim}", f"QKNorm<bf16_t, {dim}>::run") for dim in HEAD_DIMS]
    return load(
        "qk_norm.cuh", [*exports, ("fp32_t_128", "QKNorm<fp32_t, 128>::run"), ("fp16_t_4", "QKNorm<fp16_t, 4>::run")]
    )


@pytest.fixture(scope="module")
def row_reduce(load: Load) -> Any:
    exports = [
        (f"{op}_{cpp}", f"RowReduce<ReductionOp::{op.upper()}, {cpp}>::run")
        for op in ("max", "sum")
        for cpp in CPP.values()
    ]
    return load("row_reduce.cuh", exports)


@pytest.fixture(scope="module")
def quant(load: Load) -> Any:
    exports = [
        (f"{kind}_{cpp}", f"per_tensor_quant_fp8<{str(kind == 'static').lower()}, {cpp}>")
        for kind in ("static", "dynamic")
        for cpp in CPP.values()
    ]
    return load("per_tensor_quant_fp8.cuh", exports)


def normal(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, generator=torch.Generator(device=DEVICE).manual_seed(seed)).to(dtype)


def eight_bits(numel: int) -> torch.Tensor:
    return torch.zeros(numel, dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fn)


def bound_of(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return exact.abs() * (HALF_UNIT[dtype] * (1 + FLOAT_ERROR) + FLOAT_ERROR) + SMALLEST[dtype]


def check_norm(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    exact = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + EPS) * weight.double()
    assert bool(((out.double() - exact).abs() <= bound_of(exact, x.dtype)).all())


# copy and add_constant


@pytest.mark.parametrize("dtype", list(BYTES))
@pytest.mark.parametrize("numel", [0, 1, 15, 16, 17, 4096, 100_003])
@pytest.mark.parametrize(("to", "since"), [(0, 0), (1, 1), (3, 0), (0, 5), (7, 8)])
def test_copy_with_every_kind_of_alignment(copies: Any, dtype: torch.dtype, numel: int, to: int, since: int) -> None:
    room = torch.full((numel + 40,), 9, device=DEVICE).to(dtype)
    src = torch.randint(0, 100, (numel + 8,), device=DEVICE).to(dtype)[since : since + numel]
    copies[f"copy_{BYTES[dtype]}"](room[to : to + numel], src)
    assert torch.equal(room[to : to + numel], src)
    assert bool((room[:to] == 9).all())
    assert bool((room[to + numel :] == 9).all())


def test_copy_takes_any_number_of_dimensions(copies: Any) -> None:
    src = normal(3, 5, 7, dtype=torch.bfloat16)
    out = torch.empty_like(src)
    copies.copy_bf16_t(out, src)
    assert torch.equal(out, src)
    scalar = torch.zeros((), dtype=torch.bfloat16, device=DEVICE)
    copies.copy_bf16_t(scalar, src[0, 0, 0])
    assert scalar.item() == src[0, 0, 0].item()


@gpu_only
def test_copy_of_more_than_two_to_the_31_elements(copies: Any) -> None:
    src = torch.empty(HUGE, dtype=torch.uint8, device=DEVICE).random_()
    out = torch.zeros_like(src)
    copies.copy_uint8_t(out, src)
    assert torch.equal(out, src)
    copies.copy_uint8_t(out[5:], src[:-5])  # element by element
    assert torch.equal(out[5:], src[:-5])


@pytest.mark.parametrize("numel", [0, 1, 3, 1023, many(1_000_003)])
@pytest.mark.parametrize(("to", "since"), [(0, 0), (1, 1), (0, 1)])
def test_add_constant(add_constant: Any, numel: int, to: int, since: int) -> None:
    room = torch.zeros(numel + 4, dtype=torch.int32, device=DEVICE)
    src = torch.arange(numel + 1, dtype=torch.int32, device=DEVICE)[since : since + numel]
    add_constant(room[to : to + numel], src)
    assert torch.equal(room[to : to + numel], src + 7)
    assert int(room[:to].sum() + room[to + numel :].sum()) == 0


# RMSNorm and qk-norm


@pytest.mark.parametrize("dtype", list(CPP))
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [0, 1, 7, 64, many(5000)])
def test_rmsnorm(rmsnorm: Any, dtype: torch.dtype, width: int, rows: int) -> None:
    x, weight = normal(rows, width, dtype=dtype), normal(width, dtype=dtype, seed=1)
    out = torch.full_like(x, torch.nan)
    rmsnorm[f"{CPP[dtype]}_{width}"](x, weight, out, EPS)
    check_norm(out, x, weight)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("offset", "gap"), [(0, 64), (1, 0), (0, 1)], ids=["aligned", "offset", "stride"])
def test_rmsnorm_of_strided_rows(rmsnorm: Any, width: int, offset: int, gap: int) -> None:
    stride = -(-width // 64) * 64 + gap
    x = torch.full((300 * stride + offset,), torch.nan, dtype=torch.bfloat16, device=DEVICE)[offset:].view(300, stride)
    x[:, :width] = normal(300, width, dtype=torch.bfloat16)
    weight = normal(width, dtype=torch.bfloat16, seed=1)
    out = torch.full_like(x, torch.nan)
    rmsnorm[f"bf16_t_{width}"](x[:, :width], weight, out[:, :width], EPS)
    check_norm(out[:, :width], x[:, :width], weight)
    assert bool(out[:, width:].isnan().all())


def test_rmsnorm_in_place(rmsnorm: Any) -> None:
    x, weight = normal(many(5000), 1024, dtype=torch.float16), normal(1024, dtype=torch.float16, seed=1)
    out = x.clone()
    rmsnorm.fp16_t_1024(out, weight, out, EPS)
    check_norm(out, x, weight)


@gpu_only
def test_rmsnorm_of_more_than_two_to_the_31_elements(rmsnorm: Any) -> None:
    rows = 2**31 // 4096 + 3
    x = torch.empty(rows, 4096, dtype=torch.bfloat16, device=DEVICE).normal_()
    weight = normal(4096, dtype=torch.bfloat16)
    out = torch.full_like(x, torch.nan)
    rmsnorm.bf16_t_4096(x, weight, out, EPS)
    for part in (slice(0, 64), slice(rows // 2, rows // 2 + 64), slice(rows - 64, rows)):
        check_norm(out[part], x[part], weight)
    assert not bool(out[:, 0].isnan().any())


def test_rmsnorm_of_rows_with_nan_and_infinity(rmsnorm: Any) -> None:
    x, weight = normal(2000, 1024, dtype=torch.float32), normal(1024, dtype=torch.float32, seed=1)
    x[7, 1023], x[1999, 0] = torch.nan, torch.inf
    out = torch.empty_like(x)
    rmsnorm.fp32_t_1024(x, weight, out, EPS)
    others = [row for row in range(2000) if row not in (7, 1999)]
    check_norm(out[others], x[others], weight)
    assert bool(out[7].isnan().all())
    assert bool(out[1999, 0].isnan()) and not bool(out[1999, 1:].any())


def test_rmsnorm_refuses_what_it_was_not_built_for(rmsnorm: Any) -> None:
    x, weight = normal(2, 128, dtype=torch.float16), normal(128, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="DType mismatch"):
        rmsnorm.bf16_t_128(x, weight, x, EPS)
    with pytest.raises(RuntimeError, match="Size mismatch"):
        rmsnorm.fp16_t_257(x, weight, x, EPS)


@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize("tokens", [0, 1, 3, 1000])
@pytest.mark.parametrize("heads", [(32, 8), (5, 1), (4, 0)])
def test_qk_norm(qk_norm: Any, dim: int, tokens: int, heads: tuple[int, int]) -> None:
    qkv = normal(tokens, sum(heads) + 2, dim, dtype=torch.bfloat16)
    before = qkv.clone()
    q, k = qkv[:, : heads[0]], qkv[:, heads[0] : sum(heads)]
    weights = [normal(dim, dtype=torch.bfloat16, seed=seed) for seed in (1, 2)]
    qk_norm[f"bf16_t_{dim}"](q, k, *weights, EPS)
    check_norm(q, before[:, : heads[0]], weights[0])
    check_norm(k, before[:, heads[0] : sum(heads)], weights[1])
    assert torch.equal(qkv[:, sum(heads) :], before[:, sum(heads) :])


@pytest.mark.parametrize(("name", "dtype", "dim"), [("fp32_t_128", torch.float32, 128), ("fp16_t_4", torch.float16, 4)])
def test_qk_norm_of_misaligned_tensors(qk_norm: Any, name: str, dtype: torch.dtype, dim: int) -> None:
    flat = normal(100 * 6 * dim + 1, dtype=dtype)
    before = flat.clone()
    x, old = (each[1:].view(100, 6, dim) for each in (flat, before))
    weights = [normal(dim, dtype=dtype, seed=seed) for seed in (1, 2)]
    qk_norm[name](x[:, :4], x[:, 4:], *weights, EPS)
    check_norm(x[:, :4], old[:, :4], weights[0])
    check_norm(x[:, 4:], old[:, 4:], weights[1])
    assert flat[0].item() == before[0].item()


# Row maxima and sums


@pytest.mark.parametrize("dtype", list(CPP))
@pytest.mark.parametrize("columns", [1, 7, 128, 1000, 1001, 4096, 33_333])
@pytest.mark.parametrize("rows", [0, 1, 65, many(4001)])
def test_row_max(row_reduce: Any, dtype: torch.dtype, columns: int, rows: int) -> None:
    x = normal(rows, columns, dtype=dtype) - 20  # all negative: nothing may start from zero
    out = torch.full((rows,), torch.nan, dtype=dtype, device=DEVICE)
    row_reduce[f"max_{CPP[dtype]}"](x, out)
    assert torch.equal(out, x.amax(-1))


@pytest.mark.parametrize("dtype", list(CPP))
@pytest.mark.parametrize("columns", [0, 1, 7, 128, 1000, 1001, 4096, 33_333])
@pytest.mark.parametrize("rows", [0, 1, 65, many(4001)])
def test_row_sum(row_reduce: Any, dtype: torch.dtype, columns: int, rows: int) -> None:
    x = normal(rows, columns, dtype=dtype)
    out = torch.full((rows,), torch.nan, dtype=dtype, device=DEVICE)
    row_reduce[f"sum_{CPP[dtype]}"](x, out)
    exact = x.double().sum(-1)
    # A thread adds at most 131 numbers one after the other (33,333 columns, element by element, over 256 threads), the
    # rest is a tree of 9 levels: an error of less than 256 * 2^-24 of the sum of magnitudes, and one rounding.
    bound = 256 * 2.0**-24 * x.double().abs().sum(-1) + bound_of(exact, dtype)
    assert bool(((out.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("columns", [128, 2048, 16384])
def test_row_reductions_of_strided_and_misaligned_rows(row_reduce: Any, columns: int) -> None:
    flat = torch.full((3000 * (columns + 8) + 1,), torch.inf, dtype=torch.bfloat16, device=DEVICE)
    for offset in (0, 1):
        x = flat[offset : offset + 3000 * (columns + 8)].view(3000, columns + 8)
        x[:] = torch.inf
        x[:, :columns] = normal(3000, columns, dtype=torch.bfloat16, seed=offset)
        out = torch.zeros(3000, dtype=torch.bfloat16, device=DEVICE)
        row_reduce.max_bf16_t(x[:, :columns], out)
        assert torch.equal(out, x[:, :columns].amax(-1))
        row_reduce.sum_bf16_t(x[:, :columns], out)
        assert bool(out.isfinite().all())


def test_nan_is_left_out_of_a_maximum_and_stays_in_a_sum(row_reduce: Any) -> None:
    x = normal(3, 1000, dtype=torch.float16)
    x[0, 17], x[1], x[2, 999] = torch.nan, torch.nan, -torch.inf
    out = torch.zeros(3, dtype=torch.float16, device=DEVICE)
    row_reduce.max_fp16_t(x, out)
    assert out[0].item() == x[0].nan_to_num(-1000).max().item()
    assert bool(out[1].isnan())
    assert out[2].item() == x[2].max().item()
    row_reduce.sum_fp16_t(x, out)
    assert out[:2].isnan().all()
    assert out[2].item() == -torch.inf


def test_an_empty_row_has_no_maximum(row_reduce: Any) -> None:
    with pytest.raises(RuntimeError, match="an empty row has no maximum"):
        row_reduce.max_fp32_t(torch.zeros(3, 0, device=DEVICE), torch.zeros(3, device=DEVICE))


@pytest.mark.parametrize("shape", [(2, 2**30 + 3), (2**24 + 1, 128)], ids=["long", "many"])
@gpu_only
def test_row_max_of_more_than_two_to_the_31_elements(row_reduce: Any, shape: tuple[int, int]) -> None:
    x = torch.full(shape, -1.0, dtype=torch.bfloat16, device=DEVICE)
    x[-1, -1] = 3.0
    x[0, 0] = 2.0
    out = torch.zeros(shape[0], dtype=torch.bfloat16, device=DEVICE)
    row_reduce.max_bf16_t(x, out)
    assert (out[0].item(), out[-1].item()) == (2.0, 3.0)
    assert bool((out[1:-1] == -1.0).all())


# Quantisation


def scale_of(largest: torch.Tensor) -> float:
    # By a tensor, because torch multiplies with the reciprocal of a number.
    return (largest.float() / torch.full((), 448.0, device=DEVICE)).item()


def quantised(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The exact counterpart: one division, one product, one rounding, each in float; as floats."""
    factor = torch.where(scale == 0, 0, 1 / scale)
    return (x.float() * factor).clamp(-448, 448).to(torch.float8_e4m3fn).float()


@pytest.mark.parametrize("dtype", list(CPP))
@pytest.mark.parametrize("numel", [0, 1, 7, 8, 4096, 262_144, many(5_000_011)])
def test_dynamic_quantisation(quant: Any, dtype: torch.dtype, numel: int) -> None:
    x = normal(numel, dtype=dtype)
    out, scale = eight_bits(numel), torch.zeros(1, device=DEVICE)
    quant[f"dynamic_{CPP[dtype]}"](x, out, scale)
    if numel > 0:
        assert scale.item() == scale_of(x.abs().max())
    assert torch.equal(out.float(), quantised(x, scale))


@pytest.mark.parametrize("dtype", list(CPP))
@pytest.mark.parametrize(("to", "since"), [(0, 0), (1, 1), (0, 1), (3, 0)])
def test_static_quantisation_with_every_kind_of_alignment(quant: Any, dtype: torch.dtype, to: int, since: int) -> None:
    x = normal(100_013, dtype=dtype)[since : since + 100_001] * 100  # some are past 448 * scale
    room = torch.zeros(100_010, dtype=torch.uint8, device=DEVICE)
    scale = torch.full((1,), 0.37, device=DEVICE)
    out = room[to : to + 100_001].view(torch.float8_e4m3fn)
    quant[f"static_{CPP[dtype]}"](x, out, scale)
    assert torch.equal(out.float(), quantised(x, scale))
    assert scale.item() == pytest.approx(0.37)
    assert int(room[:to].sum() + room[to + 100_001 :].sum()) == 0


def test_dynamic_quantisation_keeps_a_larger_scale(quant: Any) -> None:
    x, scale = normal(1000, dtype=torch.bfloat16), torch.full((1,), 2.0, device=DEVICE)
    out = eight_bits(1000)
    quant.dynamic_bf16_t(x, out, scale)
    assert scale.item() == 2.0
    assert torch.equal(out.float(), quantised(x, scale))


def test_quantisation_of_zeros_nan_and_infinity(quant: Any) -> None:
    out = eight_bits(1000)
    scale = torch.zeros(1, device=DEVICE)
    quant.dynamic_fp32_t(torch.zeros(1000, device=DEVICE), out, scale)
    assert scale.item() == 0
    assert not bool(out.float().any())

    x = normal(1000, dtype=torch.float32)
    x[500] = torch.nan
    quant.dynamic_fp32_t(x, out, scale)
    assert scale.item() == scale_of(x.nan_to_num(0).abs().max())
    assert bool(out[500].float().isnan())
    kept = torch.arange(1000, device=DEVICE) != 500
    assert torch.equal(out.float()[kept], quantised(x, scale)[kept])

    x[500] = -torch.inf
    scale.zero_()
    quant.dynamic_fp32_t(x, out, scale)
    assert scale.item() == torch.inf
    assert bool(out[500].float().isnan())  # infinity over infinity
    assert not bool(out.float()[kept].any())


@gpu_only
def test_quantisation_of_more_than_two_to_the_31_elements(quant: Any) -> None:
    x = torch.full((HUGE,), 0.5, dtype=torch.bfloat16, device=DEVICE)
    x[-1], x[2**31] = -896.0, 448.0
    out, scale = eight_bits(HUGE), torch.zeros(1, device=DEVICE)
    quant.dynamic_bf16_t(x, out, scale)
    assert scale.item() == 2.0
    assert [out[at].float().item() for at in (-1, 2**31, 0)] == [-448.0, 224.0, 0.25]
    part = out.view(torch.uint8)[:: 2**12]
    assert bool((part == part[0]).sum() >= len(part) - 2)


# Streams and graphs


@gpu_only
def test_all_of_them_run_on_the_stream_that_torch_uses(copies: Any, rmsnorm: Any, row_reduce: Any, quant: Any) -> None:
    x, weight = normal(64, 1024, dtype=torch.bfloat16), normal(1024, dtype=torch.bfloat16, seed=1)
    late, normed, copied = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    largest = torch.zeros(64, dtype=torch.bfloat16, device=DEVICE)
    out, scale = eight_bits(x.numel()).view(x.shape), torch.zeros(1, device=DEVICE)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        # Each reads what the one before has written: launches that overlap have to wait for that.
        rmsnorm.bf16_t_1024(late, weight, normed, EPS)
        copies.copy_bf16_t(copied, normed)
        row_reduce.max_bf16_t(copied, largest)
        quant.dynamic_bf16_t(copied, out, scale)
    stream.synchronize()
    check_norm(copied, x, weight)
    assert torch.equal(largest, copied.amax(-1))
    assert scale.item() == scale_of(copied.abs().max())
    assert torch.equal(out.float(), quantised(copied, scale))


@gpu_only
def test_all_of_them_are_captured_into_a_graph(rmsnorm: Any, qk_norm: Any, quant: Any, add_constant: Any) -> None:
    x, weight = normal(64, 1024, dtype=torch.bfloat16), normal(1024, dtype=torch.bfloat16, seed=1)
    source, normed = torch.zeros_like(x), torch.zeros_like(x)
    out, scale = eight_bits(x.numel()).view(x.shape), torch.zeros(1, device=DEVICE)
    q, heads = torch.zeros(8, 6, 128, dtype=torch.bfloat16, device=DEVICE), normal(8, 6, 128, dtype=torch.bfloat16)
    weights = [normal(128, dtype=torch.bfloat16, seed=seed) for seed in (1, 2)]
    counts = torch.zeros(1000, dtype=torch.int32, device=DEVICE)

    def calls() -> None:
        rmsnorm.bf16_t_1024(source, weight, normed, EPS)
        scale.zero_()
        quant.dynamic_bf16_t(normed, out, scale)
        qk_norm.bf16_t_128(q[:, :4], q[:, 4:], *weights, EPS)
        add_constant(counts, counts)

    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    source.copy_(x)
    q.copy_(heads)
    counts.zero_()
    graph.replay()
    torch.cuda.synchronize()
    check_norm(normed, x, weight)
    assert torch.equal(out.float(), quantised(normed, scale))
    check_norm(q[:, :4], heads[:, :4], weights[0])
    check_norm(q[:, 4:], heads[:, 4:], weights[1])
    assert bool((counts == 7).all())
