"""`add_constant` against PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kjit.testing
from kjit.build.toolchain import find_cuda
from kjit.ops.add_constant import DTYPES, _add_constant, add_constant
from kjit.runtime.load import ensure_built

# Without a GPU, the CUDA kernel runs in the simulator, on tensors of the CPU.
device = kjit.testing.device_fixture("cuda", "cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
gpu_memory = kjit.testing.gpu_memory_fixture()
INPUTS = ["x"]
TENSORS = [*INPUTS, "out"]
SHAPE = (1001,)
# Around every length at which a kernel takes another path: vectors, blocks, threads.
LENGTHS = (2, 4, 8, 16, 32, 512, 1024, 2048, 4096, 32768)
SIZES = sorted({0, 100_003} | {n + d for n in LENGTHS for d in (-1, 0, 1)})
SHAPES: list[tuple[int, ...]] = [
    *((size,) for size in SIZES),
    (),
    (3, 5, 7),
    (2, 0, 3),
]


def reference(x: torch.Tensor, constant: int = 1) -> torch.Tensor:
    """What the op gives, in plain PyTorch; the benchmark times this too."""
    # The math, as in kjit/csrc/add_constant.cuh and kjit/csrc/add_constant.cpp.
    return x + constant


def make_inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Arguments for a call, and no number of them the default."""
    return {
        "x": make(shape, dtype, device),
        "constant": 1,
    }


def make(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random numbers, such that sums and products of a few fit every dtype."""
    if dtype.is_floating_point:
        return torch.randn(shape, device=device).to(dtype)
    high = 2 if dtype == torch.bool else 5
    return torch.randint(0, high, shape, device=device).to(dtype)


def run(inputs: dict[str, Any]) -> torch.Tensor:
    """Call the op; the result is what it wrote."""
    return add_constant(**inputs)


def expect(inputs: dict[str, Any]) -> torch.Tensor:
    """What `run` should give, computed in the widest dtypes."""
    return reference(**{name: wide(value) for name, value in inputs.items()})


def wide(value: Any) -> Any:
    """A tensor as float64 or int64, always a copy; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool:
        return value
    dtype = torch.float64 if value.dtype.is_floating_point else torch.int64
    return value.to(dtype, copy=True)


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Hold a result against that of `expect`, rounded to the same dtype."""
    torch.testing.assert_close(
        actual.double(),
        expected.to(actual.dtype).double(),
        equal_nan=True,
        **kjit.testing.tolerances(actual.dtype),
    )


def add_outputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same arguments and tensors for the op to write to."""
    return inputs | {"out": torch.empty_like(run(inputs))}


def shifted(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """A copy that begins `offset` elements after an aligned address."""
    size = tensor.numel() + offset
    memory = torch.empty(size, dtype=tensor.dtype, device=tensor.device)
    return memory[offset:].view(tensor.shape).copy_(tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_pytorch(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    inputs = make_inputs(shape, dtype, device)
    expected = expect(inputs)
    check(run(inputs), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offsets", [(1,), (3,), (0, 1), (1, 0)], ids=str)
def test_takes_tensors_that_are_not_aligned(offsets: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    inputs = make_inputs(SHAPE, dtype, device)
    expected = expect(inputs)
    inputs = add_outputs(inputs)
    for name, offset in zip(TENSORS, itertools.cycle(offsets), strict=False):
        inputs[name] = shifted(inputs[name], offset)
    check(run(inputs), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes_to_the_output_that_it_is_given(dtype: torch.dtype, device: str) -> None:
    inputs = add_outputs(make_inputs(SHAPE, dtype, device))
    assert run(inputs) is inputs["out"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_output_may_be_an_input(dtype: torch.dtype, device: str) -> None:
    inputs = make_inputs(SHAPE, dtype, device)
    expected = expect(inputs)
    inputs["out"] = inputs["x"]
    check(run(inputs), expected)


@pytest.mark.parametrize("name", TENSORS)
def test_refuses_a_tensor_that_is_not_contiguous(name: str, device: str) -> None:
    inputs = add_outputs(make_inputs(SHAPE, DTYPES[0], device))
    inputs[name] = torch.stack([inputs[name]] * 2, dim=-1)[..., 0]
    message = rf"Tensor match failed for {name}(.|\n)*not contiguous"
    with pytest.raises(RuntimeError, match=message):
        run(inputs)


@pytest.mark.parametrize("name", TENSORS)
def test_refuses_a_tensor_of_another_shape(name: str, device: str) -> None:
    inputs = add_outputs(make_inputs(SHAPE, DTYPES[0], device))
    inputs[name] = inputs[name][None]
    with pytest.raises(RuntimeError, match=r"Tensor match failed(.|\n)* mismatch"):
        run(inputs)


@pytest.mark.parametrize("name", TENSORS)
def test_refuses_a_tensor_of_another_dtype(name: str, device: str) -> None:
    inputs = add_outputs(make_inputs(SHAPE, DTYPES[0], device))
    inputs[name] = torch.empty_like(inputs[name], dtype=torch.complex64)
    message = r"complex64 is not one of|DType mismatch(.|\n)*complex64"
    with pytest.raises((TypeError, RuntimeError), match=message):
        run(inputs)


@pytest.mark.parametrize("name", INPUTS)
def test_refuses_none(name: str, device: str) -> None:
    inputs = make_inputs(SHAPE, DTYPES[0], device)
    inputs[name] = None
    with pytest.raises(TypeError, match=rf"'{name}' must be a tensor, not None"):
        run(inputs)


@needs_gpu
@pytest.mark.parametrize("name", TENSORS)
def test_refuses_tensors_on_different_devices(name: str) -> None:
    inputs = add_outputs(make_inputs(SHAPE, DTYPES[0], "cuda"))
    inputs[name] = inputs[name].cpu()
    with pytest.raises(RuntimeError, match=r"Device mismatch|only a CUDA source"):
        run(inputs)


def test_torch_compile_takes_it_whole(device: str) -> None:
    inputs = make_inputs(SHAPE, DTYPES[0], device)
    expected = expect(inputs)
    check(torch.compile(run, fullgraph=True)(inputs), expected)


def test_passes_the_checks_of_torch_library(device: str) -> None:
    inputs = add_outputs(make_inputs(SHAPE, DTYPES[0], device))
    torch.library.opcheck(add_constant.op, (), inputs)


@needs_gpu
def test_can_be_captured_in_a_cuda_graph() -> None:
    inputs = make_inputs(SHAPE, DTYPES[0], "cuda")
    run(dict(inputs))  # loads the module
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = run(inputs)
    later = make_inputs(SHAPE, DTYPES[0], "cuda")
    for name in INPUTS:
        inputs[name].copy_(later[name])
    graph.replay()
    check(actual, expect(later))


@needs_gpu
def test_runs_on_the_current_stream() -> None:
    inputs = make_inputs(SHAPE, DTYPES[0], "cuda")
    later = make_inputs(SHAPE, DTYPES[0], "cuda")
    run(dict(inputs))  # loads the module
    cuda: Any = torch.cuda  # which is not typed throughout
    stream = cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # On any other stream the kernel would be done before its input is there.
        cuda._sleep(100_000_000)
        for name in INPUTS:
            inputs[name].copy_(later[name])
        actual = run(inputs)
    stream.synchronize()
    check(actual, expect(later))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
def test_runs_on_a_gpu_that_is_not_the_current_one() -> None:
    inputs = make_inputs(SHAPE, DTYPES[0], "cuda:1")
    expected = expect(inputs)
    check(run(inputs), expected)


@needs_gpu
def test_indexes_past_two_to_the_31(gpu_memory: Callable[[int], None]) -> None:
    gpu_memory(8 * 2**31 * (len(TENSORS) + 1))
    size = 2**31 + 11
    inputs = make_inputs((size,), DTYPES[0], "cuda")
    ends = inputs | {name: inputs[name].flatten()[-99:] for name in INPUTS}
    expected = expect(ends)
    check(run(inputs).flatten()[-99:], expected)


@pytest.mark.parametrize("spec", _add_constant.specs(), ids=lambda spec: spec.label)
def test_compiles_without_a_gpu(spec: kjit.Spec) -> None:
    try:
        find_cuda()
    except kjit.ToolchainError as error:
        pytest.skip(error.message)
    ensure_built(kjit.Variant(spec.only("cuda"), kjit.Target.cuda("9.0a")))
