"""kjit/runtime.cuh on a GPU, and CUDA on the host: errors of the driver, tensors of torch's allocator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm_ffi
from machine import DEVICE, DEVICE_COUNT, gpu_only, properties, synchronize

CASES = "runtime_cases"
EXPORTS = [
    ("launch_with_smem_set", "launch_plainly<2>"),
    ("launch_with_smem_per_device", "launch_plainly<3>"),
    ("launch_without_smem", "launch_plainly<7>"),
]

CURRENT = -1
KIB = 1024


def of_kib(kib: int, device: str = DEVICE) -> torch.Tensor:
    """A tensor that `launch_plainly` needs so much shared memory for."""
    return torch.arange(kib * KIB // 4, dtype=torch.float32, device=device)


@pytest.fixture
def second() -> int:
    """The number of a GPU that is not the current one."""
    if DEVICE_COUNT < 2:
        pytest.skip("needs two GPUs")
    # Where torch has not used the first GPU yet, it only notes that it is to be the current one again.
    torch.zeros(1, device=DEVICE)
    assert torch.cuda.current_device() == 0
    return 1


def test_a_device_has_the_properties_that_torch_sees(module: Any) -> None:
    seen = properties()
    for use_cache in (True, True, False):
        assert module.sm_count(0, use_cache) == seen.multi_processor_count
    assert module.sm_version(0) == seen.major * 10 + seen.minor
    assert module.smem_per_block(0, True) == seen.shared_memory_per_block_optin
    assert module.smem_per_block(0, False) == seen.shared_memory_per_block
    assert module.runtime_version_is_of_the_headers_major()


def test_a_device_that_is_not_there_is_an_error_each_time(module: Any) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"):
            module.sm_count(DEVICE_COUNT, True)
    synchronize()


def test_occupancy_is_bounded_by_threads(module: Any) -> None:
    limit = properties().max_threads_per_multi_processor
    for threads in (256, 512, 1024):
        assert module.blocks_per_sm(threads, 0, CURRENT) == limit // threads
    assert module.blocks_per_sm_of_the_current(512) == limit // 512
    assert module.blocks_per_sm_of_the_current(1024) == limit // 512  # it was kept


@pytest.mark.parametrize("kib", [16, 64, 96])
def test_occupancy_is_bounded_by_shared_memory_also_past_48_kib(module: Any, kib: int) -> None:
    if kib * KIB > properties().shared_memory_per_block_optin:
        pytest.skip("this GPU has less shared memory")
    reserved = KIB  # by the system, for each block, from sm_80 on (CUDA C++ Programming Guide)
    expected = module.smem_per_sm() // (kib * KIB + reserved)
    assert module.blocks_per_sm(128, kib * KIB, CURRENT) == expected


def test_occupancy_is_zero_where_no_block_fits(module: Any) -> None:
    assert module.blocks_per_sm(128, properties().shared_memory_per_block_optin + 1, CURRENT) == 0
    synchronize()


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_as_many_blocks_run_with_the_shared_memory_said_to_be_available(module: Any, blocks: int) -> None:
    assert module.available_smem(blocks, 128) > 0
    assert module.blocks_with_available_smem(blocks, 128) >= blocks


def test_more_than_48_kib_are_refused_unless_asked_for(module: Any) -> None:
    """The tests below rely on this."""
    with pytest.raises(RuntimeError, match="CUDA error: invalid argument"):
        module.launch_without_smem(of_kib(64))
    synchronize()


def test_shared_memory_is_asked_for(module: Any) -> None:
    module.set_smem(64 * KIB, CURRENT)
    data = of_kib(64)
    expected = data.flip(0)
    module.launch_with_smem_set(data)
    assert torch.equal(data, expected)
    with pytest.raises(RuntimeError, match="CUDA error: invalid argument"):
        module.set_smem(2**30, CURRENT)
    synchronize()


def test_shared_memory_per_device_grows_and_never_shrinks(module: Any) -> None:
    device = tvm_ffi.device("cuda:0")
    for ask, launch in ((56, 56), (52, 56), (80, 80), (64, 80)):
        module.set_smem_per_device(device, ask * KIB)
        data = of_kib(launch)
        expected = data.flip(0)
        module.launch_with_smem_per_device(data)
        assert torch.equal(data, expected)


def test_an_action_runs_once_for_a_device_and_again_after_a_failure(module: Any) -> None:
    device = tvm_ffi.device("cuda:0")
    before = module.runs_so_far()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="as requested"):
            module.run_per_device(device, True)
    for _ in range(3):
        module.run_per_device(device, False)
    assert module.runs_so_far() - before == 3
    for _ in range(2):
        module.run_without_cache(0)
    assert module.runs_so_far() - before == 5


def test_a_cache_map_asks_once_for_each_of_its_devices_and_is_right_for_the_others(module: Any) -> None:
    places, others = 72, 29
    assert module.queries_of_a_cache_map(3, True) == places + 3 * others
    assert module.queries_of_a_cache_map(3, False) == 3 * (places + others)


@gpu_only
def test_pinned_memory_is_reached_from_the_gpu(module: Any) -> None:
    x = torch.arange(100, dtype=torch.float32).pin_memory()
    out = torch.zeros(1, device=DEVICE)
    for part in (x, x[10:20], x.to(DEVICE)):
        module.sum(out, part)
        assert out.item() == part.sum().item()
    y = torch.zeros(4, device=DEVICE)
    assert module.accessible_address(y[1:]) == y[1:].data_ptr()
    assert module.accessible_address(torch.zeros(0)) == 0


@gpu_only
def test_memory_that_is_not_pinned_is_refused(module: Any) -> None:
    if module.gpu_reads_all_host_memory():
        pytest.skip("this GPU reads all host memory")
    with pytest.raises(RuntimeError, match=r"the GPU cannot access this tensor.*not pinned"):
        module.accessible_address(torch.zeros(1000))
    synchronize()


@pytest.mark.parametrize("percent", [0, 50, 100, -1])
def test_a_carveout_is_set(module: Any, percent: int) -> None:
    assert module.set_carveout(percent) == percent


@pytest.mark.parametrize(("threads", "kib"), [(1024, 0), (256, 8), (128, 40)])
def test_l1_is_preferred_unless_it_costs_occupancy(module: Any, threads: int, kib: int) -> None:
    assert 0 <= module.prefer_l1(threads, kib * KIB) <= 100


def test_an_occupancy_out_of_reach_is_an_error_and_leaves_the_default(module: Any) -> None:
    with pytest.raises(RuntimeError, match="no share of shared memory from 90 to 92 percent gives 1000 blocks"):
        module.prefer_l1_between(90, 92, 1000)
    assert module.carveout_after_failure() == -1
    for lower, upper in ((50, 40), (-1, 10), (0, 101)):
        with pytest.raises(RuntimeError, match="is no range of percents"):
            module.prefer_l1_between(lower, upper, 1)


def test_results_of_the_driver_are_checked_too(module: Any) -> None:
    assert module.errors_are_told_from_success()
    module.check_driver_result(0)
    with pytest.raises(RuntimeError, match=r"runtime_cases\.cuh:\d+: CUDA error: invalid argument$"):
        module.check_driver_result(1)
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid argument\. in a test"):
        module.check_driver_result_with_words(1)
    with pytest.raises(RuntimeError, match="CUDA error: an unknown error of the driver API"):
        module.check_driver_result(998)


def test_a_failed_check_leaves_no_error_behind(module: Any) -> None:
    assert module.a_failed_check_leaves_no_error_behind()


@gpu_only
def test_a_new_tensor_is_torchs_memory(module: Any) -> None:
    x = torch.zeros(1 << 20, device=DEVICE)
    before = torch.cuda.memory_allocated()
    like = module.made_like(x)
    assert (like.device, like.shape, like.dtype) == (x.device, x.shape, x.dtype)
    assert torch.cuda.memory_allocated() == before + x.nbytes
    del like
    assert torch.cuda.memory_allocated() == before


def test_powers_of_two_are_constants_of_device_code(module: Any) -> None:
    out = torch.zeros(8, dtype=torch.int32, device=DEVICE)
    module.powers(out)
    assert out.tolist() == [3] * 8


def test_another_device_is_asked_about_while_the_first_is_current(module: Any, second: int) -> None:
    seen = properties(second)
    assert module.sm_count(second, True) == seen.multi_processor_count
    assert module.sm_version(second) == seen.major * 10 + seen.minor
    assert module.blocks_per_sm(512, 0, second) == seen.max_threads_per_multi_processor // 512
    assert module.current_device() == 0


def test_shared_memory_is_set_for_the_device_that_is_named(module: Any, second: int) -> None:
    name = f"cuda:{second}"
    with pytest.raises(RuntimeError, match="CUDA error: invalid argument"):
        module.launch_with_smem_set(of_kib(72, name))
    module.set_smem(72 * KIB, second)
    module.set_smem_per_device(tvm_ffi.device(name), 72 * KIB)
    for launch in (module.launch_with_smem_set, module.launch_with_smem_per_device):
        data = of_kib(72, name)
        expected = data.flip(0)
        launch(data)
        assert torch.equal(data, expected)
    assert module.current_device() == 0


def test_an_action_runs_with_its_device_current(module: Any, second: int) -> None:
    before = module.runs_so_far()
    for _ in range(2):
        module.run_per_device(tvm_ffi.device(f"cuda:{second}"), False)
        assert module.device_of_last_run() == second
    assert module.runs_so_far() - before == 1
    assert module.current_device() == 0
