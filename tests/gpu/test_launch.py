"""kjit/launch.h, kjit/utils.cuh and kjit/vec.cuh on a GPU, or in the simulator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import tvm_ffi
from machine import CAPABILITY, DEVICE, SIMULATOR, gpu_only, properties, synchronize

CASES = "launch_cases"
EXPORTS = [
    ("reverse_beside_128_bytes", "reverse_with_static<0, 32>"),
    ("reverse_beside_40_kib", "reverse_with_static<1, 10240>"),
    ("reverse_in_threads", "reverse_with_static<2, 32>"),
    ("chain", "chain<false>"),
    ("begun_chain", "chain<true>"),
    ("add_float32", "add_vectors<fp32_t, 4>"),
    ("add_float16", "add_vectors<fp16_t, 8>"),
    ("add_bfloat16", "add_vectors<bf16_t, 2>"),
    ("add_float8", "add_vectors<fp8_e4m3_t, 16>"),
]


def device() -> tvm_ffi.Device:
    return tvm_ffi.device("cuda:0")


def test_a_kernel_runs_and_its_arguments_are_converted(module: Any) -> None:
    out = torch.zeros(1000, device=DEVICE)
    module.fill(out, 2.5)
    assert torch.equal(out, torch.full_like(out, 2.5))


def test_an_empty_grid_is_no_launch(module: Any) -> None:
    module.fill(torch.empty(0, device=DEVICE), 1.0)
    module.launch_sizes(device(), 0, 5, 1, 32)


@gpu_only
def test_a_cpu_tensor_is_refused_before_the_launch(module: Any) -> None:
    with pytest.raises(RuntimeError, match="Device mismatch: expected cuda but got cpu"):
        module.fill(torch.empty(4), 1.0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((1, 65536, 1, 32), "a grid of 1 x 65536 x 1 blocks exceeds"),
        ((2**31, 1, 1, 32), "a grid of 2147483648 x 1 x 1 blocks exceeds"),
        ((2**32 + 1, 1, 1, 32), "a grid of 4294967297 x 1 x 1 blocks exceeds"),
        ((-1, 1, 1, 32), "a grid of -1 x 1 x 1 blocks exceeds"),
        ((1, 1, 1, 1025), "a block of 1025 x 1 x 1 threads is not possible"),
        ((1, 1, 1, 0), "a block of 0 x 1 x 1 threads is not possible"),
    ],
)
def test_a_grid_or_block_past_the_limits_is_an_error(module: Any, sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        module.launch_sizes(device(), *sizes)
    synchronize()


def test_the_largest_y_is_launched(module: Any) -> None:
    module.launch_sizes(device(), 1, 65535, 1, 32)
    synchronize()


@pytest.mark.parametrize("kib", [1, 48, 64, 160])
def test_dynamic_shared_memory_is_enabled_up_to_the_limit_of_the_gpu(module: Any, kib: int) -> None:
    limit = properties().shared_memory_per_block_optin
    data = torch.arange(kib * 256, dtype=torch.float32, device=DEVICE)
    if kib * 1024 > limit:
        pytest.skip(f"this GPU has {limit} bytes of shared memory for a block")
    expected = data.flip(0)
    module.reverse(data)
    assert torch.equal(data, expected)


@pytest.mark.parametrize(("static", "kib"), [("128_bytes", 48), ("40_kib", 8), ("40_kib", 9), ("40_kib", 64)])
def test_static_shared_memory_counts_towards_what_is_enabled(module: Any, static: str, kib: int) -> None:
    data = torch.arange(kib * 256, dtype=torch.float32, device=DEVICE)
    expected = data.flip(0) + 1
    module[f"reverse_beside_{static}"](data)
    assert torch.equal(data, expected)


def test_threads_that_need_more_and_less_shared_memory_do_not_disturb_each_other(module: Any) -> None:
    def launch(kib: int) -> bool:
        for _ in range(200 if SIMULATOR is None else 40):
            data = torch.arange(kib * 256, dtype=torch.float32, device=DEVICE)
            expected = data.flip(0) + 1
            module.reverse_in_threads(data)
            if not torch.equal(data, expected):
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(launch, [49, 64, 56, 48, 1, 60, 52, 63])) == [True] * 8


def test_too_much_shared_memory_is_an_error_that_leaves_no_trace(module: Any) -> None:
    with pytest.raises(RuntimeError, match="bytes of dynamic shared memory are not possible here"):
        module.reverse(torch.zeros(1 << 20, device=DEVICE))
    assert torch.zeros(3, device=DEVICE).sum().item() == 0


@gpu_only
def test_the_stream_is_the_one_that_torch_uses(module: Any) -> None:
    stream = torch.cuda.Stream()
    out = torch.zeros(1 << 20, device=DEVICE)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        module.fill(out, 1.0)
        copy = out.clone()
    stream.synchronize()
    assert copy.min().item() == 1.0


@gpu_only
def test_a_stream_may_be_passed(module: Any) -> None:
    stream = torch.cuda.Stream()
    out = torch.zeros(100, device=DEVICE)
    synchronize()
    module.fill_on_stream(out, 3.0, stream.cuda_stream)
    stream.synchronize()
    assert out.min().item() == 3.0


@gpu_only
def test_a_launch_is_captured_into_a_graph(module: Any) -> None:
    out = torch.zeros(100, device=DEVICE)
    module.fill(out, 0.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module.fill(out, 4.0)
    assert out.max().item() == 0.0
    graph.replay()
    assert out.min().item() == 4.0


@pytest.mark.parametrize("chain", ["chain", "begun_chain"])
@pytest.mark.parametrize("blocks", [1024, 4096, 4097])
def test_dependent_launches_wait_for_each_other(module: Any, chain: str, blocks: int) -> None:
    a, b = torch.zeros(blocks * 256, device=DEVICE), torch.zeros(blocks * 256, device=DEVICE)
    launches = 101 if SIMULATOR is None else 11
    getattr(module, chain)(a, b, launches)
    assert torch.equal(b, torch.full_like(b, launches))


def test_blocks_run_in_clusters(module: Any) -> None:
    if CAPABILITY < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    out = torch.zeros(8, dtype=torch.int32, device=DEVICE)
    module.cluster_sizes(out, 4)
    assert out.tolist() == [4] * 8


def test_a_cooperative_launch_works(module: Any) -> None:
    out = torch.zeros(100, device=DEVICE)
    module.cooperative(out, 5.0)
    assert out.min().item() == 5.0


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_vectors_are_loaded_and_stored_whole(module: Any, name: str) -> None:
    x = torch.arange(1024, device=DEVICE).to(getattr(torch, name))
    out = torch.zeros_like(x)
    module[f"add_{name}"](out, x, 0.5)
    assert torch.equal(out, (x.float() + 0.5).to(x.dtype))


def test_vectors_of_eight_bit_floats(module: Any) -> None:
    x = torch.arange(256, device=DEVICE).remainder(16).to(torch.float8_e4m3fn)
    out = torch.zeros_like(x)
    module.add_float8(out, x, 1.0)
    assert torch.equal(out.float(), (x.float() + 1.0).to(x.dtype).float())


def test_a_misaligned_tensor_is_refused_before_a_vector_load(module: Any) -> None:
    x = torch.zeros(1025, device=DEVICE)[1:]
    with pytest.raises(RuntimeError, match="not aligned to 16 bytes"):
        module.add_float32(x.clone(), x, 1.0)


def test_lanes_and_lanes_of_groups(module: Any) -> None:
    out = torch.zeros(32, dtype=torch.int32, device=DEVICE)
    module.lanes(out)
    assert out.tolist() == [100 * lane + lane % 8 for lane in range(32)]


def test_an_array_is_a_kernel_parameter(module: Any) -> None:
    out = torch.zeros(3, device=DEVICE)
    module.array(out)
    assert out.tolist() == [0.5, 1.5, 2.5]


def test_check_cuda_names_the_error_and_its_words(module: Any) -> None:
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid argument\. in a test"):
        module.check_cuda()


@gpu_only
def test_a_tensor_on_another_gpu_than_the_current_one_works(module: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    out = torch.zeros(100, device="cuda:1")
    assert torch.cuda.current_device() == 0
    module.fill(out, 6.0)
    assert torch.cuda.current_device() == 0
    assert out.min().item() == 6.0
